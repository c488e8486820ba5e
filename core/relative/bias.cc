#include "core/relative/bias.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/positions/positions.h"
#include "core/relative/check.h"
#include "core/relative/rule.h"

namespace posenc::core {
namespace {

constexpr double kMasked = -std::numeric_limits<double>::infinity();

const char* FieldOf(const Bias& bias) {
  constexpr const char* kFields[] = {"bias",
                                     "bias.alibi",
                                     "bias.t5",
                                     "bias.kerple",
                                     "bias.fire",
                                     "bias.sandwich",
                                     "bias.relative_index",
                                     "bias.untied_positions"};
  static_assert(std::size(kFields) == std::variant_size_v<Bias>);
  return kFields[bias.index()];
}

absl::Status ValidateRange(const BiasRange& range) {
  Faults faults;
  const bool queries =
      faults.Note(CheckCount("query_length", range.query_length));
  const bool keys = faults.Note(CheckCount("key_length", range.key_length));
  if (queries) {
    faults.Note(CheckRun("query_start", range.query_start, range.query_length,
                         0, range.query_length - 1));
  }
  if (keys) {
    faults.Note(CheckRun("key_start", range.key_start, range.key_length, 0,
                         range.key_length - 1));
  }
  return faults.status();
}

absl::Status ValidateIndices(const BiasArgs& args) {
  if (args.dtype.value_or(Dtype::kInt32) != Dtype::kInt32) {
    return FieldInvalid("dtype",
                        absl::StrCat(DtypeName(*args.dtype),
                                     "; indices are int32, leave it unset"));
  }
  if (args.causal) {
    return FieldInvalid("causal",
                        "set; indices have no -infinity, mask what they "
                        "look up");
  }
  return absl::OkStatus();
}

absl::Status CheckInside(absl::string_view start_field,
                         absl::string_view length_field, std::int64_t start,
                         std::int64_t length, std::int64_t count,
                         absl::string_view what) {
  const std::int64_t last = start + length - 1;
  if (start >= 0 && last < count) return absl::OkStatus();
  const bool first = start < 0 || start >= count;
  return PositionOutOfRange(
      first ? start_field : length_field,
      absl::StrCat("positions ", start, " .. ", last, "; ", what,
                   " has positions 0 .. ", count - 1),
      first ? 0 : count - start);
}

class DistanceRuleOf final : public BiasTiles::Rule {
 public:
  DistanceRuleOf(DistanceValues values, bool holds_indices)
      : Rule(values.heads, holds_indices), of_(std::move(values)) {}

  std::int64_t Nanoseconds(std::int64_t queries,
                           std::int64_t keys) const override {
    return of_.nanoseconds * (queries + keys);
  }

  void Fill(const BiasTileWriter& writer) const override;

 private:
  const DistanceValues of_;
};

// Each value of a tile is b(i - j), so row r + 1 is row r shifted by one. So
// one strip of rows + columns - 1 values, rounded once, contains every row.
// This is the strip for 3 queries and 4 keys, both from position 0:
//
//   strip   b(2) b(1) b(0) b(-1) b(-2) b(-3)   from distance `first` downwards
//   row 2   |------ 4 keys ------|
//   row 1        |------ 4 keys ------|
//   row 0             |------- 4 keys -------|
void DistanceRuleOf::Fill(const BiasTileWriter& writer) const {
  // With blocks, the strip is much smaller than the output and stays in the
  // cache.
  constexpr std::int64_t kBlock = 4096;
  const BiasRange& tile = writer.tile;
  const std::size_t size = DtypeSize(writer.dtype);
  std::vector<double> shared, values;
  std::vector<char> strip;
  for (std::int64_t row = 0; row < tile.query_length; row += kBlock) {
    const std::int64_t rows = std::min(kBlock, tile.query_length - row);
    for (std::int64_t column = 0; column < tile.key_length; column += kBlock) {
      const std::int64_t columns = std::min(kBlock, tile.key_length - column);
      // `first` is the distance from the block's last query to its first key.
      const std::int64_t n = rows + columns - 1;
      const std::int64_t first =
          tile.query_start + row + rows - 1 - (tile.key_start + column);
      shared.resize(n);
      values.resize(n);
      strip.resize(n * size);
      of_.shared(first, n, shared.data());
      for (std::int64_t head = 0; head < heads(); ++head) {
        of_.head(head, shared.data(), n, values.data());
        if (writer.causal) {
          std::fill(values.begin() + std::clamp<std::int64_t>(first + 1, 0, n),
                    values.end(), kMasked);
        }
        StoreDoubles(values.data(), n, writer.dtype, strip.data());
        for (std::int64_t r = 0; r < rows; ++r) {
          std::memcpy(writer.At(head, row + r, column),
                      strip.data() + (rows - 1 - r) * size, columns * size);
        }
      }
    }
  }
}

}  // namespace

absl::Status CheckInside(const BiasRange& range, std::int64_t count,
                         absl::string_view what) {
  RETURN_IF_ERROR(CheckInside("query_start", "query_length", range.query_start,
                              range.query_length, count, what));
  return CheckInside("key_start", "key_length", range.key_start,
                     range.key_length, count, what);
}

void* BiasTileWriter::At(std::int64_t head, std::int64_t row,
                         std::int64_t column) const {
  const std::int64_t element = head * head_stride + row * row_stride + column;
  return static_cast<char*>(out) +
         element * static_cast<std::int64_t>(DtypeSize(dtype));
}

void BiasTileWriter::Put(std::int64_t head, std::int64_t row,
                         std::int64_t column, std::int64_t n,
                         double* values) const {
  if (causal) {
    const std::int64_t query = tile.query_start + row;
    const std::int64_t visible = query - (tile.key_start + column) + 1;
    std::fill(values + std::clamp<std::int64_t>(visible, 0, n), values + n,
              kMasked);
  }
  StoreDoubles(values, n, dtype, At(head, row, column));
}

void Magnitudes(std::int64_t first, std::int64_t n, double* magnitudes) {
  for (std::int64_t s = 0; s < n; ++s) {
    magnitudes[s] = static_cast<double>(std::llabs(first - s));
  }
}

BiasRule DistanceRule(DistanceValues values) {
  return std::make_shared<const DistanceRuleOf>(std::move(values), false);
}

BiasRule IndexRule(std::function<std::int64_t(std::int64_t distance)> index) {
  DistanceValues values;
  values.head = [](std::int64_t /*head*/, const double* shared, std::int64_t n,
                   double* indices) { std::copy_n(shared, n, indices); };
  values.shared = [index = std::move(index)](std::int64_t first, std::int64_t n,
                                             double* indices) {
    for (std::int64_t s = 0; s < n; ++s) {
      indices[s] = static_cast<double>(index(first - s));
    }
  };
  return std::make_shared<const DistanceRuleOf>(std::move(values), true);
}

absl::StatusOr<BiasRule> MakeRule(std::monostate) {
  return FieldRequired("", "not set; say which bias to build");
}

absl::StatusOr<BiasTiles> BiasTiles::Create(const BiasArgs& args) {
  Faults faults;
  absl::StatusOr<BiasRule> rule =
      std::visit([](const auto& bias) { return MakeRule(bias); }, args.bias);
  faults.Note(Prefixed(FieldOf(args.bias), rule.status()));
  if (rule.ok() && (*rule)->heads() > kMaxHeads) {
    faults.Note(FieldInvalid(
        FieldOf(args.bias),
        absl::StrCat("has ", (*rule)->heads(), " heads; at most ", kMaxHeads)));
  }
  faults.Note(ValidateRange(args.range));
  RETURN_IF_ERROR(faults.status());
  RETURN_IF_ERROR((*rule)->CheckRange(args.range));
  if ((*rule)->holds_indices()) {
    RETURN_IF_ERROR(ValidateIndices(args));
    return BiasTiles(*std::move(rule), Dtype::kInt32, false);
  }
  const Dtype dtype = args.dtype.value_or(Dtype::kFloat32);
  RETURN_IF_ERROR(CheckFloating("dtype", dtype));
  return BiasTiles(*std::move(rule), dtype, args.causal);
}

BiasTiles::BiasTiles(std::shared_ptr<const Rule> rule, Dtype dtype, bool causal)
    : rule_(std::move(rule)), dtype_(dtype), causal_(causal) {}

std::int64_t BiasTiles::heads() const { return rule_->heads(); }
Dtype BiasTiles::dtype() const { return dtype_; }
std::int64_t BiasTiles::Nanoseconds(std::int64_t queries,
                                    std::int64_t keys) const {
  return rule_->Nanoseconds(queries, keys);
}

void BiasTiles::Fill(const BiasRange& tile, void* out, std::int64_t row_stride,
                     std::int64_t head_stride) const {
  rule_->Fill({tile, dtype_, causal_, out, row_stride, head_stride});
}

}  // namespace posenc::core
