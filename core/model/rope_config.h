// Reads one dict of rotary parameters: a flat rope_scaling or rope_parameters,
// or one layer type's entry of a nested one.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/model/config.h"
#include "core/model/families.h"
#include "core/model/json_object.h"

namespace posenc::core {

struct RopeDict {
  JsonObject config;  // the language model's part
  JsonObject dict;
  const Family& family;
  // Null where layers of the model do not differ by theta.
  const LayerKind* kind = nullptr;
  bool nested = false;
  // Of these layers; 0 where the config gives none.
  std::int64_t head_dim = 0;
};

// Adds to `rope` what the dict says. Errors go to the status of its objects.
void ReadRopeDict(const RopeDict& from, ModelRope* rope);

// "default", "yarn", ...: aliases resolved.
std::string RopeType(const JsonObject& dict, const Family& family);

// Base of the frequencies, and where it comes from.
double ReadTheta(const RopeDict& from, ModelRope* rope);

}  // namespace posenc::core
