// The positions of a batch's tokens: one per token and axis.
//
// The kinds `start`, `starts` and `packed` (posenc.v1.Positions) give a token
// the same position on every axis. `ids` may give a token different positions
// on different axes. If there are several axes, the first extent of `ids` is
// the number of axes. Positions are at most 2^31 in magnitude. Fractional ids
// are not rounded.

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/base/tensor.h"

namespace posenc::core {

// Greatest magnitude of a position.
inline constexpr std::int64_t kMaxPosition = std::int64_t{1} << 31;

struct StartPosition {
  std::int64_t start = 0;
};
struct SequenceStarts {
  std::vector<std::int64_t> values;  // [batch]
};
struct PositionIds {
  ConstTensorView ids;  // int32, int64, float32, float64
};
struct PackedSequences {
  std::vector<std::int64_t> cu_seqlens;
  std::vector<std::int64_t> starts;  // [sequences], or empty: all 0
};
// monostate means that no positions are given.
using Positions = std::variant<std::monostate, StartPosition, SequenceStarts,
                               PositionIds, PackedSequences>;

// Returns the name of the field of posenc.v1.Positions that is set: "start",
// "starts.values", "ids" or "packed"; "" for monostate.
absl::string_view FieldOf(const Positions& positions);

// Returns OUT_OF_RANGE for the position with this index.
absl::Status PositionOutOfRange(absl::string_view field, absl::string_view fact,
                                std::int64_t index);

// Checks that the positions start .. start + count - 1 are within +-2^31. The
// index in an error is first_index for the first position, and last_index for
// the last position.
absl::Status CheckRun(absl::string_view field, std::int64_t start,
                      std::int64_t count, std::int64_t first_index,
                      std::int64_t last_index);

// A function that reserves `bytes` bytes of memory before they are allocated.
// The caller returns the function's error, which names no field.
using ReserveFunction = std::function<absl::Status(std::int64_t bytes)>;

struct TokenExtents {
  std::int64_t batch = 1;   // 1 for a packed batch
  std::int64_t tokens = 0;  // per sequence; all tokens of a packed batch
  bool packed = false;      // layout THD
  ReserveFunction reserve;  // for the expanded positions; may be empty
};

// Positions in float64, which represents positions of every kind exactly. If
// shared(), all sequences have the same positions.
class TokenPositions {
 public:
  // `values` has the shape [axes, batch or 1, tokens], row-major.
  TokenPositions(std::vector<double> values, int axes, std::int64_t batch,
                 std::int64_t tokens)
      : values_(std::move(values)),
        axes_(axes),
        batch_(batch),
        tokens_(tokens) {}

  int axes() const { return axes_; }
  bool shared() const { return batch_ == 1; }
  std::int64_t tokens() const { return tokens_; }
  // Position of token t of sequence b on axis a. b is ignored if shared().
  double at(int a, std::int64_t b, std::int64_t t) const {
    return values_[(a * batch_ + (batch_ == 1 ? 0 : b)) * tokens_ + t];
  }
  const std::vector<double>& values() const { return values_; }

 private:
  std::vector<double> values_;
  int axes_;
  std::int64_t batch_;
  std::int64_t tokens_;
};

// Returns the length of the first run p, p + 1, p + 2, ... Expects at least one
// position.
std::int64_t RunLength(absl::Span<const double> positions);

// Expands positions of any kind. `axes` is the encoding's number of position
// axes. If `needs_ids`, every axis needs its own positions, so only `ids` are
// valid. Errors name fields relative to Positions: "ids.shape",
// "packed.cu_seqlens[3]", "starts.values". If there are tokens but no
// positions, the error is FieldRequired with an empty field, which Prefixed
// turns into the caller's "positions". Returns FieldInvalid for `starts` with a
// THD tensor, for `packed` with another layout, and for ids of a dtype that
// PositionIds does not name. Returns kShapeMismatch for ids or starts of the
// wrong shape. Returns kPositionOutOfRange (OUT_OF_RANGE) for a position that
// is NaN, infinite or beyond 2^31; the metadata has the position's index.
absl::StatusOr<TokenPositions> ExpandPositions(const Positions& positions,
                                               const TokenExtents& extents,
                                               int axes, bool needs_ids);

// Returns OK if an encoding has rows for these positions. The index in an error
// is `first` plus the position's index in `positions`.
using CheckReachFunction = absl::FunctionRef<absl::Status(
    const TokenPositions& positions, std::int64_t first)>;

// Checks the positions start, start + 1, ... of `rows` > 0 rows. A row has the
// same position on all axes. The positions are not stored, because there may be
// more rows than fit in memory. The valid positions of an encoding form one
// interval, so if the first and the last row are valid, all rows are valid. If
// the last row is not valid, bisection finds the first invalid row. An error of
// ExpandPositions is returned with the field "positions.start" and the row as
// index, and an error of `reach` unchanged.
absl::Status CheckConsecutive(std::int64_t start, std::int64_t rows, int axes,
                              CheckReachFunction reach);

}  // namespace posenc::core
