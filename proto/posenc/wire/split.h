// Takes tensor bytes out of a serialized message without copying them.
//
// A bulk message has a few small fields, and one or two tensors with nearly all
// of its bytes. The small fields, including each tensor's dtype and shape, are
// copied into a string for the generated parser. The tensors' bytes stay in the
// slices in which gRPC received them:
//
//   slices   | rope, positions, q: dtype, shape, data....|....|....... |
//               \________________________/       \__________________/
//   rest      rope, positions, q: dtype, shape     BorrowedBytes of q
//
// frame.h does the reverse, and shows the bytes of a tensor in detail.
//
// SplitTensors splits the contract's messages, in which each tensor is a
// message that contains its bytes. SplitValues splits KServe's messages, in
// which the bytes of all tensors are values of one repeated field.

#pragma once

#include <array>
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"

namespace posenc::wire {

// Bytes of one tensor, in order, as pieces of the message.
struct BorrowedBytes {
  // No piece is empty.
  absl::InlinedVector<absl::Span<const char>, 2> pieces;
  std::size_t size = 0;
};

struct SplitMessage {
  // The message without the bytes of `tensors`. All other records are unchanged
  // and in order, so that the generated parser merges and overrides fields as
  // usual.
  std::string rest;
  // One entry for each of `tensor_fields`.
  absl::InlinedVector<BorrowedBytes, 2> tensors;
};

// A value in `tensor_fields` that stands for the message's own field `data`,
// which has the same field number as Tensor.data. With this value, the message
// itself is the tensor.
inline constexpr int kOwnData = 0;

// Splits the message in `slices`, and makes `out` point into these slices.
// `tensor_fields` are field numbers, below 16, of fields of type
// posenc.v1.Tensor, or kOwnData alone. If the `data` of a tensor occurs more
// than once, the last one counts, as in protobuf.
//
// Returns false if the message is malformed, or has valid framing that no
// writer uses (groups, padded varints). Then `out` is not valid, and the
// generated parser must decide about the whole message. Also returns false
// instead of copying more than `most_rest` bytes to `rest`.
bool SplitTensors(
    absl::Span<const absl::Span<const char>> slices,
    absl::Span<const int> tensor_fields, SplitMessage* out,
    std::size_t most_rest = std::numeric_limits<std::size_t>::max());

struct SplitEnvelope {
  std::string rest;                   // as in SplitMessage
  std::vector<BorrowedBytes> values;  // in the order of the message
  // records[n] is the number of records that have the field number n, including
  // values.
  std::array<std::size_t, 16> records = {};
};

// Splits a message that has a repeated bytes field with the number `field`,
// below 16. The values of this field stay in `slices`, and `rest` has all other
// records. Values after the first `most` are only counted. Like SplitTensors(),
// returns false if the message is malformed or has framing that no writer uses.
bool SplitValues(absl::Span<const absl::Span<const char>> slices, int field,
                 std::size_t most, SplitEnvelope* out);

}  // namespace posenc::wire
