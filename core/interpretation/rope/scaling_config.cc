#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "core/angle/wide.h"
#include "core/base/error.h"
#include "core/interpretation/provenance.h"
#include "core/interpretation/rope/rope_config.h"

namespace posenc::core::interpretation {
namespace {

// True if transformers' class has a dict for each layer type, even if the class
// copies all these dicts from a flat dict. Such a class reads no
// original_max_position_embeddings outside of the dicts.
bool HasDictForEachType(const RopeDict& from) {
  return from.by_class() &&
         (from.nested || !from.family.kinds[0].type.empty() ||
          from.family.dicts == DictRule::kNested);
}

// Returns original_max_position_embeddings, if the dict or the configuration
// gives it. transformers moves a value outside of a flat dict into the dict, so
// that value replaces the dict's own value. In a nested dict, and in mlx-lm and
// exllamav3, the dict's own value comes first.
std::optional<Value> GivenOriginal(const RopeDict& from) {
  const auto inner = IntegerAt(from.dict, kOriginal);
  if (HasDictForEachType(from)) return inner;
  const auto outer = IntegerAt(from.config, kOriginal);
  const bool inner_first = from.nested || from.rules.profile == Profile::kMlx ||
                           from.rules.profile == Profile::kExllamav3;
  return inner_first ? (inner ? inner : outer) : (outer ? outer : inner);
}

void ReadLongRope(const RopeDict& from, ModelRope* rope) {
  const JsonObject& dict = from.dict;
  const Profile profile = from.rules.profile;
  LongRopeScaling longrope;
  for (const auto& [key, values] :
       {std::pair("short_factor", &longrope.short_factor),
        std::pair("long_factor", &longrope.long_factor)}) {
    *values = dict.Numbers(key);
    if (!dict.Has(key)) {
      dict.Fail(key, "is missing; rope type longrope needs it");
    }
  }
  const std::int64_t original = ReadOriginalMaxPositionEmbeddings(
      from, IsAmong(from.rules.project, "llama.cpp mlx-lm") ? 0 : -1);
  longrope.original_max_position_embeddings = original;
  if (from.is_hf()) {
    longrope.factor = dict.Number("factor");
    longrope.attention_factor = dict.Number("attention_factor");
    if (longrope.factor) WarnOfFactor(from, *longrope.factor, original);
  }
  if (const ReadingRow* const row = from.Row(ReadingRule::kReadsMscales)) {
    for (const auto& [key, value] :
         {std::pair("long_mscale", &longrope.long_mscale),
          std::pair("short_mscale", &longrope.short_mscale)}) {
      if (IsAmong(key, row->what)) *value = dict.Number(key);
    }
    if (from.is_hf() && !(longrope.short_mscale && longrope.long_mscale)) {
      dict.Warn(longrope.short_mscale ? "long_mscale" : "short_mscale",
                " is absent, and ", from.Class(),
                " refuses that; the amplitude is longrope's own");
    }
  }
  if (const ReadingRow* const row = from.Row(ReadingRule::kShortFactors);
      row != nullptr && longrope.long_factor != longrope.short_factor) {
    dict.Warn("long_factor", " is not used: ", from.Class(), " ", row->says,
              "; past ", original, " tokens it is used here");
  }
  const auto trained = dict.Integer(kOriginal);
  if (from.is_hf() && trained && from.family.original > 0 &&
      !from.config.Has(kOriginal) && *trained != from.family.original) {
    dict.Warn(
        kOriginal, " is ", *trained, ", and ", from.Class(),
        " reads only the key beside the dict, which is absent, and takes ",
        from.family.original, "; ", *trained, " is used");
  }
  if (!longrope.factor && !longrope.attention_factor &&
      !(longrope.short_mscale && longrope.long_mscale)) {
    longrope.factor = static_cast<double>(RequiredMaximum(
                          from, "the factor of longrope is derived from it")) /
                      static_cast<double>(original);
    dict.Assume("factor", NumberText(*longrope.factor),
                from.is_hf()
                    ? "absent; max_position_embeddings / original"
                    : absl::StrCat("not read by ", from.rules.project,
                                   "; max_position_embeddings / original"));
  }
  if (!from.is_hf() && rope->spec.pairing == Pairing::kInterleaved &&
      profile != Profile::kLlamaCpp) {
    dict.Fail(TypeKey(dict), "is longrope on a model of interleaved pairs; ",
              from.rules.project, " has it for half-split only");
  }
  if (from.rules.longrope == LongRopeChoice::kOnce) {
    rope->length = RequiredMaximum(from, "it chooses between the factors");
    rope->length_reason = absl::StrCat(
        "unset; max_position_embeddings: ", from.rules.project,
        " chooses between the lists of longrope once, by the longest sequence "
        "it is set up for");
  } else if (from.rules.longrope == LongRopeChoice::kAlwaysLong) {
    rope->length = original + 1;
  }
  rope->spec.scaling = std::move(longrope);
}

std::vector<Wide> GeometricFrequencies(const RopeSpec& spec,
                                       const Wide& ln_theta) {
  const std::int32_t n = spec.rotary_dim / 2;
  return Powers(Exp(-ln_theta / n), n);
}

// Llama 3's scaling interpolates in a band between its two factors. If
// low_freq_factor = high_freq_factor, the band is empty, and the scaling has a
// step. Llama3Scaling cannot express a step, so the frequencies become
// explicit.
void StepAt(const Llama3Scaling& llama3, Report* report, RopeSpec* spec) {
  const double low = llama3.low_freq_factor;
  std::vector<double> inv_freq;
  for (const Wide& w : GeometricFrequencies(*spec, Log(*spec->rope_theta))) {
    const Wide rotations =
        static_cast<double>(llama3.original_max_position_embeddings) * w /
        (2 * kWidePi);
    inv_freq.push_back((rotations < low ? w / llama3.factor : w).high);
  }
  report->Assume("scaling", "step",
                 absl::StrCat("low_freq_factor and high_freq_factor are both ",
                              NumberText(low), ": no band to blend in"));
  WriteOutFrequencies(inv_freq, spec);
}

void ReadLlama3(const RopeDict& from, RopeSpec* spec) {
  constexpr char kWhy[] = "rope type llama3 needs it";
  const auto frequency_factor = [&](absl::string_view key, double otherwise) {
    if (!from.rules.llama3_defaults || from.dict.Has(key)) {
      return from.dict.RequiredNumber(key, kWhy);
    }
    from.dict.Assume(key, NumberText(otherwise), DefaultOf(from.rules));
    return otherwise;
  };
  Llama3Scaling llama3;
  llama3.factor = RequiredFactor(from);
  llama3.low_freq_factor = frequency_factor("low_freq_factor", 1);
  llama3.high_freq_factor = frequency_factor("high_freq_factor", 4);
  llama3.original_max_position_embeddings =
      ReadOriginalMaxPositionEmbeddings(from, from.rules.llama3_original);
  // If both factors are equal, all projects scale by a step.
  if (llama3.low_freq_factor == llama3.high_freq_factor &&
      llama3.low_freq_factor > 0 && llama3.factor > 0 &&
      llama3.original_max_position_embeddings > 0) {
    StepAt(llama3, &from.report(), spec);
    return;
  }
  spec->scaling = llama3;
}

// vLLM makes one table for all lengths. Before 0.22.0, the table was for the
// longest sequence L = Lmax * s. For that L, the formula s * L / Lmax - (s - 1)
// gives s * s - (s - 1). Since 0.22.0, the table is for Lmax, and the formula
// has the training length T: s * Lmax / T - (s - 1).
void ReadVllmDynamic(const RopeDict& from, double s, RopeSpec* spec) {
  if (from.Row(ReadingRule::kDynamicConstant) != nullptr) {
    const double constant = s * s - (s - 1);
    spec->scaling = NtkScaling{constant};
    from.report().Assume(
        "ntk.factor", NumberText(constant),
        absl::StrCat("dynamic by s = ", NumberText(s), ": ", from.rules.project,
                     " makes one table, of s * s - (s - 1), for every "
                     "length"));
    return;
  }
  constexpr absl::string_view kTrained = "max_trained_positions";
  const std::int64_t longest =
      RequiredMaximum(from, "rope type dynamic needs it");
  auto trained = from.dict.Integer(kTrained);
  if (!trained && from.Row(ReadingRule::kTrainedBeside) != nullptr) {
    trained = from.config.Integer(kTrained);
  }
  if (!trained) {
    from.dict.Warn(
        TypeKey(from.dict),
        " is dynamic: transformers scales sequences past "
        "max_position_embeddings ",
        longest, "; vLLM since 0.22.0 scales by max_position_embeddings / ",
        kTrained,
        ", which is absent: frequencies are unscaled at every length");
    return;
  }
  const double factor =
      s * static_cast<double>(longest) / static_cast<double>(*trained) -
      (s - 1);
  if (*trained < 1 || !(factor > 0)) {
    from.dict.Fail(kTrained, "is ", *trained, ", and factor ", NumberText(s),
                   " * max_position_embeddings ", longest, " / ", *trained,
                   " - (factor - 1) is ", NumberText(factor),
                   "; vLLM takes a root of it");
    return;
  }
  if (longest == *trained) return;
  if (longest < *trained) {
    from.dict.Warn(kTrained, " ", *trained,
                   " is more than max_position_embeddings ", longest,
                   "; vLLM shrinks the base by it");
  }
  spec->scaling = NtkScaling{factor};
  from.report().Assume(
      "ntk.factor", NumberText(factor),
      absl::StrCat("dynamic by s = ", NumberText(s),
                   ": vLLM makes one table, of s * L / T - (s - 1); L is "
                   "max_position_embeddings ",
                   longest, ", and T is ", kTrained, " ", *trained));
}

void ReadDynamic(const RopeDict& from, RopeSpec* spec) {
  const JsonObject& dict = from.dict;
  const Profile profile = from.rules.profile;
  if (ScalesBaseByAlpha(from)) {
    // Hunyuan's alpha changes the base in the same way for every length.
    // Published dicts with alpha have a factor of 1, which has no effect.
    if (!dict.Contains("factor") && from.is_hf()) {
      dict.Warn(
          "factor",
          " is absent, and transformers refuses that; alpha sets the base");
    }
    if (dict.Number("factor").value_or(1) == 1) {
      for (const absl::string_view key :
           {"beta_fast", "beta_slow", "mscale", "mscale_all_dim"}) {
        dict.MarkRead(key);
      }
    } else {
      dict.Warn("factor", " is not used: alpha sets the base");
    }
    if (dict.HasNull("alpha")) {
      dict.Fail("alpha", "is null, and ", from.rules.project,
                " multiplies the base by a power of it: remove the key");
    }
    spec->scaling = NtkScaling{dict.Number("alpha").value_or(0)};
    from.report().given_by["factor"] = dict.Path("alpha");
    return;
  }
  if (profile == Profile::kLlamaCpp) {
    from.report().Warn(
        "llama.cpp's converter has no dynamic scaling: frequencies are "
        "unscaled at every length");
    return;
  }
  const double factor = RequiredFactor(from);
  if (from.rules.vllm_modules) {
    ReadVllmDynamic(from, factor, spec);
    return;
  }
  const std::int64_t maximum =
      RequiredMaximum(from, "rope type dynamic needs it");
  if (!std::isfinite(factor * static_cast<double>(maximum))) {
    dict.Fail("factor", "is ", NumberText(factor), ", and times ",
              "max_position_embeddings ", maximum, " not finite");
  }
  spec->scaling = DynamicNtkScaling{factor, maximum};
}

// Static NTK, in vLLM and in gte's own code, multiplies the base by the factor
// s and divides each frequency by s^(2/d). With mixed_b = b, the base stays the
// same, and the frequency of pair m (from 1) is divided by exp(a m^b), where a
// = ln(s) / (d/2)^b.
void ReadStaticNtk(const RopeDict& from, RopeSpec* spec) {
  const double factor = RequiredFactor(from);
  const auto mixed_b = from.dict.Number("mixed_b");
  const double theta = *spec->rope_theta;
  const double n = spec->rotary_dim / 2.0;
  if (!(factor > 0 && theta > 0)) {
    from.dict.Fail("factor", "is ", NumberText(factor), "; must be > 0");
    return;
  }
  std::vector<double> inv_freq;
  const Wide ln_factor = Log(factor);
  double m = 1;
  for (const Wide& w : GeometricFrequencies(
           *spec, mixed_b ? Log(theta) : Log(theta) + ln_factor)) {
    const Wide share = mixed_b ? Exp(*mixed_b * Log(Wide(m) / n)) : 1 / Wide(n);
    inv_freq.push_back((w / Exp(ln_factor * share)).high);
    ++m;
  }
  WriteOutFrequencies(inv_freq, spec);
}

}  // namespace

bool ScalesBaseByAlpha(const RopeDict& from) {
  if (from.rules.vllm_modules) return from.dict.Contains("alpha");
  return from.family.alpha && from.dict.Number("alpha").value_or(0) != 0;
}

absl::string_view TypeKey(const JsonObject& dict) {
  return dict.Has("rope_type") || !dict.Has("type") ? "rope_type" : "type";
}

std::string RopeType(const RopeDict& from) {
  const JsonObject& dict = from.dict;
  const Profile profile = from.rules.profile;
  const auto first = dict.Text("rope_type");
  const auto alias = dict.Text("type");
  const bool alias_first = from.Row(ReadingRule::kTypeFirst) != nullptr;
  // Classes with merged dicts set rope_type to "default" before they add the
  // file's keys, so the file's `type` alone has no effect.
  if (!first && !from.nested && from.by_class() && from.family.merges_dicts()) {
    return "default";
  }
  const std::optional<std::string> type =
      alias_first ? (alias ? alias : first) : (first ? first : alias);
  // "mrope" is not a scaling, because the sections alone make an encoding
  // M-RoPE.
  if (!type || *type == "mrope") return "default";
  if (*type == "xdrope") {
    return dict.Has("alpha") || from.rules.vllm_modules ? "dynamic" : "default";
  }
  // "su" is the older name of LongRoPE. mlx-lm knows this name only in the
  // classes that published it.
  if (*type == "su" &&
      (profile != Profile::kMlx ||
       IsAmong(*type, KnownTypes(from.rules, from.model_type)))) {
    return "longrope";
  }
  if (*type == "yarn" && from.family.yarn_is_longrope &&
      profile != Profile::kMlx) {
    return "longrope";
  }
  if (IsAmong(*type, KnownTypes(from.rules, from.model_type)) &&
      (*type == "deepseek_yarn" || *type == "telechat3-yarn")) {
    return "yarn";
  }
  return *type;
}

std::optional<std::int64_t> MaxPositions(const RopeDict& from) {
  if (!from.family.long_switch.empty() &&
      from.config.At(from.family.long_switch) == true) {
    from.config.MarkRead("max_position_embeddings");
    return from.family.long_length;
  }
  return from.config.FirstInteger(kLengthNames);
}

std::int64_t OriginalOrMaxPositionEmbeddings(const RopeDict& from) {
  // transformers moves a value outside of the dict into the dict only for these
  // types.
  const bool is_moved =
      !from.is_hf() || IsAmong(from.type, "llama3 yarn longrope");
  // The value is read in any case, because a value of the wrong type is an
  // error.
  const auto given = GivenOriginal(from);
  const auto original = is_moved      ? given
                        : from.scales ? IntegerAt(from.dict, kOriginal)
                                      : std::nullopt;
  if (original) return static_cast<std::int64_t>(original->value);
  if (is_moved && from.family.original > 0 && from.by_class()) {
    return from.family.original;
  }
  return MaxPositions(from).value_or(0);
}

std::int64_t RequiredMaximum(const RopeDict& from, absl::string_view why) {
  const std::optional<std::int64_t> length = MaxPositions(from);
  if (!length && from.by_class() && from.defaults != nullptr &&
      from.defaults->max_position_embeddings > 0 &&
      !from.config.HasNull("max_position_embeddings")) {
    from.config.Assume("max_position_embeddings",
                       absl::StrCat(from.defaults->max_position_embeddings),
                       DefaultOf(from.rules));
    return from.defaults->max_position_embeddings;
  }
  if (!length) {
    from.config.Fail("max_position_embeddings", "is missing; ", why);
  }
  return length.value_or(0);
}

std::int64_t ReadOriginalMaxPositionEmbeddings(const RopeDict& from,
                                               std::int64_t otherwise) {
  const auto tell = [&from](const Choice& choice) {
    return static_cast<std::int64_t>(
        Tell(choice, kOriginal, from.rules, &from.report()));
  };
  const auto outer = IntegerAt(from.config, kOriginal);
  Choice choice;
  if (outer) choice.left.push_back(*outer);
  if (const auto given = GivenOriginal(from)) {
    choice.taken = *given;
    if (const auto inner = IntegerAt(from.dict, kOriginal)) {
      choice.left.push_back(*inner);
    }
    return tell(choice);
  }
  if (outer) {
    choice.why = absl::StrCat(
        "transformers takes it only from the dict of a type of layer",
        from.family.needs_original
            ? ""
            : ", and takes max_position_embeddings if that dict has none",
        ": give ", from.dict.Path(kOriginal));
  }
  const std::string why =
      absl::StrCat("rope type ", from.type, " needs the original length");
  if (otherwise == 0) {
    from.dict.Fail(kOriginal, "is missing; ", why, " in ", from.rules.project);
    return 0;
  }
  if (otherwise < 0 && from.family.original > 0 && from.by_class()) {
    otherwise = from.family.original;
  }
  choice.taken =
      Assumed(static_cast<double>(otherwise > 0 ? otherwise
                                                : RequiredMaximum(from, why)),
              from.dict.Path(kOriginal),
              otherwise > 0
                  ? DefaultOf(from.rules)
                  : "absent; max_position_embeddings, as transformers has it");
  choice.taken.text =
      absl::StrCat(static_cast<std::int64_t>(choice.taken.value));
  return tell(choice);
}

void WarnOfFactor(const RopeDict& from, double factor, std::int64_t original) {
  const auto maximum = MaxPositions(from);
  if (!maximum || original < 1 || !GivenOriginal(from)) return;
  const double implied =
      static_cast<double>(*maximum) / static_cast<double>(original);
  // A published factor may be rounded, which changes only its last decimals.
  if (std::abs(factor - implied) <= 1e-6 * implied) return;
  from.dict.Warn("factor", " is ", NumberText(factor),
                 ", and max_position_embeddings ", *maximum, " / ", kOriginal,
                 " ", original, " is ", NumberText(implied),
                 "; the factor is used");
}

void WriteOutFrequencies(const std::vector<double>& inv_freq, RopeSpec* spec) {
  spec->scaling = ExplicitFrequencies{.values = inv_freq};
  spec->rope_theta.reset();
}

double RequiredFactor(const RopeDict& from) {
  const ReadingRow* const row = from.Row(ReadingRule::kDefaultFactor);
  if (row == nullptr || from.dict.Contains("factor")) {
    return from.dict.RequiredNumber(
        "factor", absl::StrCat("rope type ", from.type, " needs it"));
  }
  from.dict.Assume("factor", NumberText(row->number), DefaultOf(from.rules));
  from.dict.Warn("factor", " is absent; ", from.rules.project, " ", row->says);
  return row->number;
}

void ReadScaling(const RopeDict& from, ModelRope* rope) {
  const std::string& type = from.type;
  const JsonObject& dict = from.dict;
  const std::string known = KnownTypes(from.rules, from.model_type);
  if (!IsAmong(type, known)) {
    const std::string whose =
        from.is_hf() ? "" : absl::StrCat(" to ", from.rules.project);
    dict.Fail(TypeKey(dict), "is \"", type, "\"; known", whose, " are ",
              absl::StrReplaceAll(known, {{" ", ", "}}));
  } else if (type == "linear") {
    rope->spec.scaling = LinearScaling{RequiredFactor(from)};
  } else if (type == "ntk") {
    ReadStaticNtk(from, &rope->spec);
  } else if (type == "dynamic") {
    ReadDynamic(from, &rope->spec);
  } else if (type == "yarn") {
    ReadYarn(from, rope);
  } else if (type == "longrope") {
    ReadLongRope(from, rope);
  } else if (type == "llama3") {
    ReadLlama3(from, &rope->spec);
  }
}

}  // namespace posenc::core::interpretation
