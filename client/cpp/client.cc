// Makes clients, and makes the calls without tensors.

#include "posenc/client.h"

#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/connection/call_identity.h"
#include "client/cpp/connection/calls.h"
#include "client/cpp/connection/credentials.h"
#include "client/cpp/connection/error_fields.h"

namespace posenc {
Client Client::Connect(const ClientOptions& options) {
  return Client(std::make_shared<Calls>(options));
}

absl::Status Client::CheckCredentials(const ClientOptions& options) {
  return ChannelSecurity::Of(options).status();
}

Client::Client(std::shared_ptr<grpc::Channel> channel, absl::Duration timeout)
    : calls_(std::make_shared<Calls>(std::move(channel), timeout)) {}

absl::StatusOr<std::shared_ptr<SharedRegion>> Client::MakeRegion(
    std::size_t bytes, const CallOptions& options) const {
  const absl::StatusOr<v1::GetServerInfoResponse> info = GetServerInfo(options);
  if (!info.ok()) return info.status();
  if (!info->has_shared_memory()) return SharedRegion::CreatePrivate(bytes);
  const v1::SharedMemoryInfo& shared = info->shared_memory();
  if (shared.max_bytes() > 0 &&
      bytes > static_cast<std::uint64_t>(shared.max_bytes())) {
    return WrongArgument(
        "bytes", absl::StrCat("is ", bytes, "; the server maps at most ",
                              shared.max_bytes()));
  }
  absl::StatusOr<std::shared_ptr<SharedRegion>> region = SharedRegion::Create(
      shared.directory(), absl::StrCat(shared.prefix(), RandomId()), bytes);
  if (region.ok()) Share(*region);
  return region;
}

void Client::Share(const std::shared_ptr<SharedRegion>& region) const {
  calls_->regions().Add(region);
}

absl::StatusOr<v1::GetServerInfoResponse> Client::GetServerInfo(
    const CallOptions& options) const {
  return calls_->Answer<v1::GetServerInfoResponse>(
      "GetServerInfo", v1::GetServerInfoRequest(), options);
}

absl::StatusOr<v1::ResolveRopeResponse> Client::ResolveRope(
    const v1::ResolveRopeRequest& request, const CallOptions& options) const {
  return calls_->Answer<v1::ResolveRopeResponse>("ResolveRope", request,
                                                 options);
}

absl::StatusOr<v1::AnalyzeRopeResponse> Client::AnalyzeRope(
    const v1::AnalyzeRopeRequest& request, const CallOptions& options) const {
  return calls_->Answer<v1::AnalyzeRopeResponse>("AnalyzeRope", request,
                                                 options);
}

absl::StatusOr<v1::DiagnoseRopeResponse> Client::DiagnoseRope(
    const v1::DiagnoseRopeRequest& request, const CallOptions& options) const {
  return calls_->Answer<v1::DiagnoseRopeResponse>("DiagnoseRope", request,
                                                  options);
}

absl::StatusOr<v1::BuildPositionsResponse> Client::BuildPositions(
    const v1::BuildPositionsRequest& request,
    const CallOptions& options) const {
  return calls_->Answer<v1::BuildPositionsResponse>("BuildPositions", request,
                                                    options);
}

}  // namespace posenc
