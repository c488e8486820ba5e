// What the RPCs have in common: limits, and calls that answer with tensors.
//
// Such a call goes in three steps: the request is checked and says which
// tensors the response has; these are given room; they are computed into it.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/numeric/int128.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/runtime/row_map.h"
#include "core/tensor.h"
#include "posenc/wire/split.h"
#include "server/convert/tensor.h"

namespace posenc::server {

// A few MiB: enough to hide a round trip, little enough to hold many of.
inline constexpr std::int64_t kStreamChunkBytes = std::int64_t{4} << 20;

// Not OK once the caller no longer waits. Asked between pieces of work that
// take about a millisecond.
using StopCheck = absl::FunctionRef<absl::Status()>;

// Tensors whose bytes were taken out of a request.
class TakenTensors {
 public:
  TakenTensors() = default;  // none: the message has them
  TakenTensors(absl::Span<const int> fields,
               absl::Span<const wire::BorrowedBytes> bytes)
      : fields_(fields), bytes_(bytes) {}

  // Null for a field that was left as it is.
  const wire::BorrowedBytes* Find(int field) const;

 private:
  absl::Span<const int> fields_;
  absl::Span<const wire::BorrowedBytes> bytes_;
};

// A tensor that a response will have.
struct OutputTensor {
  int field;  // its number there
  core::Dtype dtype;
  core::Shape shape;
  TensorForm form = TensorForm::kData;
  // What makes its rows, from the rows of `input`. Null: TensorCall::compute
  // does.
  std::unique_ptr<const core::RowMap> map;
  core::Pieces input;
  // The message field that holds the tensor's; 0: the response itself does.
  int within = 0;
};

using OutputTensors = absl::InlinedVector<OutputTensor, 2>;

// A checked call. Borrows the request.
struct TensorCall {
  OutputTensors outputs;
  // Computes part `part` of [0, parts) of the outputs without a map, given room
  // for each output in their order. Parts may run at once, on several threads.
  std::int64_t parts = 0;
  std::function<absl::Status(std::int64_t part,
                             absl::Span<const core::TensorView> out,
                             StopCheck stop)>
      compute;
  // What the maps and compute borrow, besides the request.
  std::shared_ptr<const void> keep;
};

// RESOURCE_EXHAUSTED, kMessageTooLarge. field: what to make smaller, or empty.
absl::Status CheckRequest(std::size_t bytes, std::int64_t limit);
absl::Status CheckResponse(absl::uint128 bytes, std::int64_t limit);
absl::Status CheckSize(absl::string_view field, absl::string_view what,
                       absl::uint128 bytes, std::int64_t limit,
                       absl::string_view remedy);

// RESOURCE_EXHAUSTED, kOverloaded: an allocation failed.
absl::Status OutOfMemory();

}  // namespace posenc::server
