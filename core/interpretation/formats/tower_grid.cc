#include "core/interpretation/formats/tower_grid.h"

#include "core/base/error.h"
#include "core/interpretation/config.h"
#include "core/interpretation/presets.h"

namespace posenc::core::interpretation {

absl::StatusOr<TowerGrid> ResolveTowerGrid(const RopeSource& source) {
  // ResolveSource() reports all errors of the source.
  const absl::StatusOr<ResolvedRope> rope =
      ResolveSource(source, 0, MissingLength::kAssumeOriginal);
  if (!rope.ok()) return rope.status();
  const auto text = ConfigOf(source);
  if (text) {
    // Towers are read alike in all versions of a profile's project.
    const absl::StatusOr<ModelRope> model = ReadModelConfig(
        *text, {.reader = {.profile = source.profile}, .part = source.part});
    if (model.ok() && model->grid) return *model->grid;
  }
  return FieldInvalid(
      !text                                               ? "spec"
      : std::holds_alternative<PresetName>(source.source) ? "preset"
                                                          : "config_json",
      "is not of a vision tower with patches on a grid; set part to vision if "
      "the file has a vision_config, else use grid, or a start for tokens of "
      "one axis");
}

}  // namespace posenc::core::interpretation
