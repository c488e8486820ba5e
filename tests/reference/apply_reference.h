// An oracle for core's rotations: angles and factors in long double, from
// rope.proto, element by element. client/tools/check, which shares no code with
// core, gives the rotation of a pair and the places of pairs and heads.

#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "client/tools/check/heads.h"
#include "client/tools/check/rotation.h"
#include "core/rotation/apply.h"

namespace posenc::test {

// The dtypes that rotate, and the layouts.
inline constexpr core::Dtype kDtypes[] = {
    core::Dtype::kFloat32,      core::Dtype::kFloat16,
    core::Dtype::kBfloat16,     core::Dtype::kFloat64,
    core::Dtype::kFloat8E4m3fn, core::Dtype::kFloat8E5m2};
inline constexpr core::Layout kLayouts[] = {
    core::Layout::kBshd, core::Layout::kBhsd, core::Layout::kSbhd,
    core::Layout::kThd};

struct Extents {
  std::int64_t batch = 1, tokens = 1, heads = 1, head_dim = 2;
};

// A tensor that owns its bytes, of exactly its size.
struct Tensor {
  Tensor(core::Dtype dtype, core::Layout layout, const Extents& extents);

  // Element (b, s, h, d), widened; THD has b = 0 only.
  double At(std::int64_t b, std::int64_t s, std::int64_t h,
            std::int64_t d) const;
  // Stores a value after truncating it to the dtype.
  void Set(std::int64_t b, std::int64_t s, std::int64_t h, std::int64_t d,
           double value);
  // Seeded values in [-4, 4).
  void Fill(std::mt19937_64& random);
  std::size_t Offset(std::int64_t b, std::int64_t s, std::int64_t h,
                     std::int64_t d) const;  // bytes

  core::ConstTensorView in() const { return {dtype, shape, bytes.data()}; }
  core::TensorView out() { return {dtype, shape, bytes.data()}; }

  core::Dtype dtype;
  core::Layout layout;
  Extents extents;
  core::Shape shape;
  check::HeadIndex index;
  std::vector<std::byte> bytes;
};

// Positions of every token on every axis, [axes][batch][tokens].
struct Grid {
  std::int64_t axes = 1, batch = 1, tokens = 1;
  std::vector<double> values;

  double at(std::int64_t a, std::int64_t b, std::int64_t s) const {
    return values[(a * batch + b) * tokens + s];
  }
  // Float64 ids of the layout's shape. The grid must outlive them.
  core::Positions Ids(core::Layout layout) const;
};

// Whole and fractional positions in [-3000, 60000].
Grid RandomGrid(std::int64_t axes, std::int64_t batch, std::int64_t tokens,
                std::mt19937_64& random);

// Largest relative error of one rounding to the dtype, and the largest absolute
// error below its normal numbers.
double UnitRoundoff(core::Dtype dtype);
double HalfSubnormal(core::Dtype dtype);

// Returns whether the arithmetic's result is rounded once more (16 and 8 bits).
bool IsNarrow(core::Dtype dtype);

// Largest error of a rotated element whose pair has the norm `norm` after the
// factors, and rotates by `angle`, in the dtype's arithmetic before the last
// rounding to 16 or 8 bits. float32: core/rotation/apply.h. float64: both
// products carry the table's 2 ulp (2^-51) and a rounding (2^-53), and the sum
// another rounding; the frequency may be the other neighbour (2^-52 of the
// angle).
double ArithmeticBound(core::Dtype dtype, double norm, double angle);

// Returns the places of pairs in a tensor with `pairing`. If `spec` has no
// rotary_dim, it is head_dim.
check::PairLayout PairsOf(const core::RopeSpec& spec, core::Pairing pairing,
                          std::int64_t head_dim);

// Rotates `in` with a complete spec (base or explicit frequencies), and checks
// every element of `out`: rotated elements within the bound, other elements bit
// for bit (within one rounding if a query scale applies). `args` gives
// everything except the encoding. Returns the first wrong element, or nothing.
std::string FindError(const core::RopeSpec& spec,
                      const core::ApplyRopeArgs& args, const Grid& positions,
                      core::TensorRole role, const Tensor& in,
                      const Tensor& out);

}  // namespace posenc::test
