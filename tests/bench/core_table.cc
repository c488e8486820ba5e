#include "tests/bench/core_table.h"

#include <memory>
#include <utility>

#include "core/positions/positions.h"
#include "core/rope/table.h"
#include "tests/bench/core_rotation.h"

namespace posenc::bench {

TableWork TableOf(void* cos_data, void* sin_data) {
  const std::shared_ptr<const core::PreparedRope> rope = *LookupOf(
      core::Pairing::kHalfSplit, 2 * kTablePairs, 2 * kTablePairs)(kTableRows);
  absl::StatusOr<core::TokenPositions> positions = core::ExpandPositions(
      core::StartPosition{0}, {1, kTableRows, false}, 1, false);
  Require(positions.status());
  const auto view = [](void* data) {
    return core::TensorView{core::Dtype::kFloat32,
                            {kTableRows, kTablePairs},
                            static_cast<std::byte*>(data)};
  };
  return {
      rope, [rope, positions = *std::move(positions), cos = view(cos_data),
             sin = view(sin_data)] {
        Require(core::BuildRopeTable(rope, positions, core::TableLayout::kHalf,
                                     core::TensorRole::kQuery, cos, sin));
      }};
}

}  // namespace posenc::bench
