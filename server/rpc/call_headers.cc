#include "server/rpc/call_headers.h"

#include "grpc/support/time.h"

namespace posenc::server {

CallHeaders::CallHeaders() {
  grpc_call_details_init(&details_);
  grpc_metadata_array_init(&metadata_);
}

CallHeaders::~CallHeaders() {
  grpc_call_details_destroy(&details_);
  grpc_metadata_array_destroy(&metadata_);
}

std::optional<absl::string_view> CallHeaders::Find(
    absl::string_view name) const {
  for (const grpc_metadata& header : metadata()) {
    if (View(header.key) == name) return View(header.value);
  }
  return std::nullopt;
}

bool CallHeaders::has_deadline() const {
  const gpr_timespec never = gpr_inf_future(details_.deadline.clock_type);
  return gpr_time_cmp(details_.deadline, never) != 0;
}

absl::Duration CallHeaders::TimeLeft() const {
  if (!has_deadline()) return absl::InfiniteDuration();
  const gpr_timespec left =
      gpr_time_sub(details_.deadline, gpr_now(details_.deadline.clock_type));
  return absl::Seconds(left.tv_sec) + absl::Nanoseconds(left.tv_nsec);
}

}  // namespace posenc::server
