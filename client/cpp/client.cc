#include "posenc/client.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/channel_arguments.h"
#include "posenc/rpc/status.pb.h"

namespace posenc {
namespace {

using Stub = v1::PositionalEncodingService::StubInterface;

constexpr char kStatusType[] = "type.googleapis.com/google.rpc.Status";
constexpr char kErrorInfoType[] = "type.googleapis.com/google.rpc.ErrorInfo";
constexpr char kErrorDomain[] = "posenc";

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

template <typename Request, typename Response>
absl::Status Call(Stub& stub,
                  grpc::Status (Stub::*method)(grpc::ClientContext*,
                                               const Request&, Response*),
                  const Request& request, absl::Duration timeout,
                  Response* response) {
  // gRPC rounds deadlines up to its next millisecond: a quick call could still
  // pass.
  if (timeout <= absl::ZeroDuration()) {
    return absl::DeadlineExceededError(absl::StrCat(
        "timeout: ", absl::FormatDuration(timeout), "; must be above 0"));
  }
  grpc::ClientContext context;
  if (timeout != absl::InfiniteDuration()) {
    context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  }
  return ToAbsl((stub.*method)(&context, request, response));
}

void FillTensor(const TensorView& view, v1::Tensor* tensor) {
  tensor->set_dtype(view.dtype);
  tensor->mutable_shape()->Add(view.shape.begin(), view.shape.end());
  tensor->set_data(view.bytes.data(), view.bytes.size());
}

absl::optional<TensorView> ViewOf(bool has, const v1::Tensor& tensor) {
  if (!has) return absl::nullopt;
  TensorView view;
  view.dtype = tensor.dtype();
  view.shape.assign(tensor.shape().begin(), tensor.shape().end());
  view.bytes = absl::MakeConstSpan(tensor.data().data(), tensor.data().size());
  return view;
}

}  // namespace

v1::Positions StartAt(std::int64_t start) {
  v1::Positions positions;
  positions.set_start(start);
  return positions;
}

v1::RopeSource FromPreset(absl::string_view name) {
  v1::RopeSource source;
  source.set_preset(name.data(), name.size());
  return source;
}

v1::RopeSource FromConfigJson(absl::string_view config_json) {
  v1::RopeSource source;
  source.set_config_json(config_json.data(), config_json.size());
  return source;
}

std::string ErrorReason(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kStatusType);
  rpc::Status details;
  if (!payload || !details.ParseFromString(std::string(*payload))) return "";
  for (const google::protobuf::Any& detail : details.details()) {
    rpc::ErrorInfo info;
    if (detail.type_url() == kErrorInfoType &&
        info.ParseFromString(detail.value()) && info.domain() == kErrorDomain) {
      return info.reason();
    }
  }
  return "";
}

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

absl::StatusOr<v1::GetServerInfoResponse> Client::GetServerInfo(
    const CallOptions& options) const {
  v1::GetServerInfoResponse response;
  const absl::Status status =
      Call(*stub_, &Stub::GetServerInfo, v1::GetServerInfoRequest(),
           options.timeout.value_or(timeout_), &response);
  if (!status.ok()) return status;
  return response;
}

absl::StatusOr<v1::ResolveRopeResponse> Client::ResolveRope(
    const v1::ResolveRopeRequest& request, const CallOptions& options) const {
  v1::ResolveRopeResponse response;
  const absl::Status status =
      Call(*stub_, &Stub::ResolveRope, request,
           options.timeout.value_or(timeout_), &response);
  if (!status.ok()) return status;
  return response;
}

absl::StatusOr<BuildTableResult> Client::BuildTable(
    const v1::BuildTableRequest& request, const CallOptions& options) const {
  const auto response = std::make_shared<v1::BuildTableResponse>();
  const absl::Status status =
      Call(*stub_, &Stub::BuildTable, request,
           options.timeout.value_or(timeout_), response.get());
  if (!status.ok()) return status;
  BuildTableResult result;
  result.amplitude = response->amplitude();
  result.cos = ViewOf(response->has_cos(), response->cos());
  result.sin = ViewOf(response->has_sin(), response->sin());
  result.table = ViewOf(response->has_table(), response->table());
  result.response = response;
  return result;
}

absl::StatusOr<ApplyRopeResult> Client::ApplyRope(
    const ApplyRopeArgs& args, const CallOptions& options) const {
  // Protobuf would abort or wrap around beyond this, before any server sees it.
  const std::size_t tensor_bytes =
      (args.q ? args.q->bytes.size() : 0) + (args.k ? args.k->bytes.size() : 0);
  if (tensor_bytes > static_cast<std::size_t>(kMaxProtoBytes)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("request: ", tensor_bytes, " bytes; the limit is ",
                     kMaxProtoBytes, ", split the batch"));
  }

  v1::ApplyRopeRequest request;
  *request.mutable_rope() = args.rope;
  // Unset positions stay missing: the server must say so, not see a message.
  if (args.positions.kind_case() != v1::Positions::KIND_NOT_SET) {
    *request.mutable_positions() = args.positions;
  }
  request.set_layout(args.layout);
  request.set_direction(args.direction);
  if (args.query_scale) *request.mutable_query_scale() = *args.query_scale;
  if (args.q) FillTensor(*args.q, request.mutable_q());
  if (args.k) FillTensor(*args.k, request.mutable_k());

  const auto response = std::make_shared<v1::ApplyRopeResponse>();
  const absl::Status status =
      Call(*stub_, &Stub::ApplyRope, request,
           options.timeout.value_or(timeout_), response.get());
  if (!status.ok()) return status;
  ApplyRopeResult result;
  result.q = ViewOf(response->has_q(), response->q());
  result.k = ViewOf(response->has_k(), response->k());
  result.response = response;
  return result;
}

}  // namespace posenc
