// Reads the rotary encoding of a diffusion transformer from its config.json, by
// the rules of the classes of diffusers 0.42.
//
// Most classes compute frequencies and angles in float64: RotaryAxes and a base
// express their encoding, and exact angles give their tables. Classes that
// compute in float32 get float32 numbers, as towers do (tower_config.h).

#pragma once

#include "core/interpretation/config.h"
#include "core/interpretation/json_object.h"
#include "core/interpretation/source.h"
#include "core/positions/vision_positions.h"

namespace posenc::core::interpretation {

// True for a configuration that diffusers wrote: `_class_name`, no model_type.
bool IsDiffusionConfig(const JsonObject& root);

// Errors: FieldInvalid("part") for text and audio; an unknown class; a bad
// value.
ModelRope ReadDiffusion(const JsonObject& config, ModelPart part,
                        Profile profile);

// Returns the grid of a configuration that ReadDiffusion has accepted.
TowerGrid ReadDiffusionGrid(const JsonObject& config);

}  // namespace posenc::core::interpretation
