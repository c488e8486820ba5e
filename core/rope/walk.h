// Rotates tensors of heads of any layout, token by token, once the rows of
// cosines and sines are known. Shared by ApplyRope and Reposition.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/rope/apply.h"
#include "core/rope/frequencies.h"
#include "core/simd/kernels.h"
#include "core/tensor.h"

namespace posenc::core {

// Extents and element strides of a tensor of heads.
struct Heads {
  std::int64_t batch = 1, tokens = 0, heads = 0, head_dim = 0;
  std::int64_t batch_stride = 0, token_stride = 0, head_stride = 0;

  bool empty() const { return batch == 0 || tokens == 0 || heads == 0; }
};

// The dimension of each letter in a layout's shape.
struct LayoutOrder {
  const char* name;
  int rank;
  int batch, token, head;  // batch -1: there is none
};

// FieldInvalid("layout").
absl::StatusOr<LayoutOrder> FindLayout(Layout layout);

// Field paths: "dtype", "shape".
absl::StatusOr<Heads> ReadHeads(const ConstTensorView& tensor,
                                const LayoutOrder& order);

// kShapeMismatch ("<name>.shape") where frequencies by head are for another
// number of heads.
absl::Status CheckHeadCount(const ResolvedRope& rope,
                            const ConstTensorView& tensor, const Heads& heads,
                            absl::string_view name);

// A run of channels that holds whole pairs: all that rotate, or those of one
// axis where each axis splits its own channels into halves.
struct Segment {
  std::int64_t channel;
  std::int64_t first_pair;
  std::int64_t pairs;
};

// The segments of a head of head_dim channels; none for NoPE.
std::vector<Segment> SegmentsOf(const RopeSpec& spec, std::int64_t head_dim);

// A tensor on its way through.
struct Side {
  Heads shape;
  Dtype dtype = Dtype::kFloat32;
  std::size_t element = 0;  // bytes
  const std::byte* src = nullptr;
  std::byte* dst = nullptr;  // src, or memory that does not overlap it
  std::vector<Segment> segments;
  // The channels that pass through.
  std::int64_t pass_channel = 0;
  std::int64_t pass_width = 0;
  simd::RotateKernel rotate = nullptr;
};

// `segments` are spec's, or those of an encoding that rotates the same slice.
// Where in and out are the same memory, the pairings are the same.
Side PlanSide(const ConstTensorView& in, const TensorView& out,
              const Heads& shape, const RopeSpec& spec,
              std::vector<Segment> segments, Pairing from, Pairing to);

// What tokens are rotated by.
class TokenRows {
 public:
  virtual ~TokenRows() = default;

  virtual std::size_t pairs() const = 0;
  virtual std::size_t heads() const = 0;  // 1: one row serves every head

  // Writes [heads][2][pairs], cosines then sines, of token t of sequence b.
  virtual void Fill(std::int64_t b, std::int64_t t, float* row) = 0;
  virtual void Fill(std::int64_t b, std::int64_t t, double* row) = 0;

  // Whether one row serves every token of every sequence.
  virtual bool uniform() const { return false; }

  // Whether the channels that pass through have a factor, and which.
  virtual bool scaled() const { return false; }
  virtual double HeadScale(std::int64_t /*b*/, std::int64_t /*t*/) { return 1; }
};

// A side and its rows; sides that share rows are neighbours.
struct Rotation {
  const Side* side;
  TokenRows* rows;
};

// Rotates sides that agree in batch and tokens; none is empty. `shared`: the
// rows of sequence 0 serve all.
void RotateAll(const std::vector<Rotation>& rotations, bool shared);

}  // namespace posenc::core
