#include "server/service.h"

#include <algorithm>
#include <new>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/error.h"
#include "core/model/compare.h"
#include "core/model/content_hash.h"
#include "core/model/presets.h"
#include "core/simd/dispatch.h"
#include "server/convert.h"
#include "server/server.h"
#include "server/status.h"
#include "server/unknown_fields.h"

namespace posenc::server {

const char kVersion[] = POSENC_VERSION;

namespace {

// A few MiB: enough to hide a round trip, little enough to hold many of.
constexpr std::int64_t kStreamChunkBytes = std::int64_t{4} << 20;

std::string ToString(absl::uint128 value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

absl::Status CheckSize(absl::string_view what, absl::uint128 bytes,
                       std::int64_t limit, absl::string_view remedy) {
  if (bytes <= static_cast<std::uint64_t>(limit)) return absl::OkStatus();
  const std::string size = ToString(bytes);
  return core::MakeError(
      absl::StatusCode::kResourceExhausted, core::ErrorReason::kMessageTooLarge,
      "",
      absl::StrCat(what, " of ", size, " bytes, over the limit of ", limit,
                   "; ", remedy),
      {{"sizeBytes", size}, {"limitBytes", absl::StrCat(limit)}});
}

absl::Status CheckRequest(std::size_t bytes, std::int64_t limit) {
  return CheckSize("request", bytes, limit,
                   "send less in one call, or raise --max-request-bytes");
}

absl::Status CheckResponse(absl::uint128 bytes, std::int64_t limit) {
  return CheckSize("response", bytes, limit,
                   "ask for less in one call, or raise --max-response-bytes");
}

grpc::Status NotBuilt(absl::string_view rpc) {
  return grpc::Status(grpc::StatusCode::UNIMPLEMENTED,
                      absl::StrCat(rpc, ": not built in this server (version ",
                                   kVersion, "); see GetServerInfo"));
}

absl::StatusOr<core::ResolvedRope> Resolve(absl::string_view field, bool given,
                                           const v1::RopeSource& source,
                                           std::int32_t head_dim,
                                           core::MissingLength missing_length) {
  if (!given) {
    return core::FieldRequired(
        field, "not given; it takes a spec, a preset or a config_json");
  }
  absl::StatusOr<core::RopeSource> read = ReadRopeSource(source);
  if (!read.ok()) return core::Prefixed(field, read.status());
  absl::StatusOr<core::ResolvedRope> rope =
      core::ResolveSource(*read, head_dim, missing_length);
  if (!rope.ok()) return core::Prefixed(field, rope.status());
  return rope;
}

absl::Status ResolveRopeTo(const v1::ResolveRopeRequest& request,
                           v1::ResolveRopeResponse* response) {
  if (request.head_dim() < 0) {
    return core::FieldInvalid(
        "head_dim",
        absl::StrCat(request.head_dim(), "; must be positive, or unset"));
  }
  constexpr auto kAssume = core::MissingLength::kAssumeOriginal;
  absl::StatusOr<core::ResolvedRope> rope = Resolve(
      "rope", request.has_rope(), request.rope(), request.head_dim(), kAssume);
  if (!rope.ok()) return rope.status();
  WriteRope(*rope, core::ContentHash(*rope), response);
  if (!request.has_compare_with()) return absl::OkStatus();
  absl::StatusOr<core::ResolvedRope> other =
      Resolve("compare_with", true, request.compare_with(), request.head_dim(),
              kAssume);
  if (!other.ok()) return other.status();
  WriteDifference(core::CompareRopes(*rope, *other),
                  response->mutable_difference());
  return absl::OkStatus();
}

// The number of rows of a table, from `rows` and the positions.
absl::StatusOr<std::int64_t> TableRows(std::int64_t rows,
                                       const core::Positions& positions) {
  if (rows < 0) {
    return core::FieldInvalid("rows",
                              absl::StrCat(rows, "; must not be negative"));
  }
  std::optional<std::int64_t> implied;
  if (std::holds_alternative<std::monostate>(positions)) {
    return core::FieldRequired(
        "positions",
        "not given; a table takes start (with rows), ids or "
        "packed");
  }
  if (std::holds_alternative<core::SequenceStarts>(positions)) {
    return core::FieldInvalid(
        "positions.starts",
        "a table has no batch; give start (with rows), ids or packed");
  }
  if (const auto* ids = std::get_if<core::PositionIds>(&positions)) {
    implied = ids->ids.shape.empty() ? 1 : ids->ids.shape.back();
  } else if (const auto* packed =
                 std::get_if<core::PackedSequences>(&positions)) {
    implied = packed->cu_seqlens.empty() ? 0 : packed->cu_seqlens.back();
    // What ends before it starts is for the core to say.
    if (*implied < 0) implied = 0;
  }
  if (!implied.has_value()) return rows;
  if (rows != 0 && rows != *implied) {
    return core::MakeError(
        absl::StatusCode::kInvalidArgument, core::ErrorReason::kShapeMismatch,
        "rows",
        absl::StrCat(rows, ", but the positions are ", *implied,
                     "; leave rows unset where positions tell"),
        {{"expected", absl::StrCat(*implied)}, {"actual", absl::StrCat(rows)}});
  }
  return *implied;
}

absl::StatusOr<core::TokenPositions> TablePositions(
    const core::Positions& positions, std::int64_t rows, int axes,
    bool needs_ids) {
  core::TokenExtents extents;
  extents.tokens = rows;
  extents.packed = std::holds_alternative<core::PackedSequences>(positions);
  absl::StatusOr<core::TokenPositions> expanded =
      core::ExpandPositions(positions, extents, axes, needs_ids);
  if (!expanded.ok()) return core::Prefixed("positions", expanded.status());
  return expanded;
}

absl::Status BuildRopeTableTo(const v1::BuildTableRequest& request,
                              const core::Positions& positions,
                              std::int64_t rows, std::int64_t limit,
                              v1::BuildTableResponse* response) {
  absl::StatusOr<core::ResolvedRope> rope =
      Resolve("rope", true, request.rope(), 0, core::MissingLength::kError);
  if (!rope.ok()) return rope.status();
  if (rope->spec.nope) {
    return core::FieldInvalid(
        "rope",
        "this layer has no positional encoding (nope); it has no table");
  }
  const core::Dtype dtype = ReadTableDtype(request.dtype());
  const core::TableLayout layout = ReadTableLayout(request.layout());
  const bool complex = layout == core::TableLayout::kComplex;
  const core::Shape shape = core::TableShape(*rope, rows, layout);
  // 9: amplitude, tag and float64.
  const absl::Status size = CheckResponse(
      9 + TensorFieldBytes(dtype, shape, TensorForm::kData) * (complex ? 1 : 2),
      limit);
  if (!size.ok()) return size;
  absl::StatusOr<core::TokenPositions> expanded =
      TablePositions(positions, rows, rope->axes(), rope->needs_ids());
  if (!expanded.ok()) return expanded.status();

  response->set_amplitude(rope->amplitude);
  const core::TensorView first = AllocateTensor(
      dtype, shape,
      complex ? response->mutable_table() : response->mutable_cos());
  const core::TensorView second =
      complex ? core::TensorView{}
              : AllocateTensor(dtype, shape, response->mutable_sin());
  return core::BuildRopeTable(
      *rope, *expanded, layout,
      request.for_keys() ? core::TensorRole::kKey : core::TensorRole::kQuery,
      first, second);
}

absl::Status BuildAbsoluteTableTo(const v1::BuildTableRequest& request,
                                  const core::Positions& positions,
                                  std::int64_t rows, std::int64_t limit,
                                  v1::BuildTableResponse* response) {
  if (request.layout() != v1::TABLE_LAYOUT_UNSPECIFIED) {
    return core::FieldInvalid(
        "layout", "given for an absolute encoding; rotary tables only");
  }
  if (request.for_keys()) {
    return core::FieldInvalid(
        "for_keys", "given for an absolute encoding; rotary tables only");
  }
  const core::Sinusoidal encoding =
      ReadSinusoidal(request.absolute().sinusoidal());
  const absl::Status valid = core::ValidateSinusoidal(encoding);
  if (!valid.ok()) return core::Prefixed("absolute.sinusoidal", valid);
  const core::Dtype dtype = ReadTableDtype(request.dtype());
  const core::Shape shape = {rows, encoding.dim};
  const absl::Status size =
      CheckResponse(TensorFieldBytes(dtype, shape, TensorForm::kData), limit);
  if (!size.ok()) return size;
  absl::StatusOr<core::TokenPositions> expanded =
      TablePositions(positions, rows, 1, false);
  if (!expanded.ok()) return expanded.status();
  return core::BuildSinusoidal(
      encoding, *expanded,
      AllocateTensor(dtype, shape, response->mutable_table()));
}

// UNIMPLEMENTED for the absolute encodings that are not built.
absl::Status CheckAbsolute(const v1::AbsoluteEncoding& encoding) {
  if (encoding.encoding_case() == v1::AbsoluteEncoding::ENCODING_NOT_SET) {
    return core::FieldRequired("absolute", "empty; give one encoding");
  }
  if (encoding.has_sinusoidal()) return absl::OkStatus();
  const int number = encoding.encoding_case();
  return core::MakeError(
      absl::StatusCode::kUnimplemented, core::ErrorReason::kFieldUnknown,
      absl::StrCat("absolute.",
                   encoding.GetDescriptor()->FindFieldByNumber(number)->name()),
      absl::StrCat("not built in this server (version ", kVersion,
                   "); sinusoidal is"),
      {{"fieldNumber", absl::StrCat(number)}});
}

absl::Status BuildTableTo(const v1::BuildTableRequest& request,
                          std::int64_t limit,
                          v1::BuildTableResponse* response) {
  if (request.encoding_case() == v1::BuildTableRequest::ENCODING_NOT_SET) {
    return core::FieldRequired("rope",
                               "neither rope nor absolute; give one of them");
  }
  if (request.has_absolute()) {
    const absl::Status built = CheckAbsolute(request.absolute());
    if (!built.ok()) return built;
  }
  const core::Dtype dtype = ReadTableDtype(request.dtype());
  if (!core::IsFloating(dtype)) {
    return core::FieldInvalid(
        "dtype",
        absl::StrCat(core::DtypeName(dtype),
                     "; a table is float32, float16, bfloat16 or float64"));
  }
  absl::StatusOr<InputPositions> positions = ReadPositions(request.positions());
  if (!positions.ok()) return core::Prefixed("positions", positions.status());
  absl::StatusOr<std::int64_t> rows =
      TableRows(request.rows(), positions->positions);
  if (!rows.ok()) return rows.status();
  return request.has_rope()
             ? BuildRopeTableTo(request, positions->positions, *rows, limit,
                                response)
             : BuildAbsoluteTableTo(request, positions->positions, *rows, limit,
                                    response);
}

// One of q and k on its way through ApplyRope.
struct Rotated {
  std::optional<InputTensor> input;
  core::TensorView output;

  const core::ConstTensorView* in() const {
    return input.has_value() ? &input->view : nullptr;
  }
  const core::TensorView* out() const {
    return input.has_value() ? &output : nullptr;
  }
  absl::Status Read(absl::string_view field, const v1::Tensor& tensor) {
    absl::StatusOr<InputTensor> read = ReadTensor(tensor);
    if (!read.ok()) return core::Prefixed(field, read.status());
    input = *std::move(read);
    return absl::OkStatus();
  }
  absl::uint128 ResponseBytes() const {
    if (!input.has_value()) return 0;
    return TensorFieldBytes(input->view.dtype, input->view.shape, input->form);
  }
  void Allocate(v1::Tensor* tensor) {
    output = AllocateTensor(input->view.dtype, input->view.shape, tensor);
  }
  void Finish(v1::Tensor* tensor) const {
    if (input->form == TensorForm::kValues) SpellOut(tensor);
  }
};

absl::Status ApplyRopeTo(const v1::ApplyRopeRequest& request,
                         std::int64_t limit, v1::ApplyRopeResponse* response) {
  if (!request.has_rope()) {
    return core::FieldRequired(
        "rope", "not given; it takes a spec, a preset or a config_json");
  }
  absl::StatusOr<core::RopeSource> rope = ReadRopeSource(request.rope());
  if (!rope.ok()) return core::Prefixed("rope", rope.status());
  if (request.layout() == v1::LAYOUT_UNSPECIFIED) {
    return core::FieldRequired(
        "layout",
        "not given; the wrong one of BSHD and BHSD would not be noticed");
  }
  if (!request.has_q() && !request.has_k()) {
    return core::FieldRequired("q", "neither q nor k; send at least one");
  }
  absl::StatusOr<InputPositions> positions = ReadPositions(request.positions());
  if (!positions.ok()) return core::Prefixed("positions", positions.status());

  Rotated q, k;
  if (request.has_q()) {
    const absl::Status read = q.Read("q", request.q());
    if (!read.ok()) return read;
  }
  if (request.has_k()) {
    const absl::Status read = k.Read("k", request.k());
    if (!read.ok()) return read;
  }
  const absl::Status size =
      CheckResponse(q.ResponseBytes() + k.ResponseBytes(), limit);
  if (!size.ok()) return size;
  if (request.has_q()) q.Allocate(response->mutable_q());
  if (request.has_k()) k.Allocate(response->mutable_k());

  core::ApplyRopeArgs args;
  args.rope = *std::move(rope);
  args.positions = std::move(positions->positions);
  args.layout = static_cast<core::Layout>(request.layout());
  args.direction = ReadDirection(request.direction());
  if (request.has_query_scale()) {
    args.query_scale = ReadQueryScale(request.query_scale());
  }
  const absl::Status applied =
      core::ApplyRope(args, q.in(), q.out(), k.in(), k.out());
  if (!applied.ok()) return applied;
  if (request.has_q()) q.Finish(response->mutable_q());
  if (request.has_k()) k.Finish(response->mutable_k());
  return absl::OkStatus();
}

absl::Status OutOfMemory() {
  return core::MakeError(
      absl::StatusCode::kResourceExhausted, core::ErrorReason::kOverloaded, "",
      "out of memory for this call; retry later, or send less in one call",
      {{"resource", "memory"}});
}

}  // namespace

template <typename Request, typename Response, typename Handler>
grpc::Status Service::Answer(const Request& request, Response* response,
                             Handler handler) {
  const auto answer = [&]() -> absl::Status {
    if (draining_.load()) {
      return core::MakeError(absl::StatusCode::kUnavailable,
                             core::ErrorReason::kDraining, "",
                             "the server is draining; retry elsewhere");
    }
    absl::Status status =
        CheckRequest(request.ByteSizeLong(), max_request_bytes_);
    if (status.ok()) status = RefuseUnknown(request);
    if (status.ok()) status = handler();
    if (status.ok()) {
      status = CheckResponse(response->ByteSizeLong(), max_response_bytes_);
    }
    return status;
  };
  try {
    return ToGrpcStatus(answer());
  } catch (const std::bad_alloc&) {
    return ToGrpcStatus(OutOfMemory());
  } catch (const std::length_error&) {  // more than a container can hold
    return ToGrpcStatus(OutOfMemory());
  }
}

grpc::Status Service::GetServerInfo(grpc::ServerContext*,
                                    const v1::GetServerInfoRequest* request,
                                    v1::GetServerInfoResponse* response) {
  return Answer(*request, response, [&] {
    response->set_version(kVersion);
    response->set_instruction_set(simd::ActiveKernels().name);
    v1::Limits* const limits = response->mutable_limits();
    limits->set_max_request_bytes(max_request_bytes_);
    limits->set_max_response_bytes(max_response_bytes_);
    limits->set_max_rotary_dim(core::kMaxRotaryDim);
    limits->set_stream_chunk_bytes(kStreamChunkBytes);
    for (const core::Preset& preset : core::Presets()) {
      response->add_presets(std::string(preset.name));
    }
    for (const v1::Dtype dtype : {v1::DTYPE_FLOAT32, v1::DTYPE_FLOAT16,
                                  v1::DTYPE_BFLOAT16, v1::DTYPE_FLOAT64}) {
      response->add_tensor_dtypes(dtype);
    }
    return absl::OkStatus();
  });
}

grpc::Status Service::ResolveRope(grpc::ServerContext*,
                                  const v1::ResolveRopeRequest* request,
                                  v1::ResolveRopeResponse* response) {
  return Answer(*request, response,
                [&] { return ResolveRopeTo(*request, response); });
}

grpc::Status Service::BuildTable(grpc::ServerContext*,
                                 const v1::BuildTableRequest* request,
                                 v1::BuildTableResponse* response) {
  return Answer(*request, response, [&] {
    return BuildTableTo(*request, max_response_bytes_, response);
  });
}

grpc::Status Service::ApplyRope(grpc::ServerContext*,
                                const v1::ApplyRopeRequest* request,
                                v1::ApplyRopeResponse* response) {
  return Answer(*request, response, [&] {
    return ApplyRopeTo(*request, max_response_bytes_, response);
  });
}

grpc::Status Service::BuildTableStream(
    grpc::ServerContext*, const v1::BuildTableStreamRequest*,
    grpc::ServerWriter<v1::BuildTableStreamResponse>*) {
  return NotBuilt("BuildTableStream");
}
grpc::Status Service::BuildBias(grpc::ServerContext*,
                                const v1::BuildBiasRequest*,
                                grpc::ServerWriter<v1::BuildBiasResponse>*) {
  return NotBuilt("BuildBias");
}
grpc::Status Service::BuildPositions(grpc::ServerContext*,
                                     const v1::BuildPositionsRequest*,
                                     v1::BuildPositionsResponse*) {
  return NotBuilt("BuildPositions");
}
grpc::Status Service::ApplyRopeStream(
    grpc::ServerContext*,
    grpc::ServerReaderWriter<v1::ApplyRopeStreamResponse,
                             v1::ApplyRopeStreamRequest>*) {
  return NotBuilt("ApplyRopeStream");
}
grpc::Status Service::Reposition(grpc::ServerContext*,
                                 const v1::RepositionRequest*,
                                 v1::RepositionResponse*) {
  return NotBuilt("Reposition");
}
grpc::Status Service::RepositionStream(
    grpc::ServerContext*,
    grpc::ServerReaderWriter<v1::RepositionStreamResponse,
                             v1::RepositionStreamRequest>*) {
  return NotBuilt("RepositionStream");
}
grpc::Status Service::AddEncoding(grpc::ServerContext*,
                                  const v1::AddEncodingRequest*,
                                  v1::AddEncodingResponse*) {
  return NotBuilt("AddEncoding");
}
grpc::Status Service::ScoreRelative(grpc::ServerContext*,
                                    const v1::ScoreRelativeRequest*,
                                    v1::ScoreRelativeResponse*) {
  return NotBuilt("ScoreRelative");
}
grpc::Status Service::ConvertPairing(grpc::ServerContext*,
                                     const v1::ConvertPairingRequest*,
                                     v1::ConvertPairingResponse*) {
  return NotBuilt("ConvertPairing");
}
grpc::Status Service::AnalyzeRope(grpc::ServerContext*,
                                  const v1::AnalyzeRopeRequest*,
                                  v1::AnalyzeRopeResponse*) {
  return NotBuilt("AnalyzeRope");
}

}  // namespace posenc::server
