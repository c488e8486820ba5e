#include "core/interpretation/formats/tower_grid.h"

#include <string>

#include "core/base/error.h"
#include "core/interpretation/formats/diffusion_config.h"
#include "core/interpretation/formats/tower_config.h"
#include "core/interpretation/presets.h"

namespace posenc::core::interpretation {

absl::StatusOr<TowerGrid> ResolveTowerGrid(const RopeSource& source) {
  // ResolveSource() reports all errors of the source. The code below expects a
  // valid source.
  const absl::StatusOr<ResolvedRope> rope =
      ResolveSource(source, 0, MissingLength::kAssumeOriginal);
  if (!rope.ok()) return rope.status();
  const auto no_grid = [](absl::string_view field) {
    return FieldInvalid(field,
                        "is not of a vision tower with patches on a grid; set "
                        "part to vision if the file has a vision_config, else "
                        "use grid, or a start for tokens of one axis");
  };
  if (std::holds_alternative<RopeSpec>(source.source)) return no_grid("spec");
  const absl::string_view field =
      std::holds_alternative<PresetName>(source.source) ? "preset"
                                                        : "config_json";
  const nlohmann::json root = ParseConfig(*ConfigOf(source));
  Report report;
  const JsonObject config(&root, "", &report);
  if (IsDiffusionConfig(config)) return ReadDiffusionGrid(config);
  if (source.part != ModelPart::kVision && !IsTowerConfig(config)) {
    return no_grid(field);
  }
  const TowerPart part = FindTowerPart(config, source.part);
  if (!report.ok()) return report.status;
  if (part.tower == nullptr) return no_grid(field);
  TowerGrid grid = ReadTowerGrid(part);
  if (!report.ok()) return report.status;
  return grid;
}

}  // namespace posenc::core::interpretation
