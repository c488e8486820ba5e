// BuildTable, its stream, and AddEncoding.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/positions.h"
#include "core/rope/table.h"
#include "posenc/v1/service.pb.h"
#include "server/calls/call.h"
#include "server/convert/absolute.h"
#include "server/convert/positions.h"

namespace posenc::server {

// A checked table, of which any rows can be built.
class TablePlan : public std::enable_shared_from_this<TablePlan> {
 public:
  // limit: bytes of a response; rows_in_message: at most, 0 for all rows.
  static absl::StatusOr<std::shared_ptr<const TablePlan>> Read(
      const v1::BuildTableRequest& request, std::int64_t limit,
      std::int64_t rows_in_message);

  std::int64_t rows() const { return rows_; }
  bool rotary() const { return rope_.has_value(); }
  double amplitude() const { return rope_->attention_factor; }

  // The tensors of n rows.
  OutputTensors Outputs(std::int64_t n) const;
  // Builds rows [first, first + n).
  TensorCall Call(std::int64_t first, std::int64_t n) const;

 private:
  absl::Status ReadRope(const v1::BuildTableRequest& request);
  absl::Status ReadAbsolute(const v1::BuildTableRequest& request);
  absl::Status ReadRowPositions();
  // Of the rows from `first` on.
  absl::Status CheckReach(const core::TokenPositions& positions,
                          std::int64_t first) const;
  absl::Status CheckRow(std::int64_t start, std::int64_t row) const;
  core::TokenPositions PositionsOf(std::int64_t first, std::int64_t n) const;
  absl::Status Fill(std::int64_t first, std::int64_t n,
                    absl::Span<const core::TensorView> out) const;

  std::optional<core::ResolvedRope> rope_;
  std::optional<InputAbsolute> absolute_;
  std::int64_t dim_ = 0;  // of an absolute encoding
  core::Dtype dtype_ = core::Dtype::kFloat32;
  core::TableLayout layout_ = core::TableLayout::kHalf;
  core::TensorRole role_ = core::TensorRole::kQuery;
  int axes_ = 1;
  bool needs_ids_ = false;
  bool divisible_ = true;  // rows are the first extent
  std::int64_t rows_ = 0;
  InputPositions positions_;
  std::int64_t start_ = 0;  // where positions follow one another
  std::optional<core::TokenPositions> expanded_;
};

// Sets the response's amplitude.
absl::StatusOr<TensorCall> PrepareBuildTable(
    const v1::BuildTableRequest& request, std::int64_t limit,
    v1::BuildTableResponse* response);

absl::StatusOr<TensorCall> PrepareAddEncoding(
    const v1::AddEncodingRequest& request, const TakenTensors& taken);

}  // namespace posenc::server
