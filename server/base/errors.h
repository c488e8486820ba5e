// Errors of calls that need more memory than the server has for them.

#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <stdexcept>
#include <string>

#include "absl/numeric/int128.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace posenc::server {

// Returns RESOURCE_EXHAUSTED, kMessageTooLarge, if a message of `bytes` exceeds
// the limit. A retry is useless, because the server never accepts the message.
absl::Status CheckRequest(std::size_t bytes, std::int64_t limit);
absl::Status CheckResponse(absl::uint128 bytes, std::int64_t limit);

// Returns RESOURCE_EXHAUSTED, kMessageTooLarge, if `bytes` exceeds `limit`. The
// message is "<what> of <bytes> bytes, over the limit of <limit>; <remedy>".
// `field` is the request's field that causes the size; it may be empty.
absl::Status CheckSize(absl::string_view field, absl::string_view what,
                       absl::uint128 bytes, std::int64_t limit,
                       absl::string_view remedy);

// Returns RESOURCE_EXHAUSTED, kOverloaded, for a call for which the budget has
// no bytes left. The message is `fact`, followed by "; retry later".
absl::Status OverBudget(absl::string_view fact);

// Returns RESOURCE_EXHAUSTED, kMessageTooLarge, for a response that together
// with its request exceeds the whole budget.
absl::Status NeverFits(std::int64_t bytes);

// Returns RESOURCE_EXHAUSTED, kOverloaded, if a call could not end in time.
absl::Status TooManyCalls();

// Returns RESOURCE_EXHAUSTED, kOverloaded, for a failed allocation.
absl::Status OutOfMemory();

// Returns the function's result, or OutOfMemory() if an allocation failed. So a
// failed allocation ends only the call, not the server. Any other exception is
// a fault of the server, and ends the call as INTERNAL.
template <typename Function>
absl::Status OrOutOfMemory(const Function& function) {
  try {
    return function();
  } catch (const std::bad_alloc&) {
    return OutOfMemory();
  } catch (const std::length_error&) {  // larger than a container can be
    return OutOfMemory();
  } catch (const std::exception& fault) {
    return absl::InternalError(fault.what());
  }
}

// Returns `status` with `field` as the field in its error details. Returns a
// status without error details unchanged.
absl::Status WithField(const absl::Status& status, absl::string_view field);

// Returns `value` in decimal.
std::string ToString(absl::uint128 value);

}  // namespace posenc::server
