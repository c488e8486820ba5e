// Rotates the heads of a tensor, row by row in the order of memory: a row is
// one head of one token. Shared by ApplyRope and Reposition.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/rope/apply.h"
#include "core/rope/heads.h"
#include "core/runtime/row_map.h"

namespace posenc::core {

// What tokens are rotated by. One thread each.
class TokenRows {
 public:
  virtual ~TokenRows() = default;

  // Another that gives the same, for another thread.
  virtual std::unique_ptr<TokenRows> Clone() const = 0;

  virtual std::size_t pairs() const = 0;
  virtual std::size_t heads() const = 0;  // 1: one row serves every head
  // Whether one row serves every token of every sequence.
  virtual bool uniform() const { return false; }

  // Writes [heads][2][pairs], cosines then sines, of token t of sequence b.
  virtual void Fill(std::int64_t b, std::int64_t t, float* row) = 0;
  virtual void Fill(std::int64_t b, std::int64_t t, double* row) = 0;

  // Whether the channels that pass through have a factor, and which.
  virtual bool scaled() const { return false; }
  virtual double HeadScale(std::int64_t /*b*/, std::int64_t /*t*/) { return 1; }
};

class RotationMap final : public RowMap {
 public:
  // shared: the rows of sequence 0 serve all.
  RotationMap(const HeadPlan& plan, Layout layout, const Heads& shape,
              bool shared, std::unique_ptr<const TokenRows> rows);

  std::unique_ptr<Tile> StartTile(std::int64_t first,
                                  std::int64_t rows) const override;

 private:
  class RotationTile;

  // Rows of cosines and sines of consecutive tokens of one sequence.
  class Table {
   public:
    Table(bool wide, std::size_t row, std::int64_t tokens, bool scaled);
    void Fill(TokenRows* rows, std::int64_t b, std::int64_t first,
              std::int64_t n);
    // Of the token first + t.
    const std::byte* Row(std::int64_t t) const {
      return data_ + static_cast<std::size_t>(t) * row_bytes_;
    }
    double Scale(std::int64_t t) const { return scales_[t]; }

   private:
    bool wide_;
    std::size_t row_bytes_;
    std::unique_ptr<std::byte[]> storage_;
    std::byte* data_;
    std::vector<double> scales_;
  };

  const HeadPlan plan_;
  const Layout layout_;
  const std::int64_t batch_, tokens_, heads_;
  const bool shared_;
  const std::unique_ptr<const TokenRows> token_rows_;  // cloned by tiles
  std::size_t pairs_ = 0;
  std::size_t row_sets_ = 1;  // rows by head: as many as heads
  bool uniform_ = false, scaled_ = false;
  std::size_t prefetch_ = 0;  // bytes ahead
  // Head by head, every token's row is needed again: kept where they are few.
  std::vector<Table> all_;  // [batch, or 1 where shared]
};

}  // namespace posenc::core
