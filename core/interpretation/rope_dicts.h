// The dicts of rotary parameters that a configuration gives its layers: one for
// all, or one for each type, its own or its class's.

#pragma once

#include "core/interpretation/json_object.h"
#include "core/interpretation/layers.h"
#include "core/interpretation/profile.h"

namespace posenc::core::interpretation {

struct RopeDicts {
  JsonObject dict;          // flat, or an entry for each type of layer
  bool nested = false;      // has entries
  bool from_class = false;  // `dict` is the class's own
  bool has_kinds = false;   // the family's kinds of layers count
  bool scales = true;       // false: the class takes no scaling
};

// `class_dict` is Family::rope_parameters; it must outlive the result.
RopeDicts ReadRopeDicts(const ModelLayers& model, const ProfileRules& rules,
                        const nlohmann::json& class_dict);

}  // namespace posenc::core::interpretation
