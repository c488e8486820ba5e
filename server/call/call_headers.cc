#include "server/call/call_headers.h"

#include "absl/hash/hash.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "grpc/support/time.h"
#include "posenc/wire/metadata.h"
#include "server/base/errors.h"

namespace posenc::server {

CallHeaders::CallHeaders(const grpc::GenericServerContext* context)
    : context_(context),
      peer_(context->peer()),
      peer_kind_(PeerKindOf(peer_)),
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

absl::StatusOr<std::optional<std::int64_t>> AnnouncedBytes(
    const CallHeaders& headers, std::int64_t limit) {
  const std::optional<absl::string_view> text =
      headers.Find(wire::kMessageBytes);
  if (!text) return std::nullopt;
  if (text->empty() ||
      text->find_first_not_of("0123456789") != absl::string_view::npos) {
    return core::FieldInvalid(
        wire::kMessageBytes, "'", absl::CHexEscape(*text),
        "'; must be a number, the bytes of the largest message");
  }
  std::uint64_t bytes = 0;
  if (!absl::SimpleAtoi(*text, &bytes)) bytes = ~std::uint64_t{0};
  RETURN_IF_ERROR(CheckRequest(bytes, limit));
  return static_cast<std::int64_t>(bytes);
}

}  // namespace posenc::server
