// Reads the rotary encoding of a diffusion transformer from its config.json, by
// the rules of the classes of diffusers 0.42.
//
// Most classes compute frequencies and angles in float64. The encoding of these
// classes is read as RotaryAxes and a base, and exact angles reproduce the
// tables of the classes. For classes that compute in float32, the frequencies
// are read as float32 numbers, like the frequencies of towers (tower_config.h).

#pragma once

#include "core/interpretation/config.h"
#include "core/interpretation/json_object.h"
#include "core/interpretation/source.h"

namespace posenc::core::interpretation {

// True for a configuration that diffusers wrote: it has `_class_name` and no
// model_type.
bool IsDiffusionConfig(const JsonObject& root);

// Reports FieldInvalid of "part" if `part` is set and is not vision. Reports
// kModelConfigInvalid for an unknown class or an invalid value.
ModelRope ReadDiffusion(const JsonObject& config, ModelPart part,
                        Profile profile);

}  // namespace posenc::core::interpretation
