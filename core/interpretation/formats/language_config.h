// Reads the part of a configuration that describes a language model: chooses a
// layer, and reads how it rotates.

#pragma once

#include <memory>
#include <string>

#include "core/interpretation/classes/layers.h"
#include "core/interpretation/classes/profile.h"
#include "core/interpretation/config.h"
#include "core/interpretation/json_object.h"

namespace posenc::core::interpretation {

// The errors of ReadModelConfig() go to the report of `config`.
ModelRope ReadLanguageModel(const JsonObject& config,
                            const std::string& model_type,
                            const Question& question);

// The indexer of sparse attention (DeepSeek V3.2, GLM 5) is a small attention
// beside a layer's attention. It chooses the tokens to which the layer attends.
// It has the layer's frequencies, but its own heads, slice and pairing.
//
// Changes `rope`, that of a layer's attention, into that of its indexer. The
// error is FieldInvalid of "part" if the class has no indexer. `config` is the
// language model's part.
void MakeIndexer(const JsonObject& config, const std::string& model_type,
                 const Family& family, const ProfileRules& rules,
                 ModelRope* rope);

// The dicts of rotary parameters for the layers: one for all layers, or one for
// each type; from the file, or from the class.
struct RopeDicts {
  JsonObject dict;          // flat, or an entry for each type of layer
  bool nested = false;      // has entries
  bool from_class = false;  // `dict` is the class's own
  bool has_kinds = false;   // the family's kinds of layers apply
  bool scales = true;       // false: the class takes no scaling
  // Owns the content of `dict` if it is not part of the file.
  std::shared_ptr<const nlohmann::json> merged = {};
};

// `class_dict` is Family::rope_parameters; it must outlive the result.
RopeDicts ReadRopeDicts(const ModelLayers& model, const ProfileRules& rules,
                        const nlohmann::json& class_dict);

}  // namespace posenc::core::interpretation
