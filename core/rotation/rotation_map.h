// Rotates the heads of a tensor, row by row in the order of memory: a row of
// the tensor is one head of one token. ApplyRope and Reposition use this code.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "core/rope/cos_sin_source.h"
#include "core/rope/cos_sin_table.h"
#include "core/rotation/head_layout.h"
#include "core/rotation/head_rotation.h"
#include "core/runtime/row_map.h"
#include "core/simd/kernels.h"

namespace posenc::core {

class RotationMap final : public RowMap {
 public:
  // The heads of some tokens, and their distances in memory.
  struct Heads {
    std::int64_t first, count;
    std::size_t bytes;        // from head to head
    std::size_t token_bytes;  // from token to token
  };

  // Rotates tokens whose heads may be at any distances in memory (Heads). Only
  // one thread may use a TokenWorker.
  class TokenWorker {
   public:
    virtual ~TokenWorker() = default;
    // Rotates n tokens of a sequence from `token` on. src and dst point to the
    // first head of the first token; the rules of Worker::Run() apply to them.
    virtual void Run(std::int64_t sequence, std::int64_t token, std::int64_t n,
                     const Heads& heads, const std::byte* src,
                     std::byte* dst) = 0;
  };

  // If `shared` is true, all sequences use the cosines and sines of sequence 0.
  RotationMap(const HeadRotation& rotation, Layout layout,
              const HeadLayout& extents, bool shared,
              std::unique_ptr<const CosSinSource> source);

  // The size of the table of all tokens' cosines and sines, if the map keeps
  // this table; else 0.
  std::size_t kept_bytes() const override {
    return has_all_ ? static_cast<std::size_t>(rows_of_all()) * table_bytes()
                    : 0;
  }

  std::unique_ptr<Worker> StartWorker(std::int64_t first,
                                      std::int64_t rows) const override;
  // Requires rows() > 0.
  std::unique_ptr<TokenWorker> StartTokens() const;

 private:
  class RotationWorker;

  // Returns the cosines and sines of all tokens, [batch, or 1 if
  // shared_][tokens], evaluated at first use.
  const CosSinTable& All() const;
  std::int64_t rows_of_all() const { return (shared_ ? 1 : batch_) * tokens_; }
  bool wide() const { return rotation_.dtype == Dtype::kFloat64; }
  std::size_t values() const { return frequency_sets_ * 2 * pairs_; }
  // Size in bytes of a token's cosines and sines.
  std::size_t table_bytes() const {
    return values() * (wide() ? sizeof(double) : sizeof(float));
  }

  const HeadRotation rotation_;
  const bool shared_;
  const std::unique_ptr<const CosSinSource> source_;  // workers clone it
  const std::size_t pairs_;
  const std::size_t frequency_sets_;  // 1, or one for each head
  const bool uniform_, scaled_;
  std::int64_t batch_, tokens_, heads_;
  bool head_major_ = false;  // else the heads of a token are adjacent
  bool alternates_ = false;  // sequences alternate at every token
  bool has_all_ = false;     // else each worker evaluates blocks
  simd::Memory memory_ = simd::Memory::kCached;
  mutable std::once_flag all_once_;
  mutable std::unique_ptr<CosSinTable> all_;
};

}  // namespace posenc::core
