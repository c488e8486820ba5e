#include "server/calls/rope.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "core/error.h"
#include "core/model/compare.h"
#include "core/model/content_hash.h"
#include "core/rope/apply.h"
#include "server/convert/rope.h"

namespace posenc::server {
namespace {

// Of a weight whose rows are moved between two looks at the caller.
constexpr std::size_t kPartBytes = 1 << 20;

absl::Status NoSource(absl::string_view field) {
  return core::FieldRequired(
      field, "not given; it takes a spec, a preset or a config_json");
}

absl::StatusOr<core::RopeSource> ReadSource(absl::string_view field, bool given,
                                            const v1::RopeSource& source) {
  if (!given) return NoSource(field);
  absl::StatusOr<core::RopeSource> read = ReadRopeSource(source);
  if (!read.ok()) return core::Prefixed(field, read.status());
  return read;
}

// An encoding that needs no tensor to be resolved is; one without a width waits
// for the first.
absl::Status CheckSource(absl::string_view field, bool given,
                         const v1::RopeSource& source) {
  absl::StatusOr<core::RopeSource> read = ReadSource(field, given, source);
  if (!read.ok()) return read.status();
  const auto* spec = std::get_if<core::RopeSpec>(&read->source);
  if (spec != nullptr && spec->rotary_dim == 0 && !spec->nope) {
    return absl::OkStatus();
  }
  return core::Prefixed(
      field,
      core::ResolveSource(*read, 0, core::MissingLength::kError).status());
}

absl::Status CheckHeadDim(std::int32_t head_dim) {
  if (head_dim >= 0) return absl::OkStatus();
  return core::FieldInvalid(
      "head_dim", absl::StrCat(head_dim, "; must be positive, or unset"));
}

absl::Status CheckLayout(v1::Layout layout) {
  if (layout != v1::LAYOUT_UNSPECIFIED) return absl::OkStatus();
  return core::FieldRequired(
      "layout",
      "not given; the wrong one of BSHD and BHSD would not be noticed");
}

// A tensor of a request that must be there.
absl::StatusOr<InputTensor> ReadRequired(
    absl::string_view field, bool given, const v1::Tensor& tensor,
    const wire::BorrowedBytes* data = nullptr) {
  if (!given) return core::FieldRequired(field, "not given");
  absl::StatusOr<InputTensor> read = ReadTensor(tensor, data);
  if (!read.ok()) return core::Prefixed(field, read.status());
  return read;
}

}  // namespace

absl::StatusOr<core::ResolvedRope> ResolveField(
    absl::string_view field, bool given, const v1::RopeSource& source,
    std::int32_t head_dim, core::MissingLength missing_length) {
  absl::StatusOr<core::RopeSource> read = ReadSource(field, given, source);
  if (!read.ok()) return read.status();
  absl::StatusOr<core::ResolvedRope> rope =
      core::ResolveSource(*read, head_dim, missing_length);
  if (!rope.ok()) return core::Prefixed(field, rope.status());
  return rope;
}

absl::Status AnswerResolveRope(const v1::ResolveRopeRequest& request,
                               v1::ResolveRopeResponse* response) {
  const absl::Status valid = CheckHeadDim(request.head_dim());
  if (!valid.ok()) return valid;
  constexpr auto kAssume = core::MissingLength::kAssumeOriginal;
  absl::StatusOr<core::ResolvedRope> rope = ResolveField(
      "rope", request.has_rope(), request.rope(), request.head_dim(), kAssume);
  if (!rope.ok()) return rope.status();
  WriteRope(*rope, core::ContentHash(*rope), response);
  if (!request.has_compare_with()) return absl::OkStatus();
  absl::StatusOr<core::ResolvedRope> other =
      ResolveField("compare_with", true, request.compare_with(),
                   request.head_dim(), kAssume);
  if (!other.ok()) return other.status();
  WriteDifference(core::CompareRopes(*rope, *other),
                  response->mutable_difference());
  return absl::OkStatus();
}

absl::Status AnswerAnalyzeRope(const v1::AnalyzeRopeRequest& request,
                               StopCheck stop,
                               v1::AnalyzeRopeResponse* response) {
  const absl::Status valid = CheckHeadDim(request.head_dim());
  if (!valid.ok()) return valid;
  absl::StatusOr<core::ResolvedRope> rope =
      ResolveField("rope", request.has_rope(), request.rope(),
                   request.head_dim(), core::MissingLength::kAssumeOriginal);
  if (!rope.ok()) return rope.status();
  absl::StatusOr<core::RopeAnalysis> analysis =
      core::AnalyzeRope(*rope, request.max_distance(), request.distance_step(),
                        request.trained_length(), [stop] { return stop(); });
  if (!analysis.ok()) return analysis.status();
  WriteAnalysis(*analysis, response);
  return absl::OkStatus();
}

absl::StatusOr<TensorCall> PrepareApplyRope(const v1::ApplyRopeRequest& request,
                                            const TakenTensors& taken,
                                            RopeCache* cache) {
  absl::StatusOr<core::RopeSource> rope =
      ReadSource("rope", request.has_rope(), request.rope());
  if (!rope.ok()) return rope.status();
  const absl::Status layout = CheckLayout(request.layout());
  if (!layout.ok()) return layout;
  if (!request.has_q() && !request.has_k()) {
    return core::FieldRequired("q", "neither q nor k; send at least one");
  }
  absl::StatusOr<InputPositions> positions = ReadPositions(request.positions());
  if (!positions.ok()) return core::Prefixed("positions", positions.status());

  core::ApplyRopeArgs args;
  args.rope = CachedLookup(request.rope(), cache);
  args.positions = positions->positions;
  args.layout = static_cast<core::Layout>(request.layout());
  args.direction = ReadDirection(request.direction());
  if (request.has_query_scale()) {
    args.query_scale = ReadQueryScale(request.query_scale());
  }
  struct Kept {
    std::optional<InputTensor> q, k;
  };
  auto kept = std::make_shared<Kept>();
  const auto read = [&taken](absl::string_view field, int number,
                             const v1::Tensor& tensor,
                             std::optional<InputTensor>* to) -> absl::Status {
    absl::StatusOr<InputTensor> input =
        ReadRequired(field, true, tensor, taken.Find(number));
    if (!input.ok()) return input.status();
    *to = *std::move(input);
    return absl::OkStatus();
  };
  absl::Status status;
  if (request.has_q()) {
    status =
        read("q", v1::ApplyRopeRequest::kQFieldNumber, request.q(), &kept->q);
  }
  if (status.ok() && request.has_k()) {
    status =
        read("k", v1::ApplyRopeRequest::kKFieldNumber, request.k(), &kept->k);
  }
  if (!status.ok()) return status;
  absl::StatusOr<core::Rotations> rotations =
      core::PrepareApplyRope(args, kept->q ? &kept->q->view : nullptr,
                             kept->k ? &kept->k->view : nullptr);
  if (!rotations.ok()) return rotations.status();

  TensorCall call;
  const auto add = [&call](int field, const std::optional<InputTensor>& tensor,
                           std::unique_ptr<core::RowMap> map) {
    if (!tensor) return;
    call.outputs.push_back({field, tensor->view.dtype, tensor->view.shape,
                            tensor->form, std::move(map), tensor->pieces});
  };
  add(v1::ApplyRopeResponse::kQFieldNumber, kept->q, std::move(rotations->q));
  add(v1::ApplyRopeResponse::kKFieldNumber, kept->k, std::move(rotations->k));
  call.keep = std::move(kept);
  return call;
}

absl::Status CheckApplyRopeSettings(const v1::ApplyRopeRequest& request) {
  const absl::Status rope =
      CheckSource("rope", request.has_rope(), request.rope());
  return rope.ok() ? CheckLayout(request.layout()) : rope;
}

absl::StatusOr<TensorCall> PrepareReposition(
    const v1::RepositionRequest& request, const TakenTensors& taken,
    RopeCache* cache) {
  absl::StatusOr<core::RopeSource> old_rope =
      ReadSource("old_rope", request.has_old_rope(), request.old_rope());
  if (!old_rope.ok()) return old_rope.status();
  core::RepositionArgs args;
  if (request.has_new_rope()) {
    absl::StatusOr<core::RopeSource> new_rope =
        ReadSource("new_rope", true, request.new_rope());
    if (!new_rope.ok()) return new_rope.status();
  }
  const absl::Status layout = CheckLayout(request.layout());
  if (!layout.ok()) return layout;
  args.layout = static_cast<core::Layout>(request.layout());
  absl::StatusOr<InputMovement> movement = ReadMovement(request.movement());
  if (!movement.ok()) return core::Prefixed("movement", movement.status());
  args.movement = std::move(movement->movement);
  args.old_rope = CachedLookup(request.old_rope(), cache);
  if (request.has_new_rope()) {
    args.new_rope = CachedLookup(request.new_rope(), cache);
  }
  absl::StatusOr<InputTensor> k =
      ReadRequired("k", request.has_k(), request.k(),
                   taken.Find(v1::RepositionRequest::kKFieldNumber));
  if (!k.ok()) return k.status();
  absl::StatusOr<std::unique_ptr<core::RowMap>> map =
      core::PrepareReposition(args, k->view);
  if (!map.ok()) return map.status();

  TensorCall call;
  call.outputs.push_back({v1::RepositionResponse::kKFieldNumber, k->view.dtype,
                          k->view.shape, k->form, *std::move(map), k->pieces});
  call.keep = std::make_shared<InputTensor>(*std::move(k));
  return call;
}

absl::Status CheckRepositionSettings(const v1::RepositionRequest& request) {
  absl::Status status =
      CheckSource("old_rope", request.has_old_rope(), request.old_rope());
  if (status.ok() && request.has_new_rope()) {
    status = CheckSource("new_rope", true, request.new_rope());
  }
  return status.ok() ? CheckLayout(request.layout()) : status;
}

absl::StatusOr<TensorCall> PrepareConvertPairing(
    const v1::ConvertPairingRequest& request, const TakenTensors& taken) {
  using Request = v1::ConvertPairingRequest;
  absl::StatusOr<InputTensor> weight =
      ReadRequired("weight", request.has_weight(), request.weight(),
                   taken.Find(Request::kWeightFieldNumber));
  if (!weight.ok()) return weight.status();
  const absl::StatusOr<core::PairingRows> rows = core::PairingRows::Create(
      ReadConvertPairing(request), weight->view.dtype, weight->view.shape);
  if (!rows.ok()) return rows.status();

  TensorCall call;
  call.outputs.push_back({v1::ConvertPairingResponse::kWeightFieldNumber,
                          weight->view.dtype, weight->view.shape});
  const std::size_t bytes = rows->row_bytes();
  if (bytes == 0) return call;
  const std::int64_t part_rows = std::max<std::int64_t>(1, kPartBytes / bytes);
  call.parts = (rows->rows() + part_rows - 1) / part_rows;
  const auto kept = std::make_shared<InputTensor>(*std::move(weight));
  call.compute = [rows = *rows, kept, bytes, part_rows](
                     std::int64_t part, absl::Span<const core::TensorView> out,
                     StopCheck) {
    const std::int64_t first = part * part_rows;
    const std::int64_t end = std::min(first + part_rows, rows.rows());
    for (std::int64_t row = first; row < end; ++row) {
      kept->pieces.Read(rows.Source(row) * bytes, bytes,
                        static_cast<char*>(out[0].data) + row * bytes);
    }
    return absl::OkStatus();
  };
  return call;
}

}  // namespace posenc::server
