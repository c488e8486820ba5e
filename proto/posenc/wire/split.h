// Takes tensor bytes out of a serialized message without copying them.
//
// A bulk message is a few small fields and one or two tensors, whose bytes are
// nearly all of it. The small fields, tensors' dtype and shape among them, are
// copied into a string for the generated parser; the tensors' bytes stay in the
// slices in which gRPC received them:
//
//   slices   | rope, positions, q: dtype, shape, data....|....|....... |
//               \________________________/       \__________________/
//   rest      rope, positions, q: dtype, shape     BorrowedBytes of q
//
// frame.h is the other direction, and has the bytes of a tensor in detail.
//
// Two envelopes are split: the contract's, where a tensor is a message around
// its bytes (SplitTensors), and KServe's, where all tensors' bytes are values
// of one repeated field (SplitValues).

#pragma once

#include <array>
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"

namespace posenc::wire {

// Bytes of one tensor, in order, wherever they lie in the message.
struct BorrowedBytes {
  // None of them is empty.
  absl::InlinedVector<absl::Span<const char>, 2> pieces;
  std::size_t size = 0;
};

struct SplitMessage {
  // The message without those bytes: every other record as it came and in its
  // order, so that the generated parser merges and overrides fields as it would
  // have.
  std::string rest;
  // One for each of the tensor fields that were asked for.
  absl::InlinedVector<BorrowedBytes, 2> tensors;
};

// Splits a message that lies in `slices`, which `out` then points into.
// `tensor_fields` are numbers below 16 of fields of type posenc.v1.Tensor. If
// the `data` of a tensor comes more than once, the last one counts, as protobuf
// has it.
//
// False if the message is malformed, or framed in a way that is legal but that
// nobody writes (groups, padded varints). The generated parser must then decide
// about the whole message; `out` is of no use. False also if `rest` would have
// more than `most_rest` bytes, no more than which are copied.
bool SplitTensors(
    absl::Span<const absl::Span<const char>> slices,
    absl::Span<const int> tensor_fields, SplitMessage* out,
    std::size_t most_rest = std::numeric_limits<std::size_t>::max());

struct SplitEnvelope {
  std::string rest;                   // as above
  std::vector<BorrowedBytes> values;  // in the order of the message
  // Records of the message by the number of their field, the values' too.
  std::array<std::size_t, 16> records = {};
};

// Splits a message whose field `field`, a number below 16, is repeated bytes:
// the values stay where they are, and `rest` is everything else. Of values
// beyond the first `most`, only the number is told. False as above.
bool SplitValues(absl::Span<const absl::Span<const char>> slices, int field,
                 std::size_t most, SplitEnvelope* out);

}  // namespace posenc::wire
