// Rotates the heads of a tensor, row by row in the order of memory: a row of
// the tensor is one head of one token. Shared by ApplyRope and Reposition.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/rope/cos_sin_source.h"
#include "core/rope/head_layout.h"
#include "core/rope/head_rotation.h"
#include "core/runtime/row_map.h"
#include "core/simd/kernels.h"

namespace posenc::core {

class RotationMap final : public RowMap {
 public:
  // shared: the cosines and sines of sequence 0 serve all sequences.
  RotationMap(const HeadRotation& rotation, Layout layout,
              const HeadLayout& extents, bool shared,
              std::unique_ptr<const CosSinSource> source);

  std::unique_ptr<Worker> StartWorker(std::int64_t first,
                                      std::int64_t rows) const override;

 private:
  class RotationWorker;

  // The cosines and sines of consecutive tokens of one sequence.
  class CosSinTable {
   public:
    // values: of one token.
    CosSinTable(bool wide, std::size_t values, std::int64_t tokens,
                bool scaled);
    void Fill(CosSinSource* source, std::int64_t b, std::int64_t first,
              std::int64_t n);
    // The same in parts (CosSinSource::StartRun).
    std::int64_t Start(CosSinSource* source, std::int64_t b, std::int64_t first,
                       std::int64_t n, simd::Meanwhile* work);
    // Those of the token first + t.
    const std::byte* At(std::int64_t t) const {
      return data_ + static_cast<std::size_t>(t) * token_bytes_;
    }
    double Scale(std::int64_t t) const { return scales_[t]; }

   private:
    bool wide_;  // float64
    std::size_t token_bytes_;
    std::unique_ptr<std::byte[]> storage_;
    std::byte* data_;  // in storage_, aligned to a cache line
    std::vector<double> scales_;
  };

  // Tokens whose cosines and sines take so many bytes, as float32; at least 1.
  std::int64_t TokensOf(std::size_t bytes) const;

  const HeadRotation rotation_;
  const Layout layout_;
  const std::int64_t batch_, tokens_, heads_;
  const bool shared_;
  const std::unique_ptr<const CosSinSource> source_;  // workers clone it
  std::size_t pairs_ = 0;
  std::size_t frequency_sets_ = 1;  // 1, or heads_
  bool uniform_ = false, scaled_ = false;
  bool tokens_come_back_ = false;  // once for each head
  simd::Memory memory_ = simd::Memory::kCached;
  // All cosines and sines, [batch, or 1 if shared_]; empty if workers evaluate
  // theirs as they go (see rotation_map.cc).
  std::vector<CosSinTable> all_;
};

}  // namespace posenc::core
