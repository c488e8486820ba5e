// runtime.*: the checks of an engine's flags about rotary encodings.

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/doctor/input_checks.h"
#include "core/interpretation/classes/profile.h"

namespace posenc::core::doctor {
namespace {

using interpretation::GgufRope;
using Engine = Runtime::Engine;

// Returns the model's rotary keys: base, rotated share, sections, and the keys
// of the scaling if `scaled`.
json OwnKeys(const ConfigCase& config, bool scaled) {
  const ResolvedRope& rope = config.rope();
  json own = json::object();
  for (const char* name : {"rope_parameters", "rope_scaling"}) {
    const json& dict = ValueAt(config.part(), name);
    for (const auto& [key, value] : dict.items()) {
      if (!dict.is_object() || (!scaled && IsScalingKey(key))) continue;
      own[key == "type" ? "rope_type" : key] = value;
    }
  }
  if (rope.spec.rope_theta) own["rope_theta"] = *rope.spec.rope_theta;
  const interpretation::Family& family = config.family();
  const bool has_share =
      family.width == interpretation::RotaryWidth::kPartial ||
      family.width == interpretation::RotaryWidth::kRotaryDimElsewhere;
  if (has_share && rope.spec.rotary_dim < rope.head_dim &&
      !own.contains("partial_rotary_factor")) {
    own["partial_rotary_factor"] =
        config.Number(family.partial_key)
            .value_or(static_cast<double>(rope.spec.rotary_dim) /
                      static_cast<double>(rope.head_dim));
  }
  return own;
}

// Returns an override of the configuration that adds `scaling` to the model. If
// `scaling` has only a base, the model's own scaling stays. Engines replace the
// whole rope_parameters of the configuration by the rope_parameters of the
// override, so the override also needs the model's own keys. Returns nullopt if
// one dict cannot express the result, for example because each layer type has
// its own dict.
std::optional<json> MergedOverride(const ConfigCase& config,
                                   const json& scaling) {
  if (config.reference() == nullptr || config.groups().size() != 1) {
    return std::nullopt;
  }
  const RopeSpec& spec = config.rope().spec;
  const bool base_alone =
      !scaling.contains("rope_type") && !scaling.contains("factor");
  json override = OwnKeys(config, base_alone && IsScaled(config.rope()));
  override.update(scaling);
  // Reads the configuration that the engine has after the override. The engine
  // then reads only rope_parameters, and no rotary key outside of it.
  const auto taken = config.ResolveChanged([&](json* part) {
    for (const absl::string_view key :
         {absl::string_view("rope_scaling"), absl::string_view("rope_theta"),
          absl::string_view("partial_rotary_factor"), config.family().theta_key,
          config.family().partial_key}) {
      part->erase(std::string(key));
    }
    (*part)["rope_parameters"] = override;
  })[0];
  const auto sections = [](const RopeSpec& of) {
    return of.axes ? std::optional(of.axes->sections) : std::nullopt;
  };
  if (!taken.ok() || taken->spec.rotary_dim != spec.rotary_dim ||
      sections(taken->spec) != sections(spec) ||
      // Some classes ignore the scaling in the dict.
      (scaling.contains("factor") && !IsScaled(*taken)) ||
      (!scaling.contains("rope_theta") &&
       taken->spec.rope_theta != spec.rope_theta)) {
    return std::nullopt;
  }
  return std::make_optional(
      Nested(config.KeyPath("rope_parameters"), std::move(override)));
}

// Returns the dicts of rotary parameters in an override or its parts, with
// their paths.
std::vector<std::pair<std::string, json>> OverridingDicts(
    const json& override) {
  std::vector<std::pair<std::string, json>> dicts;
  for (const auto& [key, value] : override.items()) {
    if (!value.is_object()) continue;
    if (key == "rope_parameters" || key == "rope_scaling") {
      dicts.emplace_back(key, value);
    } else if (absl::EndsWith(key, "_config")) {
      for (auto& [name, dict] : OverridingDicts(value)) {
        dicts.emplace_back(absl::StrCat(key, ".", name), dict);
      }
    }
  }
  return dicts;
}

// Returns the part in which a path has its key: "text_config" for
// "text_config.rope_parameters", and "" for "rope_parameters".
std::string PartOf(absl::string_view path) {
  const std::size_t end = path.rfind('.');
  return std::string(path.substr(0, end == path.npos ? 0 : end));
}

bool GivesTheta(const json& dict) {
  return dict.contains("rope_theta") ||
         std::ranges::any_of(dict, [](const json& value) {
           return value.is_object() && value.contains("rope_theta");
         });
}

struct RuntimeChecks {
  const Runtime& runtime;
  const ConfigCase* const config;  // may be null
  const GgufRope* const gguf;      // may be null
  std::vector<Finding>* const findings;
  const Reading* const reference =
      config == nullptr ? nullptr : config->reference();

  void Add(absl::string_view id, const Values& values, const std::string& key,
           std::vector<Verdict> readers = {}) {
    std::vector<std::string> inputs;
    if (config != nullptr) inputs.push_back(config->path());
    AddFinding(id, values, std::move(inputs), {key}, findings,
               std::move(readers));
  }

  // Returns false if the reader takes rope_theta from the model's class, or if
  // the model's code is stored with the checkpoint and may do the same.
  bool ReadsDictBase(const Reader& reader) const {
    const auto version = interpretation::VersionOf(reader);
    return !interpretation::IsRemote(config->type()) &&
           SpellingRow(reader.profile, version, config->type()).rule !=
               ReadingRule::kParametersUnread &&
           FindReadingRow(reader.profile, version, config->type(),
                          ReadingRule::kFixedBase) == nullptr;
  }

  // Engines keep the base in rope_parameters after they load a model. An
  // override that replaces all of rope_parameters loses the base. vLLM merges a
  // dict in the override of a part into the part's own dict, and replaces a
  // dict of the whole configuration. SGLang since 0.5.23 does the opposite. For
  // both engines, an override outside the part that describes the model has no
  // effect, and a rope_theta outside the dicts has no effect.
  void CheckOverrides() {
    if (reference == nullptr || !config->rope().spec.rope_theta) return;
    const bool sglang = runtime.engine == Engine::kSglang;
    const Reader& reader = *FindReader(sglang ? "sglang" : "vllm");
    const std::string part = PartOf(config->KeyPath("rope_parameters"));
    for (const auto& [flag, text] : runtime.flags) {
      // If a flag is given several times, the last one counts.
      if (!IsOverride(flag) || &text != runtime.Find(flag)) continue;
      const json override = json::parse(text, nullptr, false);
      const json& beside = ValueAt(override, "rope_theta");
      const double theta = beside.is_number() ? beside.get<double>()
                                              : *config->rope().spec.rope_theta;
      if (theta != *config->rope().spec.rope_theta && ReadsDictBase(reader)) {
        const auto merged = MergedOverride(*config, {{"rope_theta", theta}});
        Add("runtime.flag-unread",
            {absl::StrCat(flag, " rope_theta"),
             Say("runtime.theta", {reader.title}),
             merged ? absl::StrCat(flag, " '", merged->dump(), "'")
                    : Say("runtime.into-each", {})},
            "rope_theta");
      }
      for (const auto& [path, dict] : OverridingDicts(override)) {
        const std::string place = PartOf(path);
        if (place != part) {
          if (part.empty() || !absl::StartsWith(part, place)) continue;
          Add("runtime.flag-unread",
              {absl::StrCat(flag, " ", path), Say("runtime.part", {part}),
               Say("runtime.part-fix", {part})},
              path);
          continue;
        }
        if (GivesTheta(dict) || sglang == part.empty()) continue;
        const auto taken_from = [&](json parameters) {
          const auto replace = [&](json* values) {
            values->erase("rope_scaling");
            values->erase("rope_theta");
            values->erase(std::string(config->family().theta_key));
            (*values)["rope_parameters"] = std::move(parameters);
          };
          return config->ResolveChanged(replace, reader)[0];
        };
        const auto taken = taken_from(dict);
        json with_base = dict;
        with_base["rope_theta"] = theta;
        const auto meant = taken_from(with_base);
        if (!meant.ok() || !taken.ok()) continue;
        const Comparison comparison = Compare(*meant, *taken, config->reach());
        if (!comparison.any()) continue;
        Add("runtime.override-drops-theta",
            {absl::StrCat(flag, " ", path), reader.title,
             taken->spec.rope_theta.value_or(0), theta},
            absl::StrCat(path, ".rope_theta"),
            {VerdictOf(comparison, reader, *taken)});
      }
    }
  }

  // Proposes one override in place of the flags that vLLM has removed.
  void CheckGoneFlags() {
    const std::string* const scaling = runtime.Find("--rope-scaling");
    const std::string* const theta = runtime.Find("--rope-theta");
    json parameters = scaling == nullptr ? json() : ParseSmall(*scaling);
    // llama.cpp also has a flag --rope-scaling, which takes a word, not JSON.
    if (runtime.engine != Engine::kVllm &&
        (runtime.engine != Engine::kUnknown ||
         (!parameters.is_object() && theta == nullptr))) {
      return;
    }
    if (!parameters.is_object()) parameters = json::object();
    if (parameters.contains("type") && !parameters.contains("rope_type")) {
      parameters["rope_type"] = parameters["type"];
      parameters.erase("type");
    }
    if (const auto base = runtime.Number("--rope-theta")) {
      parameters["rope_theta"] = *base;
    }
    const auto override =
        config == nullptr ? std::optional(json{{"rope_parameters", parameters}})
                          : MergedOverride(*config, parameters);
    const std::string fix =
        override ? absl::StrCat("--hf-overrides '", override->dump(), "'")
                 : Say("runtime.into-each", {});
    for (const char* flag : {"--rope-scaling", "--rope-theta"}) {
      if (runtime.Find(flag) != nullptr) {
        Add("runtime.flag-gone", {flag, fix}, flag);
      }
    }
  }

  bool HasYarnInFiles() const {
    if (gguf != nullptr) return gguf->ScalingType() == "yarn";
    return reference != nullptr &&
           std::holds_alternative<YarnScaling>(config->rope().spec.scaling);
  }

  void CheckUnreadFlags() {
    const auto tell = [&](const char* flag, const std::string& why,
                          const std::string& fix) {
      if (runtime.Find(flag) == nullptr) return;
      Add("runtime.flag-unread", {flag, why, fix}, flag);
    };
    const std::string* const scaling = runtime.Find("--rope-scaling");
    if (scaling != nullptr ? *scaling == "yarn" : HasYarnInFiles()) {
      tell("--yarn-attn-factor", Say("runtime.attn-factor", {}),
           Say("runtime.attn-factor-fix", {}));
    }
    for (const char* flag : {"--rope-scale", "--rope-freq-scale"}) {
      if (scaling == nullptr || *scaling != "none") continue;
      tell(flag, Say("runtime.none", {}), Say("runtime.none-fix", {flag}));
    }
    const std::string* const base = runtime.Find("--rope-freq-base");
    if (base == nullptr || gguf == nullptr || !gguf->freq_base_swa) return;
    const std::string key = gguf->Key("rope.freq_base_swa");
    for (const auto& [flag, value] : runtime.flags) {
      if (flag == "--override-kv" &&
          absl::StartsWith(value, absl::StrCat(key, "="))) {
        return;
      }
    }
    tell("--rope-freq-base", Say("runtime.sliding", {}),
         Say("runtime.sliding-fix", {key, *base}));
  }

  // True if the command line changes the rope, or the model's length.
  bool ChangesRope() const {
    for (const auto& [flag, text] : runtime.flags) {
      if (IsOverride(flag)
              ? &text == runtime.Find(flag) &&
                    (absl::StrContains(text, "rope") ||
                     absl::StrContains(text, "position"))
              : absl::StartsWith(flag, "--rope-") || flag == "--override-kv") {
        return true;
      }
    }
    return false;
  }

  // Returns flags that apply YaRN to a model of `claimed` positions. Returns ""
  // if flags cannot express this, for example because only some layers must be
  // scaled, or because the model has several position axes.
  std::string YarnFlags(double factor, std::int64_t claimed) const {
    const bool vllm = runtime.engine == Engine::kVllm;
    const bool sglang = runtime.engine == Engine::kSglang;
    if (config != nullptr) {
      if (reference == nullptr || config->groups().size() > 1) return "";
      const RopeSpec& spec = config->rope().spec;
      if (spec.axes || spec.nope || !spec.rope_theta) return "";
    } else if (vllm || sglang || gguf->freq_base_swa ||
               !gguf->sections.empty()) {
      return "";
    }
    if (runtime.engine == Engine::kLlamaCpp || config == nullptr) {
      return absl::StrCat("--rope-scaling yarn --rope-scale ",
                          PlainNumber(factor), " --yarn-orig-ctx ", claimed);
    }
    const auto override = MergedOverride(
        *config, {{"rope_type", "yarn"},
                  {"factor", factor},
                  {"original_max_position_embeddings", claimed}});
    if (!override) return "";
    return absl::StrCat(
        sglang ? "--json-model-override-args" : "--hf-overrides", " '",
        override->dump(), "'");
  }

  // Reports a served length that exceeds the model's length, if nothing scales
  // the model.
  void CheckServedLength() {
    const std::int64_t served = RuntimeLength(runtime);
    if (served == 0 || ChangesRope()) return;
    std::int64_t claimed = 0;
    std::string by;
    bool scaled = false;
    if (config != nullptr) {
      claimed = config->MaxPositions().value_or(0);
      by = absl::StrCat("max_position_embeddings of ", config->path());
      // Some scaled files still state the length before scaling.
      scaled = reference != nullptr &&
               std::ranges::any_of(reference->ropes, [](const auto& rope) {
                 return IsScaled(*rope);
               });
    } else if (gguf != nullptr) {
      claimed = gguf->context_length.value_or(0);
      by = gguf->Key("context_length");
      scaled = gguf->factor || !gguf->rope_freqs.empty() ||
               !gguf->factors_long.empty();
    }
    if (claimed == 0 || served <= claimed || scaled) return;
    const double factor =
        std::ceil(static_cast<double>(served) / static_cast<double>(claimed));
    const std::string flag = *std::ranges::find_if(
        kLengthFlags,
        [&](const char* one) { return runtime.Find(one) != nullptr; });
    const std::string yarn = YarnFlags(factor, claimed);
    Add("runtime.length-beyond",
        {flag, served, by, claimed,
         yarn.empty() ? "" : absl::StrCat(", or scale: ", yarn)},
        flag);
  }
};

}  // namespace

void CheckRuntime(const Runtime& runtime, const ConfigCase* config,
                  const interpretation::GgufRope* gguf,
                  std::vector<Finding>* findings) {
  RuntimeChecks checks = {runtime, config, gguf, findings};
  checks.CheckOverrides();
  checks.CheckGoneFlags();
  checks.CheckUnreadFlags();
  checks.CheckServedLength();
}

}  // namespace posenc::core::doctor
