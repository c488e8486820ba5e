// A validated table that can compute any of its rows. BuildTable sends all rows
// in one message. BuildTableStream sends a few MiB of rows in each message.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/numeric/int128.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/absolute/rows.h"
#include "core/positions/positions.h"
#include "core/rope/prepared_rope.h"
#include "core/rope/table.h"
#include "posenc/v1/service.pb.h"
#include "server/call/computation.h"
#include "server/convert/absolute.h"
#include "server/convert/positions.h"
#include "server/methods/methods.h"

namespace posenc::server {

// Borrows the request.
class CheckedTable : public std::enable_shared_from_this<CheckedTable> {
 public:
  // Checks everything now, including all positions, because rows are computed
  // later. `rows_in_message` is the number of rows in one message; 0 means all
  // rows. `max_response_bytes` is the limit for the size of this message.
  static absl::StatusOr<std::shared_ptr<const CheckedTable>> Check(
      const v1::BuildTableRequest& request, const MethodContext& context,
      std::int64_t max_response_bytes, std::int64_t rows_in_message);

  std::int64_t rows() const { return rows_; }
  // Returns the shape of a tensor that has all rows.
  core::Shape WholeShape() const { return Outputs(rows_)[0].shape; }
  bool rotary() const { return rope_ != nullptr; }
  // Requires rotary().
  double attention_factor() const { return rope_->rope.attention_factor; }

  // Returns the size on the wire of the tensors with n rows.
  absl::uint128 FieldBytes(std::int64_t n) const;

  // Returns an answer that computes rows [first, first + n).
  TensorAnswer Answer(std::int64_t first, std::int64_t n) const;

 private:
  absl::Status CheckRope(const v1::BuildTableRequest& request,
                         const MethodContext& context);
  absl::Status CheckAbsolute(const v1::BuildTableRequest& request,
                             OwnedElements* owned);
  absl::Status CheckPositions(const core::ReserveFunction& reserve);
  // Checks whether the encoding has rows for these positions. `first` is the
  // row of the first position.
  absl::Status CheckReach(const core::TokenPositions& positions,
                          std::int64_t first) const;
  OutputTensors Outputs(std::int64_t n) const;
  core::TokenPositions PositionsOf(std::int64_t first, std::int64_t n) const;
  absl::Status Fill(std::int64_t first, std::int64_t n,
                    absl::Span<const core::TensorView> out) const;

  // Exactly one of rope_ and absolute_ is set.
  std::shared_ptr<const core::PreparedRope> rope_;
  std::optional<core::AbsoluteEncoding> absolute_;
  // Computes the rows of absolute_; unset for a table without rows.
  std::optional<core::AbsoluteTable> absolute_rows_;
  bool has_own_rows_ = false;  // absolute_ is a grid, which takes no positions

  std::int64_t dim_ = 0;  // channels of an absolute encoding
  core::Dtype dtype_ = core::Dtype::kFloat32;
  core::TableLayout layout_ = core::TableLayout::kHalf;
  core::TensorRole role_ = core::TensorRole::kQuery;
  int axes_ = 1;
  bool needs_ids_ = false;
  // True if rows are the first extent, so that tiles of rows are contiguous;
  // false if frequencies differ by head.
  bool rows_first_ = true;
  std::int64_t rows_ = 0;
  core::Positions positions_;
  // Positions of the rows. If expanded_ is unset, they are start_, start_ + 1,
  // ...
  std::optional<core::TokenPositions> expanded_;
  std::int64_t start_ = 0;
};

}  // namespace posenc::server
