// Reads the rotary encoding of a vision or audio tower from a configuration, by
// the rules of transformers' classes.
//
// Frequencies are the float32 numbers that the classes compute, 1 / theta^e
// with each step rounded, as ExplicitFrequencies. With FLOAT32 angles a
// rotation then has exactly the module's angles.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/interpretation/config.h"
#include "core/interpretation/json_object.h"
#include "core/interpretation/source.h"
#include "core/positions/position_schemes.h"
#include "core/positions/vision_positions.h"

namespace posenc::core::interpretation {

struct Tower;

// The requested part of a configuration.
struct TowerPart {
  JsonObject config;
  std::string model_type;
  // Null for a tower of one axis, which is read like a language model.
  const Tower* tower = nullptr;
  std::string warning = {};  // about its model_type; empty: none
};

// True if the whole configuration is a tower's own.
bool IsTowerConfig(const JsonObject& root);

// Finds the vision or audio part. Errors: FieldInvalid("part") if there is no
// such part, or the whole file is another part; kModelConfigInvalid if the part
// has no rotary encoding, or an unknown one.
TowerPart FindTowerPart(const JsonObject& root, ModelPart part);

ModelRope ReadTower(const TowerPart& part, Profile profile);

// How that tower counts the patches of a grid.
TowerGrid ReadTowerGrid(const TowerPart& part);

// Returns the axes of a position by their letters: t time, h height, w width,
// and l for an axis on which all patches have position 0.
std::vector<GridAxis> GridAxesOf(absl::string_view letters);

// 1 / theta^exponent: base, power and reciprocal rounded to float32. The power
// is rounded correctly. So is torch's, for the widths and bases of nearly all
// known towers (tests/parity/towers.py).
double Float32Frequency(double theta, float exponent);

// The frequencies of the exponents i / n, i = first, first + step, ... below n.
std::vector<double> Float32Frequencies(double theta, std::int64_t n,
                                       std::int64_t first, std::int64_t step);

}  // namespace posenc::core::interpretation
