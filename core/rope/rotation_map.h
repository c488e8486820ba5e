// Rotates the heads of a tensor, row by row in the order of memory: a row of
// the tensor is one head of one token. Shared by ApplyRope and Reposition.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "core/rope/cos_sin_source.h"
#include "core/rope/cos_sin_table.h"
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

  // All cosines and sines, [batch, or 1 if shared_][tokens, or 1 if uniform_],
  // if has_all_. Found or evaluated when a worker first needs them.
  const CosSinTable& All() const;
  void MakeAll() const;
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
  bool has_all_ = false;    // else workers evaluate theirs as they go
  bool keeps_all_ = false;  // for later calls
  mutable std::once_flag all_once_;
  mutable std::shared_ptr<const CosSinTable> all_;
};

}  // namespace posenc::core
