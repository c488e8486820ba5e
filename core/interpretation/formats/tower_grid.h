// The grid of the vision tower that a source names.

#pragma once

#include "absl/status/statusor.h"
#include "core/interpretation/source.h"
#include "core/positions/vision_positions.h"

namespace posenc::core::interpretation {

// Returns the errors of ResolveSource. Returns FieldInvalid of "spec", "preset"
// or "config_json" if the source is not a vision tower whose patches lie on a
// grid.
absl::StatusOr<TowerGrid> ResolveTowerGrid(const RopeSource& source);

}  // namespace posenc::core::interpretation
