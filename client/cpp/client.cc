#include "posenc/client.h"

#include <utility>

#include "bias_matrix.h"
#include "calls.h"
#include "grpcpp/client_context.h"

namespace posenc {
namespace {

TensorView ViewOf(const v1::Tensor& tensor) {
  TensorView view;
  view.dtype = tensor.dtype();
  view.shape.assign(tensor.shape().begin(), tensor.shape().end());
  view.bytes = absl::MakeConstSpan(tensor.data().data(), tensor.data().size());
  return view;
}

}  // namespace

Client Client::Connect(const ClientOptions& options) {
  return Client(std::make_shared<Calls>(options));
}

Client::Client(std::shared_ptr<grpc::Channel> channel, absl::Duration timeout)
    : calls_(std::make_shared<Calls>(std::move(channel), timeout)) {}

Client::Client(std::shared_ptr<Stub> stub, absl::Duration timeout)
    : calls_(std::make_shared<Calls>(std::move(stub), timeout)) {}

absl::StatusOr<v1::GetServerInfoResponse> Client::GetServerInfo(
    const CallOptions& options) const {
  v1::GetServerInfoResponse response;
  const absl::Status status = calls_->Call(
      &Stub::GetServerInfo, v1::GetServerInfoRequest(), options, &response);
  if (!status.ok()) return status;
  return response;
}

absl::StatusOr<v1::ResolveRopeResponse> Client::ResolveRope(
    const v1::ResolveRopeRequest& request, const CallOptions& options) const {
  v1::ResolveRopeResponse response;
  const absl::Status status =
      calls_->Call(&Stub::ResolveRope, request, options, &response);
  if (!status.ok()) return status;
  return response;
}

absl::StatusOr<v1::AnalyzeRopeResponse> Client::AnalyzeRope(
    const v1::AnalyzeRopeRequest& request, const CallOptions& options) const {
  v1::AnalyzeRopeResponse response;
  const absl::Status status =
      calls_->Call(&Stub::AnalyzeRope, request, options, &response);
  if (!status.ok()) return status;
  return response;
}

absl::StatusOr<v1::BuildPositionsResponse> Client::BuildPositions(
    const v1::BuildPositionsRequest& request,
    const CallOptions& options) const {
  v1::BuildPositionsResponse response;
  const absl::Status status =
      calls_->Call(&Stub::BuildPositions, request, options, &response);
  if (!status.ok()) return status;
  return response;
}

absl::Status Client::BuildBias(
    const v1::BuildBiasRequest& request,
    const std::function<bool(const BiasTile&)>& on_tile,
    const CallOptions& options) const {
  grpc::ClientContext context;
  absl::Status status = SetDeadline(calls_->timeout(options), &context);
  if (status.ok()) {
    status = CheckBytes(static_cast<std::int64_t>(request.ByteSizeLong()));
  }
  if (!status.ok()) return status;
  const auto reader = calls_->stub()->BuildBias(&context, request);
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

}  // namespace posenc
