#include "server/rpc/call_headers.h"

#include "absl/hash/hash.h"
#include "grpc/support/time.h"

namespace posenc::server {

CallHeaders::CallHeaders(const grpc::GenericServerContext* context)
    : context_(context),
      peer_(context->peer()),
      peer_id_(absl::HashOf(peer_)) {}

std::optional<absl::string_view> CallHeaders::Find(
    absl::string_view name) const {
  const auto found =
      metadata().find(grpc::string_ref(name.data(), name.size()));
  if (found == metadata().end()) return std::nullopt;
  return View(found->second);
}

bool CallHeaders::has_deadline() const {
  const gpr_timespec deadline = context_->raw_deadline();
  return gpr_time_cmp(deadline, gpr_inf_future(deadline.clock_type)) != 0;
}

absl::Duration CallHeaders::TimeLeft() const {
  if (!has_deadline()) return absl::InfiniteDuration();
  const gpr_timespec deadline = context_->raw_deadline();
  const gpr_timespec left =
      gpr_time_sub(deadline, gpr_now(deadline.clock_type));
  return absl::Seconds(left.tv_sec) + absl::Nanoseconds(left.tv_nsec);
}

}  // namespace posenc::server
