// What the RPCs have in common: limits, and calls that answer with tensors.
//
// Such a call goes in three steps: the request is checked and says which
// tensors the response has; these are given room; they are computed into it.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/numeric/int128.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/tensor.h"
#include "google/protobuf/message.h"
#include "server/convert/tensor.h"

namespace posenc::server {

// A few MiB: enough to hide a round trip, little enough to hold many of.
inline constexpr std::int64_t kStreamChunkBytes = std::int64_t{4} << 20;

// Not OK once the caller no longer waits. Asked between pieces of work that
// take about a millisecond.
using StopCheck = absl::FunctionRef<absl::Status()>;

// A tensor that a response will have.
struct OutputTensor {
  int field;  // its number there
  core::Dtype dtype;
  core::Shape shape;
  TensorForm form = TensorForm::kData;
};

// A checked call. Borrows the request.
struct TensorCall {
  std::vector<OutputTensor> outputs;
  // Writes the outputs, given room for each in their order. What only the
  // numbers tell (a position out of range) is found here.
  absl::AnyInvocable<absl::Status(absl::Span<const core::TensorView>,
                                  StopCheck)>
      compute;
};

// RESOURCE_EXHAUSTED, kMessageTooLarge. field: what to make smaller, or empty.
absl::Status CheckRequest(std::size_t bytes, std::int64_t limit);
absl::Status CheckResponse(absl::uint128 bytes, std::int64_t limit);
absl::Status CheckSize(absl::string_view field, absl::string_view what,
                       absl::uint128 bytes, std::int64_t limit,
                       absl::string_view remedy);

// Fills `response`, whose other fields are set already.
absl::Status AnswerWithTensors(absl::StatusOr<TensorCall> call,
                               std::int64_t limit, StopCheck stop,
                               google::protobuf::Message* response);

}  // namespace posenc::server
