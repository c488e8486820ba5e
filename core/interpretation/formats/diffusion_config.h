// Reads the rotary encoding of a diffusion transformer out of its config.json,
// as the classes of diffusers 0.42 have it.
//
// Most of them compute frequencies and angles in float64: their encoding is the
// formula's (RotaryAxes, a base), and exact angles give their tables. Classes
// that compute in float32 get float32 numbers, as towers do (tower_config.h).

#pragma once

#include "core/interpretation/config.h"
#include "core/interpretation/json_object.h"
#include "core/interpretation/source.h"
#include "core/positions/vision_positions.h"

namespace posenc::core::interpretation {

// True for a configuration that diffusers wrote: `_class_name`, no model_type.
bool IsDiffusionConfig(const JsonObject& root);

// Errors: FieldInvalid("part") for text and audio; a class that is not known;
// those of values.
ModelRope ReadDiffusion(const JsonObject& config, ModelPart part,
                        Profile profile);

// The grid of a configuration that ReadDiffusion has taken.
TowerGrid ReadDiffusionGrid(const JsonObject& config);

}  // namespace posenc::core::interpretation
