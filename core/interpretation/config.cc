#include "core/interpretation/config.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/interpretation/classes/class_defaults.h"
#include "core/interpretation/classes/families.h"
#include "core/interpretation/classes/known_keys.h"
#include "core/interpretation/classes/profile.h"
#include "core/interpretation/composite.h"
#include "core/interpretation/formats/diffusion_config.h"
#include "core/interpretation/formats/language_config.h"
#include "core/interpretation/formats/native_config.h"
#include "core/interpretation/formats/tower_config.h"
#include "core/interpretation/json_object.h"
#include "core/interpretation/provenance.h"
#include "core/interpretation/resolve_json.h"

// This file finds out what a configuration describes: a diffusion transformer,
// a tower or a language model. A language model's configuration may be in the
// format of transformers or of another project. language_config.h,
// tower_config.h, diffusion_config.h and native_config.h then read the
// configuration.
namespace posenc::core::interpretation {
namespace {

// True if the text looks like the name of a file instead of its content.
bool LooksLikePath(absl::string_view text) {
  text = absl::StripAsciiWhitespace(text);
  return text.find_first_of("{\n") == absl::string_view::npos &&
         (text.find_first_of("/\\") != absl::string_view::npos ||
          absl::EndsWith(text, ".json"));
}

// Reports an error if a layer is chosen although the layers do not differ.
void CheckNoLayer(const Question& question, absl::string_view whose,
                  Report* report) {
  if (!question.layer_type && !question.layer_index) return;
  report->Refuse(FieldInvalid(
      question.layer_type ? "layer_type" : "layer_index",
      absl::StrCat(whose, " layers do not differ; leave it unset")));
}

// Reads a language model's part in transformers' spelling. `of_parent` are the
// keys that AddParentsDefaults() added.
ModelRope ReadPart(JsonObject config, std::string model_type,
                   const Question& question,
                   const std::vector<std::string>& of_parent) {
  const ProfileRules rules = RulesFor(question.reader, ModelKey(model_type));
  // The small language models of DeepSeek-VL2 and DeepSeek-OCR have the type
  // deepseek_v2, but not the latent attention of that type. These models are
  // read as type deepseek.
  if (config.At("use_mla") == false &&
      FindFamily(model_type).width == RotaryWidth::kMla) {
    model_type = "deepseek";
    config.Warn("use_mla",
                " is false: the code beside the checkpoint then has Llama's "
                "attention, but transformers' class of model_type deepseek_v2 "
                "has no such switch; Llama's attention is read");
  }
  ClassKeys keys;
  const Family& family = FindFamily(model_type);
  const ClassDefaults* defaults = family.known() && ReadsByClass(rules)
                                      ? FindClassDefaults(ModelKey(model_type))
                                      : nullptr;
  if (defaults != nullptr || family.width == RotaryWidth::kMla) {
    keys = ReadAsClass(config, defaults, family, rules, model_type);
    config = config.With(&keys.config);
  }
  ModelRope rope = ReadLanguageModel(config, model_type, question);
  keys.filled.insert(keys.filled.end(), of_parent.begin(), of_parent.end());
  for (const std::string& key : keys.filled) {
    if (!config.Contains(key) || !config.WasRead(key)) continue;
    // transformers has no class for a remote type, so the default does not come
    // from transformers.
    config.Assume(key, Shortened(config.At(key)),
                  rules.profile == Profile::kHf && IsRemote(model_type)
                      ? "absent; default of the code beside its checkpoint"
                      : DefaultOf(rules));
  }
  return rope;
}

// Reads a file whose JSON is an object. Errors go to the report.
ModelRope ReadRoot(const json& given, Question question, Report* report) {
  const Profile profile = question.reader.profile;
  json filled;
  std::vector<std::string> of_parent;
  if (ReadsByClass(RulesOf(profile)) && given.contains("text_config")) {
    filled = given;
    of_parent = AddParentsDefaults(&filled);
  }
  const json& root = of_parent.empty() ? given : filled;
  std::string model_type;
  const JsonObject whole(&root, "", report);
  JsonObject config = whole;
  if (IsDiffusionConfig(whole)) {
    const ModelRope rope = ReadDiffusion(whole, question.part, profile);
    CheckNoLayer(question, "a diffusion transformer's", report);
    return rope;
  }
  if (question.part == ModelPart::kVision ||
      question.part == ModelPart::kAudio || IsTowerConfig(whole)) {
    const TowerPart tower = FindTowerPart(whole, question.part);
    if (!report->ok()) return {};
    if (tower.tower != nullptr) {
      CheckNoLayer(question, "a tower's", report);
      return ReadTower(tower, profile);
    }
    config = tower.config;
    model_type = tower.model_type;
  } else {
    config = LanguagePart(whole, &model_type);
    if (!config.Path().empty()) CheckKnownKeys(whole);
  }
  if (!report->ok()) return {};
  const Respelled respelled =
      InTransformersSpelling(config, model_type, &question.reader);
  if (!report->ok()) return {};
  if (respelled.config.is_object()) {
    config = JsonObject(&respelled.config, config.Path(), report,
                        std::make_shared<const GivenKeys>(respelled.given));
    model_type = config.Text("model_type").value_or(model_type);
  }
  ModelRope rope = ReadPart(config, model_type, question, of_parent);
  if (report->ok() && profile == Profile::kHf) WarnOfFile(root, report);
  return rope;
}

// Returns an error if the JSON is not a configuration.
absl::Status CheckRoot(const json& root) {
  if (!root.is_object()) {
    return ConfigError("", absl::StrCat("is JSON of type ", root.type_name(),
                                        "; it must be an object"));
  }
  if (root.contains("general.architecture")) {
    return ConfigError("general.architecture",
                       "is a key of a GGUF file's metadata, which is not read "
                       "as JSON; send the model's config.json");
  }
  return absl::OkStatus();
}

// Warns of facts about the text that the parsed JSON does not keep.
void WarnOfText(const JsonText& text, const ProfileRules& rules,
                Report* report) {
  for (const JsonText::Twice& twice : text.twice) {
    report->Warn(twice.path, " stands twice, as ", twice.first, " and as ",
                 twice.last, "; every reader takes the last: remove one");
  }
  if (!ReadsByClass(rules)) return;
  for (const JsonText::LongInteger& integer : text.long_integers) {
    report->Warn(integer.path, " is ", integer.digits,
                 ", an integer past 64 bits, and transformers fails when it "
                 "computes with it; read as a float: write it with a point");
  }
}

}  // namespace

absl::StatusOr<ModelRope> ReadModelJson(const json& root,
                                        const Question& question) {
  RETURN_IF_ERROR(CheckRoot(root));
  Report report;
  ModelRope rope = ReadRoot(root, question, &report);
  if (!report.ok()) return report.status;
  rope.report = std::move(report);
  return rope;
}

absl::StatusOr<ModelRope> ReadModelConfig(absl::string_view config_json,
                                          const Question& question) {
  const ParsedText parsed = ParseText(config_json);
  if (!parsed.text.fault.empty()) {
    return LooksLikePath(config_json)
               ? ConfigError("", "is not JSON: a path? send the file's text")
               : ConfigError(parsed.text.fault_path, parsed.text.fault);
  }
  absl::StatusOr<ModelRope> rope = ReadModelJson(parsed.value, question);
  if (rope.ok()) {
    WarnOfText(parsed.text, RulesOf(question.reader.profile), &rope->report);
  }
  return rope;
}

}  // namespace posenc::core::interpretation
