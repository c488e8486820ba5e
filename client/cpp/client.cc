#include "posenc/client.h"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "bias_matrix.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/channel_arguments.h"
#include "status_type.h"

namespace posenc {
namespace {

using Stub = v1::PositionalEncodingService::StubInterface;

// The most that protobuf can frame: 2 GiB - 1.
constexpr std::int64_t kMaxProtoBytes = std::numeric_limits<int>::max();

absl::Status ToAbsl(const grpc::Status& status) {
  absl::Status out(static_cast<absl::StatusCode>(status.error_code()),
                   status.error_message());
  if (!status.ok() && !status.error_details().empty()) {
    out.SetPayload(kStatusType, absl::Cord(status.error_details()));
  }
  return out;
}

absl::Status SetDeadline(absl::Duration timeout, grpc::ClientContext* context) {
  // gRPC rounds deadlines up to its next millisecond: a quick call could still
  // pass.
  if (timeout <= absl::ZeroDuration()) {
    return absl::DeadlineExceededError(absl::StrCat(
        "timeout: ", absl::FormatDuration(timeout), "; must be above 0"));
  }
  if (timeout != absl::InfiniteDuration()) {
    context->set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  }
  return absl::OkStatus();
}

// Protobuf would abort or wrap around beyond this, before any server sees it.
absl::Status CheckBytes(std::size_t bytes) {
  if (bytes <= static_cast<std::size_t>(kMaxProtoBytes)) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("request: ", bytes, " bytes; the limit is ", kMaxProtoBytes,
                   ", split the batch"));
}

// Before they are copied.
absl::Status CheckTensors(
    std::initializer_list<const absl::optional<TensorView>*> views) {
  std::size_t bytes = 0;
  for (const absl::optional<TensorView>* view : views) {
    if (*view) bytes += (*view)->bytes.size();
  }
  return CheckBytes(bytes);
}

// Unset positions stay missing: the server must say so, not see a message.
template <typename Request>
void SetPositions(const v1::Positions& positions, Request* request) {
  if (positions.kind_case() != v1::Positions::KIND_NOT_SET) {
    *request->mutable_positions() = positions;
  }
}

TensorView ViewOf(const v1::Tensor& tensor) {
  TensorView view;
  view.dtype = tensor.dtype();
  view.shape.assign(tensor.shape().begin(), tensor.shape().end());
  view.bytes = absl::MakeConstSpan(tensor.data().data(), tensor.data().size());
  return view;
}

absl::optional<TensorView> ViewOf(bool has, const v1::Tensor& tensor) {
  if (!has) return absl::nullopt;
  return ViewOf(tensor);
}

}  // namespace

Client Client::Connect(const ClientOptions& options) {
  const int max_bytes = static_cast<int>(
      std::clamp<std::int64_t>(options.max_message_bytes, 0, kMaxProtoBytes));
  grpc::ChannelArguments args;
  args.SetMaxReceiveMessageSize(max_bytes);
  args.SetMaxSendMessageSize(max_bytes);
  // Tensors do not compress, and gRPC 1.51's decompression can be made to eat
  // memory: offer none and take none.
  args.SetCompressionAlgorithm(GRPC_COMPRESS_NONE);
  args.SetInt(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET,
              1 << GRPC_COMPRESS_NONE);
  args.SetInt(GRPC_ARG_ENABLE_RETRIES, 1);
  // A call that has sent more than this is not retried; gRPC's 256 KiB would
  // leave out most tensors. What is kept are references, not copies.
  args.SetInt(GRPC_ARG_PER_RPC_RETRY_BUFFER_SIZE, max_bytes);
  // A retry is of use only if the connection has been tried again by then:
  // the first backoff of the retries, not gRPC's 1 s.
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  args.SetServiceConfigJSON(options.service_config.value_or(kServiceConfig));
  return Client(grpc::CreateCustomChannel(
                    options.target, grpc::InsecureChannelCredentials(), args),
                options.timeout);
}

Client::Client(std::shared_ptr<grpc::Channel> channel, absl::Duration timeout)
    : stub_(v1::PositionalEncodingService::NewStub(std::move(channel))),
      timeout_(timeout) {}

Client::Client(std::shared_ptr<Stub> stub, absl::Duration timeout)
    : stub_(std::move(stub)), timeout_(timeout) {}

template <typename Method, typename Request, typename Response>
absl::Status Client::Call(Method method, const Request& request,
                          const CallOptions& options,
                          Response* response) const {
  grpc::ClientContext context;
  absl::Status status =
      SetDeadline(options.timeout.value_or(timeout_), &context);
  if (status.ok()) status = CheckBytes(request.ByteSizeLong());
  if (!status.ok()) return status;
  return ToAbsl((stub_.get()->*method)(&context, request, response));
}

absl::StatusOr<v1::GetServerInfoResponse> Client::GetServerInfo(
    const CallOptions& options) const {
  v1::GetServerInfoResponse response;
  const absl::Status status = Call(
      &Stub::GetServerInfo, v1::GetServerInfoRequest(), options, &response);
  if (!status.ok()) return status;
  return response;
}

absl::StatusOr<v1::ResolveRopeResponse> Client::ResolveRope(
    const v1::ResolveRopeRequest& request, const CallOptions& options) const {
  v1::ResolveRopeResponse response;
  const absl::Status status =
      Call(&Stub::ResolveRope, request, options, &response);
  if (!status.ok()) return status;
  return response;
}

absl::StatusOr<v1::AnalyzeRopeResponse> Client::AnalyzeRope(
    const v1::AnalyzeRopeRequest& request, const CallOptions& options) const {
  v1::AnalyzeRopeResponse response;
  const absl::Status status =
      Call(&Stub::AnalyzeRope, request, options, &response);
  if (!status.ok()) return status;
  return response;
}

absl::StatusOr<v1::BuildPositionsResponse> Client::BuildPositions(
    const v1::BuildPositionsRequest& request,
    const CallOptions& options) const {
  v1::BuildPositionsResponse response;
  const absl::Status status =
      Call(&Stub::BuildPositions, request, options, &response);
  if (!status.ok()) return status;
  return response;
}

absl::StatusOr<BuildTableResult> Client::BuildTable(
    const v1::BuildTableRequest& request, const CallOptions& options) const {
  const auto response = std::make_shared<v1::BuildTableResponse>();
  const absl::Status status =
      Call(&Stub::BuildTable, request, options, response.get());
  if (!status.ok()) return status;
  BuildTableResult result;
  result.amplitude = response->amplitude();
  result.cos = ViewOf(response->has_cos(), response->cos());
  result.sin = ViewOf(response->has_sin(), response->sin());
  result.table = ViewOf(response->has_table(), response->table());
  result.response = response;
  return result;
}

absl::Status Client::BuildBias(
    const v1::BuildBiasRequest& request,
    const std::function<bool(const BiasTile&)>& on_tile,
    const CallOptions& options) const {
  grpc::ClientContext context;
  absl::Status status =
      SetDeadline(options.timeout.value_or(timeout_), &context);
  if (status.ok()) status = CheckBytes(request.ByteSizeLong());
  if (!status.ok()) return status;
  const auto reader = stub_->BuildBias(&context, request);
  v1::BuildBiasResponse response;
  bool wanted = true;
  while (reader->Read(&response)) {
    if (!wanted) continue;  // what was under way
    BiasTile tile;
    tile.query_start = response.query_start();
    tile.key_start = response.key_start();
    tile.tensor = ViewOf(response.tile());
    wanted = on_tile(tile);
    if (!wanted) context.TryCancel();
  }
  status = ToAbsl(reader->Finish());
  // The server may have been done already.
  if (!wanted) return absl::CancelledError("the caller wants no more tiles");
  return status;
}

absl::StatusOr<TensorResult> Client::BuildBias(
    const v1::BuildBiasRequest& request, const CallOptions& options) const {
  BiasMatrix matrix(request);
  absl::Status fitted;
  const absl::Status status = BuildBias(
      request,
      [&](const BiasTile& tile) {
        fitted = matrix.Add(tile);
        return fitted.ok();
      },
      options);
  if (!fitted.ok()) return fitted;
  if (!status.ok()) return status;
  return matrix.Take();
}

absl::StatusOr<ApplyRopeResult> Client::ApplyRope(
    const ApplyRopeArgs& args, const CallOptions& options) const {
  absl::Status status = CheckTensors({&args.q, &args.k});
  if (!status.ok()) return status;
  v1::ApplyRopeRequest request;
  *request.mutable_rope() = args.rope;
  SetPositions(args.positions, &request);
  request.set_layout(args.layout);
  request.set_direction(args.direction);
  if (args.query_scale) *request.mutable_query_scale() = *args.query_scale;
  if (args.q) *request.mutable_q() = ToTensor(*args.q);
  if (args.k) *request.mutable_k() = ToTensor(*args.k);
  const auto response = std::make_shared<v1::ApplyRopeResponse>();
  status = Call(&Stub::ApplyRope, request, options, response.get());
  if (!status.ok()) return status;
  ApplyRopeResult result;
  result.q = ViewOf(response->has_q(), response->q());
  result.k = ViewOf(response->has_k(), response->k());
  result.response = response;
  return result;
}

absl::StatusOr<TensorResult> Client::Reposition(
    const RepositionArgs& args, const CallOptions& options) const {
  absl::Status status = CheckTensors({&args.k});
  if (!status.ok()) return status;
  v1::RepositionRequest request;
  *request.mutable_old_rope() = args.old_rope;
  if (args.new_rope) *request.mutable_new_rope() = *args.new_rope;
  *request.mutable_movement() = args.movement;
  request.set_layout(args.layout);
  if (args.k) *request.mutable_k() = ToTensor(*args.k);
  const auto response = std::make_shared<v1::RepositionResponse>();
  status = Call(&Stub::Reposition, request, options, response.get());
  if (!status.ok()) return status;
  return TensorResult{ViewOf(response->k()), response};
}

absl::StatusOr<TensorResult> Client::AddEncoding(
    const AddEncodingArgs& args, const CallOptions& options) const {
  absl::Status status = CheckTensors({&args.x});
  if (!status.ok()) return status;
  v1::AddEncodingRequest request;
  *request.mutable_encoding() = args.encoding;
  SetPositions(args.positions, &request);
  request.set_combination(args.combination);
  if (args.x_scale) request.set_x_scale(*args.x_scale);
  if (args.x) *request.mutable_x() = ToTensor(*args.x);
  const auto response = std::make_shared<v1::AddEncodingResponse>();
  status = Call(&Stub::AddEncoding, request, options, response.get());
  if (!status.ok()) return status;
  return TensorResult{ViewOf(response->x()), response};
}

absl::StatusOr<TensorResult> Client::ScoreRelative(
    const ScoreRelativeArgs& args, const CallOptions& options) const {
  absl::Status status = CheckTensors({&args.q, &args.k});
  if (!status.ok()) return status;
  v1::ScoreRelativeRequest request;
  *request.mutable_score() = args.score;
  request.set_query_start(args.query_start);
  request.set_key_start(args.key_start);
  request.set_dtype(args.dtype);
  if (args.q) *request.mutable_q() = ToTensor(*args.q);
  if (args.k) *request.mutable_k() = ToTensor(*args.k);
  const auto response = std::make_shared<v1::ScoreRelativeResponse>();
  status = Call(&Stub::ScoreRelative, request, options, response.get());
  if (!status.ok()) return status;
  return TensorResult{ViewOf(response->scores()), response};
}

absl::StatusOr<TensorResult> Client::ConvertPairing(
    const ConvertPairingArgs& args, const CallOptions& options) const {
  absl::Status status = CheckTensors({&args.weight});
  if (!status.ok()) return status;
  v1::ConvertPairingRequest request;
  request.set_old_pairing(args.old_pairing);
  request.set_new_pairing(args.new_pairing);
  request.set_heads(args.heads);
  request.set_rotary_dim(args.rotary_dim);
  request.set_slice(args.slice);
  if (args.weight) *request.mutable_weight() = ToTensor(*args.weight);
  const auto response = std::make_shared<v1::ConvertPairingResponse>();
  status = Call(&Stub::ConvertPairing, request, options, response.get());
  if (!status.ok()) return status;
  return TensorResult{ViewOf(response->weight()), response};
}

}  // namespace posenc
