// Takes tensor bytes out of a serialized message without copying them.
//
// A bulk request is a few small fields and one or two tensors whose bytes are
// nearly all of it. The small fields, tensors' dtype and shape among them, are
// parsed by the generated code; the bytes stay where gRPC received them.

#pragma once

#include <cstddef>
#include <string>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"

namespace posenc::wire {

// Bytes of one tensor, in order, wherever the message had them.
struct BorrowedBytes {
  // None of them empty.
  absl::InlinedVector<absl::Span<const char>, 2> pieces;
  std::size_t size = 0;
};

struct SplitMessage {
  // The message without those bytes: every other record as it came and in its
  // order, so that the generated parser merges and overrides as it would have.
  std::string rest;
  // One for each of the tensor fields that were asked for.
  absl::InlinedVector<BorrowedBytes, 2> tensors;
};

// Splits a message that lies in `slices`. `tensor_fields` are numbers below 16
// of fields of type posenc.v1.Tensor. Where a tensor's `data` comes more than
// once, the last one counts, as protobuf has it.
//
// False where the message is malformed or framed in a way that is legal but
// that nobody writes (groups, padded varints): the generated parser then
// decides. `out` points into `slices`.
bool SplitTensors(absl::Span<const absl::Span<const char>> slices,
                  absl::Span<const int> tensor_fields, SplitMessage* out);

}  // namespace posenc::wire
