// BuildBias and ScoreRelative.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/relative/bias.h"
#include "posenc/v1/service.pb.h"
#include "server/calls/call.h"
#include "server/convert/relative.h"

namespace posenc::server {

// A checked bias, built tile by tile.
class BiasPlan : public std::enable_shared_from_this<BiasPlan> {
 public:
  // A walk over the tiles in row-major order, from its beginning.
  struct Place {
    std::int64_t query = 0, key = 0;  // of the tile, from the matrix' first
  };

  // Borrows the request. limit: bytes of a message.
  static absl::StatusOr<std::shared_ptr<const BiasPlan>> Read(
      const v1::BuildBiasRequest& request, std::int64_t limit);

  BiasPlan(InputBias input, core::BiasTiles bias)
      : input_(std::move(input)), bias_(std::move(bias)) {}

  // The tile at `place`, which moves on; nullopt after the last.
  std::optional<core::BiasRange> Next(Place* place) const;
  // Builds a tile.
  TensorCall Call(const core::BiasRange& tile) const;

 private:
  struct Extents {
    std::int64_t queries, keys;
  };

  static Extents ChooseTile(const Extents& whole, std::int64_t elements);
  static Extents TileOf(const v1::BuildBiasRequest& request,
                        const Extents& whole, std::int64_t bytes_per_element,
                        std::int64_t bytes);
  absl::Status ReadExtents(const v1::BuildBiasRequest& request,
                           std::int64_t limit);
  void Fill(const core::BiasRange& tile, const core::BiasRange& block,
            char* out) const;

  const InputBias input_;  // whose tensors the bias borrows
  const core::BiasTiles bias_;
  Extents extents_ = {};
};

absl::StatusOr<TensorCall> PrepareScoreRelative(
    const v1::ScoreRelativeRequest& request, const TakenTensors& taken);

}  // namespace posenc::server
