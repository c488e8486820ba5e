#include "core/interpretation/config.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/error.h"
#include "core/interpretation/class_defaults.h"
#include "core/interpretation/class_keys.h"
#include "core/interpretation/composite.h"
#include "core/interpretation/diffusion_config.h"
#include "core/interpretation/families.h"
#include "core/interpretation/indexer.h"
#include "core/interpretation/json_object.h"
#include "core/interpretation/json_text.h"
#include "core/interpretation/known_keys.h"
#include "core/interpretation/language_config.h"
#include "core/interpretation/native_config.h"
#include "core/interpretation/parsed_text.h"
#include "core/interpretation/profile.h"
#include "core/interpretation/provenance.h"
#include "core/interpretation/rope_dicts.h"
#include "core/interpretation/tower_config.h"

// A file is taken apart here: it is a diffusion transformer's, or a tower's, or
// has a part that describes a language model, in transformers' format or in
// that of another project. What the part says is read in language_config.h,
// tower_config.h, diffusion_config.h and native_config.h.
namespace posenc::core::interpretation {
namespace {

using nlohmann::json;

// The type of the classes of DeepSeek's first models, before latent attention.
constexpr char kPlainDeepSeek[] = "deepseek";

// DeepSeek-VL2's and DeepSeek-OCR's small language models are of type
// deepseek_v2, with its attention turned off.
bool IsPlainAttention(const JsonObject& config, const std::string& model_type) {
  bool known = false;
  if (FindFamily(model_type, &known).width != RotaryWidth::kMla) return false;
  const json* latent = config.Find("use_mla");
  return latent != nullptr && *latent == false;
}

// Whether somebody sent the name of a file in place of what it holds.
bool LooksLikePath(absl::string_view text) {
  text = absl::StripAsciiWhitespace(text);
  return text.find_first_of("{\n") == absl::string_view::npos &&
         (text.find_first_of("/\\") != absl::string_view::npos ||
          absl::EndsWith(text, ".json"));
}

// Reads a language model's part, in transformers' spelling or Mistral's.
// `of_parent` are keys that the file leaves to the class of the whole model.
absl::StatusOr<ModelRope> ReadPart(
    JsonObject config, std::string model_type, const ProfileVersion& reader,
    const std::optional<std::string>& layer_type,
    const std::optional<std::int32_t>& layer_index, ModelPart part,
    const std::vector<std::string>& of_parent, absl::Status* status) {
  const ProfileRules& rules = RulesOf(reader.profile);
  const bool is_plain = IsPlainAttention(config, model_type);
  if (is_plain) model_type = kPlainDeepSeek;
  absl::StatusOr<ModelRope> rope;
  ClassKeys keys;
  bool known = false;
  const Family& family = FindFamily(model_type, &known);
  const ClassDefaults* defaults = known && ReadsByClass(rules)
                                      ? FindClassDefaults(ModelKey(model_type))
                                      : nullptr;
  if (defaults != nullptr) {
    keys = ReadAsClass(config, *defaults, family, model_type, rules.project);
    config = config.With(&keys.config);
  } else if (family.width == RotaryWidth::kMla) {
    keys = FillSlices(config, RulesFor(reader), model_type);
    config = config.With(&keys.config);
  }
  if (IsMistralParams(config) && model_type.empty()) {
    rope = ReadMistralParams(config, reader.profile, layer_type, layer_index);
  } else if (part == ModelPart::kIndexer && !family.indexer_type.empty()) {
    rope = ReadLanguageModel(config, model_type, reader,
                             std::string(family.indexer_type), std::nullopt,
                             status);
  } else {
    rope = ReadLanguageModel(config, model_type, reader, layer_type,
                             layer_index, status);
  }
  if (part == ModelPart::kIndexer && rope.ok()) {
    const absl::Status made =
        MakeIndexer(config, model_type, family, rules, &*rope);
    if (!made.ok()) return made;
  }
  // A value of the wrong type explains what failed after it.
  if (!status->ok()) return *status;
  if (!rope.ok()) return rope;
  keys.filled.insert(keys.filled.end(), of_parent.begin(), of_parent.end());
  for (const std::string& key : keys.filled) {
    const json* value = config.Find(key);
    if (value == nullptr || !config.WasRead(key)) continue;
    // transformers has no class of a remote type to have a default.
    Assume(config.Path(key), Shortened(*value),
           rules.profile == Profile::kHf && IsRemote(model_type)
               ? "absent; default of the code beside its checkpoint"
               : DefaultOf(rules),
           &*rope);
  }
  rope->warnings.insert(rope->warnings.end(), keys.warnings.begin(),
                        keys.warnings.end());
  if (is_plain) {
    Warn(&rope->warnings, config, "use_mla",
         " is false: the code beside the checkpoint has Llama's attention, and "
         "transformers' class of model_type deepseek_v2 no such switch; the "
         "former is read");
  }
  return rope;
}

// ReadModelConfig() for a text that is neither too long nor too deep.
absl::StatusOr<ModelRope> ReadText(
    absl::string_view config_json, const JsonText& text, json root,
    const ProfileVersion& reader, const std::optional<std::string>& layer_type,
    const std::optional<std::int32_t>& layer_index, ModelPart part) {
  const Profile profile = reader.profile;
  absl::Status status;
  if (!text.fault.empty()) {
    return LooksLikePath(config_json)
               ? ConfigError("", "is not JSON: a path? send the file's text")
               : ConfigError(text.fault_path, text.fault);
  }
  if (!root.is_object()) {
    return ConfigError("", absl::StrCat("is JSON of type ", root.type_name(),
                                        "; it must be an object"));
  }
  if (root.contains("general.architecture")) {
    return ConfigError("general.architecture",
                       "is a key of a GGUF file's metadata, which is not read "
                       "as JSON; send the model's config.json");
  }
  std::vector<std::string> of_parent;
  if (ReadsByClass(RulesOf(profile))) of_parent = AddParentsDefaults(&root);
  std::string model_type;
  const JsonObject whole(&root, "", &status);
  JsonObject config = whole;
  if (IsDiffusionConfig(whole)) {
    absl::StatusOr<ModelRope> rope = ReadDiffusion(whole, part, profile);
    if (rope.ok() && (layer_type || layer_index)) {
      return FieldInvalid(
          layer_type ? "layer_type" : "layer_index",
          "a diffusion transformer's layers do not differ; leave it unset");
    }
    if (!status.ok()) return status;
    return rope;
  }
  if (part == ModelPart::kVision || part == ModelPart::kAudio ||
      IsTowerConfig(whole)) {
    const absl::StatusOr<TowerPart> tower = FindTowerPart(whole, part);
    if (!status.ok()) return status;
    if (!tower.ok()) return tower.status();
    if (tower->tower != nullptr) {
      if (layer_type || layer_index) {
        return FieldInvalid(layer_type ? "layer_type" : "layer_index",
                            "a tower's layers do not differ; leave it unset");
      }
      ModelRope rope = ReadTower(*tower, profile);
      if (!status.ok()) return status;
      return rope;
    }
    config = tower->config;
    model_type = tower->model_type;
  } else {
    config = LanguagePart(whole, &model_type);
    if (!config.Path().empty()) CheckKnownKeys(whole);
    if (!status.ok()) return status;
  }
  Respelled respelled;
  if (IsGptOssConfig(config)) {
    respelled = GptOssAsTransformers(config);
    model_type = "gpt_oss";
  } else if (IsStepConfig(config)) {
    respelled = StepAsTransformers(config);
  } else if (IsChatGlmConfig(config)) {
    respelled = ChatGlmAsTransformers(config);
  }
  if (!status.ok()) return status;
  if (respelled.config.is_object()) {
    config = JsonObject(&respelled.config, config.Path(), &status,
                        std::make_shared<const GivenKeys>(respelled.given));
  }
  absl::StatusOr<ModelRope> rope =
      ReadPart(config, model_type, reader, layer_type, layer_index, part,
               of_parent, &status);
  if (rope.ok() && profile == Profile::kHf) {
    WarnOfFile(root, &rope->warnings);
  }
  return rope;
}

// What a reader of the text sees, and one of its JSON does not.
void WarnOfText(const JsonText& text, const ProfileRules& rules,
                std::vector<std::string>* warnings) {
  for (const JsonText::Twice& twice : text.twice) {
    warnings->push_back(
        absl::StrCat(twice.path, " stands twice, as ", twice.first, " and as ",
                     twice.last, "; every reader takes the last: remove one"));
  }
  if (!ReadsByClass(rules)) return;
  for (const JsonText::LongInteger& integer : text.long_integers) {
    warnings->push_back(absl::StrCat(
        integer.path, " is ", integer.digits,
        ", an integer past 64 bits, at which transformers fails where it "
        "computes with it; read as a float: write it with a point"));
  }
}

}  // namespace

absl::StatusOr<ModelRope> ReadModelConfig(
    absl::string_view config_json, const ProfileVersion& reader,
    const std::optional<std::string>& layer_type,
    const std::optional<std::int32_t>& layer_index, ModelPart part) {
  const absl::Status size = CheckJsonSize(config_json);
  if (!size.ok()) return size;
  ParsedText parsed = ParseText(config_json);
  absl::StatusOr<ModelRope> rope =
      ReadText(config_json, parsed.text, std::move(parsed.value), reader,
               layer_type, layer_index, part);
  if (rope.ok()) {
    WarnOfText(parsed.text, RulesOf(reader.profile), &rope->warnings);
  }
  return rope;
}

}  // namespace posenc::core::interpretation
