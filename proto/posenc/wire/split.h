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

#pragma once

#include <cstddef>
#include <string>

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
// about the whole message; `out` is of no use.
bool SplitTensors(absl::Span<const absl::Span<const char>> slices,
                  absl::Span<const int> tensor_fields, SplitMessage* out);

}  // namespace posenc::wire
