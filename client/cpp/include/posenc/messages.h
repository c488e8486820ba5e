// What the calls of posenc::Client take and give. Settings that have no type of
// their own here are the generated messages of posenc.v1.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "posenc/v1/service.pb.h"

namespace posenc {

using Dtype = v1::Dtype;
using Layout = v1::Layout;

// A tensor of somebody else: row-major, little-endian bytes.
struct TensorView {
  v1::Dtype dtype = v1::DTYPE_UNSPECIFIED;
  std::vector<std::int64_t> shape;
  absl::Span<const char> bytes;
};

// Where a call puts a tensor's bytes: exactly as many as come. It may be the
// input's own memory; after an error nobody knows what it holds. Unset: memory
// of the result's own.
using Output = absl::optional<absl::Span<char>>;

// A tensor that a call gave: a view of what `owner` keeps alive, or of the
// output that the call was given.
struct TensorResult {
  TensorView tensor;
  std::shared_ptr<const void> owner;
};

struct ApplyRopeArgs {
  v1::RopeSource rope;
  v1::Positions positions;
  v1::Layout layout = v1::LAYOUT_UNSPECIFIED;
  v1::Direction direction = v1::DIRECTION_UNSPECIFIED;
  absl::optional<v1::QueryScale> query_scale;
  absl::optional<TensorView> q;
  absl::optional<TensorView> k;
  Output q_out;
  Output k_out;
};

// Views stay valid as long as the result (or a copy of `owner`) lives, and
// those of outputs as long as these.
struct ApplyRopeResult {
  absl::optional<TensorView> q;
  absl::optional<TensorView> k;
  std::shared_ptr<const void> owner;
};

// What all messages of a stream share.
struct ApplyRopeStreamSettings {
  v1::RopeSource rope;
  v1::Layout layout = v1::LAYOUT_UNSPECIFIED;
  v1::Direction direction = v1::DIRECTION_UNSPECIFIED;
  absl::optional<v1::QueryScale> query_scale;

  // Bound of a message with its positions, so that the server need not reckon
  // with its limit. 0: not told.
  std::int64_t max_message_bytes = 0;
};

// One message of a stream.
struct ApplyRopeChunk {
  v1::Positions positions;
  absl::optional<TensorView> q;
  absl::optional<TensorView> k;
  Output q_out;
  Output k_out;

  // Of q's and k's bytes, which must stay until it is dropped; where it is
  // unset, until the call returns.
  std::shared_ptr<const void> owner;
};

struct BuildTableResult {
  double amplitude = 1;
  absl::optional<TensorView> cos;
  absl::optional<TensorView> sin;
  absl::optional<TensorView> table;
  std::shared_ptr<const void> owner;
};

// Rows of a table, as they come: those from `first_row` on.
struct TableChunk {
  std::int64_t first_row = 0;
  BuildTableResult rows;
};

// Part of a bias, as it comes: [heads, queries, keys], the first of them at
// these positions. The view ends with the callback that got it.
struct BiasTile {
  std::int64_t query_start = 0;
  std::int64_t key_start = 0;
  TensorView tensor;
};

struct RepositionArgs {
  v1::RopeSource old_rope;
  absl::optional<v1::RopeSource> new_rope;  // unset: the same
  v1::Movement movement;
  v1::Layout layout = v1::LAYOUT_UNSPECIFIED;
  absl::optional<TensorView> k;
  Output out;
};

// As ApplyRopeStreamSettings and ApplyRopeChunk.
struct RepositionStreamSettings {
  v1::RopeSource old_rope;
  absl::optional<v1::RopeSource> new_rope;  // unset: the same
  v1::Layout layout = v1::LAYOUT_UNSPECIFIED;
  std::int64_t max_message_bytes = 0;
};
struct RepositionChunk {
  v1::Movement movement;
  absl::optional<TensorView> k;
  Output out;
  std::shared_ptr<const void> owner;
};

struct AddEncodingArgs {
  v1::AbsoluteEncoding encoding;
  v1::Positions positions;
  v1::Combination combination = v1::COMBINATION_UNSPECIFIED;
  absl::optional<double> x_scale;
  absl::optional<TensorView> x;
  Output out;
};

struct ScoreRelativeArgs {
  v1::RelativeScore score;
  std::int64_t query_start = 0;
  std::int64_t key_start = 0;
  v1::Dtype dtype = v1::DTYPE_UNSPECIFIED;
  absl::optional<TensorView> q;
  absl::optional<TensorView> k;
  Output out;
};

struct ConvertPairingArgs {
  v1::Pairing old_pairing = v1::PAIRING_UNSPECIFIED;
  v1::Pairing new_pairing = v1::PAIRING_UNSPECIFIED;
  std::int32_t heads = 0;
  std::int32_t rotary_dim = 0;  // 0: the head
  v1::RotarySlice slice = v1::ROTARY_SLICE_UNSPECIFIED;
  absl::optional<TensorView> weight;
  Output out;
};

// Shorthands for the common kinds of v1::Positions and v1::RopeSource.
v1::Positions StartAt(std::int64_t start);
v1::RopeSource FromPreset(absl::string_view name);
v1::RopeSource FromConfigJson(absl::string_view config_json);

// A copy, for tensors that belong to a message: position ids, trained tables.
v1::Tensor ToTensor(const TensorView& view);

// "ERROR_REASON_FIELD_INVALID" where the server gave one; else empty.
std::string ErrorReason(const absl::Status& status);

// One of its facts: ErrorFact(status, "messageIndex") is which message of a
// stream, from 0. Empty where the server gave none.
std::string ErrorFact(const absl::Status& status, absl::string_view name);

}  // namespace posenc
