// Reads the rotary encoding of a vision or audio tower out of a configuration,
// as transformers' classes have it.
//
// Frequencies are the float32 numbers that the classes compute, 1 / theta^e
// with each step rounded, and come as ExplicitFrequencies: with FLOAT32 angles
// a rotation then has the module's own angles.

#pragma once

#include <string>

#include "core/interpretation/config.h"
#include "core/interpretation/json_object.h"
#include "core/interpretation/source.h"
#include "core/interpretation/towers.h"
#include "core/position_schemes.h"

namespace posenc::core::interpretation {

// The part of a configuration that was asked for.
struct TowerPart {
  JsonObject config;
  std::string model_type;
  // Null for a tower of one axis, which is read as language models are.
  const Tower* tower = nullptr;
  std::string warning = {};  // about its model_type; empty: none
};

// True if the whole configuration is a tower's own.
bool IsTowerConfig(const JsonObject& root);

// Finds the vision or audio part. Errors: FieldInvalid("part") if there is no
// such part, or the whole file is another one; kModelConfigInvalid if the part
// has no rotary encoding, or none that is known here.
TowerPart FindTowerPart(const JsonObject& root, ModelPart part);

ModelRope ReadTower(const TowerPart& part, Profile profile);

// How that tower counts the patches of a grid.
TowerGrid ReadTowerGrid(const TowerPart& part);

}  // namespace posenc::core::interpretation
