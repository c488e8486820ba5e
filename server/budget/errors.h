// The errors of calls that ask for more than there is.

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

// RESOURCE_EXHAUSTED, kMessageTooLarge, if a message of so many bytes is over
// the limit. Not to be retried: the same message is never accepted.
absl::Status CheckRequest(std::size_t bytes, std::int64_t limit);
absl::Status CheckResponse(absl::uint128 bytes, std::int64_t limit);

// The same error about `what` ("tiles of [8, 64, 64] float32, messages").
// `field` is the request's field that makes it so large; empty names none.
// `remedy` ends the message.
absl::Status CheckSize(absl::string_view field, absl::string_view what,
                       absl::uint128 bytes, std::int64_t limit,
                       absl::string_view remedy);

// RESOURCE_EXHAUSTED, kOverloaded: the budget has no bytes left for the call.
// `fact` says which; the message ends with "; retry later".
absl::Status OverBudget(absl::string_view fact);

// RESOURCE_EXHAUSTED, kMessageTooLarge: the response is larger than the budget
// leaves beside its own request, however long the client waits.
absl::Status NeverFits(std::int64_t bytes);

// RESOURCE_EXHAUSTED, kOverloaded: the call could not end in time.
absl::Status TooManyCalls();

// RESOURCE_EXHAUSTED, kOverloaded: an allocation failed.
absl::Status OutOfMemory();

// What the function gives, or OutOfMemory(): a failed allocation ends the call,
// not the server.
template <typename Function>
absl::Status OrOutOfMemory(const Function& function) {
  try {
    return function();
  } catch (const std::bad_alloc&) {
    return OutOfMemory();
  } catch (const std::length_error&) {  // more than a container can hold
    return OutOfMemory();
  }
}

// `value` in decimal.
std::string ToString(absl::uint128 value);

}  // namespace posenc::server
