// Reads the part of a configuration that describes a language model: which of
// its layers is meant, and what that layer is rotated by.

#pragma once

#include <memory>
#include <string>

#include "core/interpretation/classes/layers.h"
#include "core/interpretation/classes/profile.h"
#include "core/interpretation/config.h"
#include "core/interpretation/json_object.h"

namespace posenc::core::interpretation {

// Errors, which are ReadModelConfig()'s, go to the report of `config`.
ModelRope ReadLanguageModel(const JsonObject& config,
                            const std::string& model_type,
                            const Question& question);

// The indexer of sparse attention (DeepSeek V3.2, GLM 5) is a small attention
// beside a layer's own, which chooses the tokens that the layer attends to. It
// turns by the layer's frequencies, in heads, a slice and pairs of its own.
//
// Makes `rope`, which is that of a layer's attention, its indexer's.
// The error is FieldInvalid of "part" if the class has none. `config` is the
// language model's part.
void MakeIndexer(const JsonObject& config, const std::string& model_type,
                 const Family& family, const ProfileRules& rules,
                 ModelRope* rope);

// The dicts of rotary parameters that a configuration gives its layers: one for
// all, or one for each type, its own or its class's.
struct RopeDicts {
  JsonObject dict;          // flat, or an entry for each type of layer
  bool nested = false;      // has entries
  bool from_class = false;  // `dict` is the class's own
  bool has_kinds = false;   // the family's kinds of layers count
  bool scales = true;       // false: the class takes no scaling
  // Owns what `dict` refers to, if it is no part of the file.
  std::shared_ptr<const nlohmann::json> merged = {};
};

// `class_dict` is Family::rope_parameters; it must outlive the result.
RopeDicts ReadRopeDicts(const ModelLayers& model, const ProfileRules& rules,
                        const nlohmann::json& class_dict);

}  // namespace posenc::core::interpretation
