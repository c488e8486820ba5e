// The indexer of sparse attention (DeepSeek V3.2, GLM 5): a small attention
// beside a layer's own, which chooses the tokens that the layer attends to. It
// turns by the layer's frequencies, in heads, a slice and pairs of its own.

#pragma once

#include <string>

#include "core/interpretation/config.h"
#include "core/interpretation/families.h"
#include "core/interpretation/json_object.h"
#include "core/interpretation/profile.h"

namespace posenc::core::interpretation {

// Makes `rope`, which is that of a layer's attention, its indexer's.
// The error is FieldInvalid of "part" if the class has none. `config` is the
// language model's part.
void MakeIndexer(const JsonObject& config, const std::string& model_type,
                 const Family& family, const ProfileRules& rules,
                 ModelRope* rope);

}  // namespace posenc::core::interpretation
