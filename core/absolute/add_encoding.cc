#include "core/absolute/add_encoding.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/absolute/kinds.h"
#include "core/absolute/rows.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/simd/dispatch.h"

namespace posenc::core {
namespace {

// If several sequences have the same positions, the encoding's rows are
// computed once for all these sequences, in blocks of this many rows. The first
// worker that needs a block computes it, and other workers that need the block
// wait. Blocks are small, so that these workers wait only briefly.
constexpr std::int64_t kBlockRows = 64;

absl::Status CheckScale(const std::optional<double>& scale, Dtype dtype) {
  if (!scale.has_value()) return absl::OkStatus();
  if (!std::isfinite(*scale)) {
    return MustBe("x_scale", *scale, "finite");
  }
  if (dtype != Dtype::kFloat64 && std::isinf(static_cast<float>(*scale))) {
    return FieldInvalid(
        "x_scale",
        absl::StrCat("is ", NumberText(*scale), "; must fit float32, in which ",
                     DtypeName(dtype), " is computed"));
  }
  return absl::OkStatus();
}

absl::Status CheckShape(const AddEncodingArgs& args,
                        const AbsoluteExtents& extents, const Shape& x) {
  const bool packed = std::holds_alternative<PackedSequences>(args.positions);
  const std::string tokens =
      extents.rows.has_value() ? absl::StrCat(*extents.rows) : "S";
  const std::string expected =
      packed ? absl::StrCat("[T, ", extents.dim, "]")
             : absl::StrCat("[", tokens, ", ", extents.dim, "] or [B, ", tokens,
                            ", ", extents.dim, "]");
  const std::size_t rank = x.size();
  if (rank != 2 && rank != 3) {
    return FieldInvalid("x.shape", absl::StrCat(ShapeToString(x), " has rank ",
                                                rank, "; must be ", expected));
  }
  if ((packed && rank == 3) || x[rank - 1] != extents.dim ||
      (extents.rows.has_value() && x[rank - 2] != *extents.rows)) {
    return WrongShape("x.shape", expected, ShapeToString(x));
  }
  return absl::OkStatus();
}

// Converts a row of x's dtype to T. T is the type of the arithmetic: double for
// float64, and float for all other dtypes.
template <typename T>
void Load(Dtype dtype, const char* src, std::int64_t n, T* row) {
  const auto count = static_cast<std::size_t>(n);
  if constexpr (std::is_same_v<T, float>) {
    simd::ActiveKernels().widen[KernelIndex(dtype)](src, row, count);
  } else {
    std::memcpy(row, src, count * sizeof(T));
  }
}

// Rounds a row of T to x's dtype.
template <typename T>
void Store(Dtype dtype, const T* row, std::int64_t n, char* dst) {
  const auto count = static_cast<std::size_t>(n);
  if constexpr (std::is_same_v<T, float>) {
    simd::ActiveKernels().narrow[KernelIndex(dtype)](row, dst, count);
  } else {
    std::memcpy(dst, row, count * sizeof(T));
  }
}

// Replaces x, a row of n elements, by its combination with the encoding's row
// e. For a concatenation, only scales x; the caller stores e behind x.
template <typename T>
void Combine(Combination combination, T scale, const T* e, std::int64_t n,
             T* x) {
  switch (combination) {
    case Combination::kAdd:
      for (std::int64_t i = 0; i < n; ++i) x[i] = x[i] * scale + e[i];
      return;
    case Combination::kMultiply:
      for (std::int64_t i = 0; i < n; ++i) x[i] = x[i] * scale * (1 + e[i]);
      return;
    case Combination::kConcatenate:
      for (std::int64_t i = 0; i < n; ++i) x[i] *= scale;
      return;
  }
}

bool Concatenates(const AddEncodingArgs& args) {
  return args.combination == Combination::kConcatenate;
}

template <typename T>
class AddMap final : public RowMap {
 public:
  // `positions` is null for a grid, because its rows need no positions.
  AddMap(const AddEncodingArgs& args,
         std::shared_ptr<const TokenPositions> positions, Dtype dtype,
         std::int64_t batch, std::int64_t tokens, std::int64_t dim)
      : RowMap(batch * tokens, dim * DtypeSize(dtype),
               (Concatenates(args) ? 2 : 1) * dim * DtypeSize(dtype),
               !Concatenates(args)),
        rows_prototype_(args.encoding),
        combination_(args.combination),
        scale_(static_cast<T>(args.x_scale.value_or(1))),
        positions_(std::move(positions)),
        dtype_(dtype),
        tokens_(tokens),
        dim_(dim),
        shared_(positions_ == nullptr || positions_->shared()),
        blocks_(batch > 1 && shared_ ? (tokens + kBlockRows - 1) / kBlockRows
                                     : 0) {}

  std::unique_ptr<Worker> StartWorker(std::int64_t /*first*/,
                                      std::int64_t /*rows*/) const override {
    return std::make_unique<AddWorker>(*this);
  }

 private:
  struct Block {
    std::once_flag filled;
    std::vector<T> rows;
  };

  class AddWorker final : public Worker {
   public:
    explicit AddWorker(const AddMap& map)
        : map_(map),
          rows_(map.rows_prototype_),
          row_(map.dim_),
          encoded_(map.dim_),
          at_(map.positions_ == nullptr ? 0 : map.positions_->axes()) {}

    void Run(std::int64_t first, std::int64_t rows, const void* in,
             void* out) override {
      const auto* src = static_cast<const char*>(in);
      auto* dst = static_cast<char*>(out);
      for (std::int64_t i = first; i < first + rows; ++i) {
        const T* const e = Encoded(i / map_.tokens_, i % map_.tokens_);
        Load(map_.dtype_, src, map_.dim_, row_.data());
        Combine(map_.combination_, map_.scale_, e, map_.dim_, row_.data());
        Store(map_.dtype_, row_.data(), map_.dim_, dst);
        if (!map_.in_place()) {
          Store(map_.dtype_, e, map_.dim_, dst + map_.in_bytes());
        }
        src += map_.in_bytes();
        dst += map_.out_bytes();
      }
    }

   private:
    // Returns the encoding's row of a token. The pointer is valid until the
    // next call.
    const T* Encoded(std::int64_t b, std::int64_t t) {
      if (map_.blocks_.empty()) {
        Fill(b, t, encoded_.data());
        return encoded_.data();
      }
      Block& block = map_.blocks_[t / kBlockRows];
      std::call_once(block.filled, [&] {
        const std::int64_t first = t / kBlockRows * kBlockRows;
        const std::int64_t n = std::min(kBlockRows, map_.tokens_ - first);
        block.rows.resize(n * map_.dim_);
        for (std::int64_t i = 0; i < n; ++i) {
          Fill(0, first + i, block.rows.data() + i * map_.dim_);
        }
      });
      return block.rows.data() + t % kBlockRows * map_.dim_;
    }

    void Fill(std::int64_t b, std::int64_t t, T* row) {
      for (std::size_t a = 0; a < at_.size(); ++a) {
        at_[a] = map_.positions_->at(static_cast<int>(a), b, t);
      }
      rows_.Row(t, at_.data(), row);
    }

    const AddMap& map_;
    AbsoluteRows<T> rows_;
    std::vector<T> row_, encoded_;
    std::vector<double> at_;
  };

  // Each worker copies this object. Constructing a new object takes longer,
  // because the constructor splits each frequency into pieces (QuarterTurns).
  const AbsoluteRows<T> rows_prototype_;
  const Combination combination_;
  const T scale_;
  const std::shared_ptr<const TokenPositions> positions_;
  const Dtype dtype_;
  const std::int64_t tokens_, dim_;
  const bool shared_;
  // There are no blocks if each sequence has its own positions, or if there is
  // one sequence.
  mutable std::vector<Block> blocks_;
};

// Returns the result's extents. Validates everything except the positions.
absl::StatusOr<Shape> ResultShape(const AddEncodingArgs& args,
                                  const AbsoluteExtents& extents,
                                  const ConstTensorView& x) {
  Faults faults;
  if (extents.rows.has_value() &&
      !std::holds_alternative<std::monostate>(args.positions)) {
    faults.Note(FieldInvalid(
        "positions",
        "given for a grid: its cells are the rows of x; leave them out"));
  }
  if (faults.Note(CheckFloating("x.dtype", x.dtype))) {
    faults.Note(CheckScale(args.x_scale, x.dtype));
  }
  faults.Note(CheckShape(args, extents, x.shape));
  RETURN_IF_ERROR(faults.status());
  Shape shape = x.shape;
  if (Concatenates(args)) shape.back() *= 2;
  RETURN_IF_ERROR(Prefixed("x", ElementCount(shape).status()));
  return shape;
}

}  // namespace

absl::StatusOr<AddedRows> PrepareAddEncoding(const AddEncodingArgs& args,
                                             const ConstTensorView& x) {
  const absl::StatusOr<AbsoluteExtents> extents =
      ValidateAbsolute(args.encoding);
  RETURN_IF_ERROR(Prefixed("encoding", extents.status()));
  AddedRows added;
  ASSIGN_OR_RETURN(added.shape, ResultShape(args, *extents, x));
  const std::size_t rank = x.shape.size();
  const TokenExtents tokens = {
      rank == 3 ? x.shape[0] : 1, x.shape[rank - 2],
      std::holds_alternative<PackedSequences>(args.positions), args.reserve};
  std::shared_ptr<const TokenPositions> positions;
  if (!extents->rows.has_value()) {
    absl::StatusOr<TokenPositions> expanded = ExpandPositions(
        args.positions, tokens, extents->axes, extents->axes > 1);
    RETURN_IF_ERROR(Prefixed("positions", expanded.status()));
    // Checks every position before anything is written, because x may be
    // overwritten in place.
    RETURN_IF_ERROR(CheckReach(args.encoding, *expanded));
    positions = std::make_shared<const TokenPositions>(*std::move(expanded));
  }
  const auto make = [&]<typename T>() {
    return std::make_unique<AddMap<T>>(args, std::move(positions), x.dtype,
                                       tokens.batch, tokens.tokens,
                                       extents->dim);
  };
  if (x.dtype == Dtype::kFloat64) {
    added.map = make.template operator()<double>();
  } else {
    added.map = make.template operator()<float>();
  }
  return added;
}

}  // namespace posenc::core
