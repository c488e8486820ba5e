// Reads the part of a configuration that describes a language model: chooses a
// layer, and reads the rotary encoding of that layer.

#pragma once

#include <memory>
#include <string>

#include "core/interpretation/classes/layers.h"
#include "core/interpretation/classes/profile.h"
#include "core/interpretation/config.h"
#include "core/interpretation/json_object.h"

namespace posenc::core::interpretation {

// Reads the encoding of a layer's attention, or of its indexer. Reports the
// errors of ReadModelConfig() to the report of `config`.
//
// The indexer of sparse attention (DeepSeek V3.2, GLM 5) is a small attention
// module next to the attention of a layer. The indexer chooses the tokens to
// which the layer attends. The indexer has the layer's frequencies, but its own
// heads, slice and pairing. If the question asks for the indexer and the class
// has none, the error is FieldInvalid of "part".
ModelRope ReadLanguageModel(const JsonObject& config,
                            const std::string& model_type,
                            const Question& question);

// The rotary parameters of the layers: one dict for all layers, or one for each
// layer type. These parameters come from the file or from the class.
struct RopeDicts {
  JsonObject dict;          // flat, or with an entry for each layer type
  bool nested = false;      // `dict` has entries for layer types
  bool from_class = false;  // `dict` is the class's default
  bool has_kinds = false;   // Family::kinds applies
  bool scales = true;       // false: the class does not scale
  // Owns the JSON of `dict` if MergeScaling() made that JSON (rope_dicts.cc).
  std::shared_ptr<const json> merged = {};
};

// `class_dict` is the parsed Family::rope_parameters, and must outlive the
// result.
RopeDicts ReadRopeDicts(const Model& model, const json& class_dict);

}  // namespace posenc::core::interpretation
