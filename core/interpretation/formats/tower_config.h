// Reads the rotary encoding of a vision or audio tower from a configuration, by
// the rules of transformers' classes.
//
// The frequencies are ExplicitFrequencies: the float32 numbers that the classes
// compute as 1 / theta^e, with each step rounded. With angle_precision FLOAT32,
// a rotation has exactly the angles of the class's module.

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
  std::string warning = {};  // about the part's model_type; empty: no warning
};

// True if the whole configuration describes a tower.
bool IsTowerConfig(const JsonObject& root);

// Finds the vision or audio part. Reports FieldInvalid of "part" if the file
// has no such part, or describes only another part. Reports kModelConfigInvalid
// if the part has no rotary encoding, or an unknown one.
TowerPart FindTowerPart(const JsonObject& root, ModelPart part);

ModelRope ReadTower(const TowerPart& part, Profile profile);

// Returns the axes that the letters stand for: t is time, h height, w width,
// and l an axis on which all patches have position 0.
std::vector<GridAxis> GridAxesOf(absl::string_view letters);

// Returns the frequencies with exponents i / n for i = first, first + step, ...
// below n.
std::vector<double> Float32Frequencies(double theta, std::int64_t n,
                                       std::int64_t first, std::int64_t step);

}  // namespace posenc::core::interpretation
