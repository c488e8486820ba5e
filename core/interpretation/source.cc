#include "core/interpretation/source.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/interpretation/classes/profile.h"
#include "core/interpretation/classes/reading_rules.h"
#include "core/interpretation/config.h"
#include "core/interpretation/presets.h"
#include "core/interpretation/resolve_json.h"
#include "core/interpretation/rope/rope_config.h"

namespace posenc::core::interpretation {
namespace {

absl::Status UnknownPreset(const std::string& name) {
  // The edit distance takes quadratic time, so only 64 characters are compared.
  // Every preset's name is shorter.
  const absl::string_view shown = absl::string_view(name).substr(0, 64);
  std::vector<std::pair<int, absl::string_view>> near;
  for (const Preset& preset : Presets()) {
    near.emplace_back(EditDistance(shown, preset.name), preset.name);
  }
  std::sort(near.begin(), near.end());
  return MakeError(
      absl::StatusCode::kNotFound, ErrorReason::kPresetUnknown, "preset",
      absl::StrCat("\"", shown, "\" is not known; near: ", near[0].second, ", ",
                   near[1].second, ", ", near[2].second),
      {{"preset", std::string(shown)}});
}

// Fields of a spec that a configuration writes as one dict (rope_scaling).
constexpr char kScalings[] =
    "linear ntk dynamic_ntk yarn longrope llama3 proportional";

// Returns the configuration's key for a spec's field, for example
// "rope_scaling.factor" for "linear.factor" and "rope_scaling" for "linear".
// Returns the field itself if the configuration has no key for it.
std::string KeyOf(const ModelRope& model, const std::string& field) {
  const std::string bare = field.substr(0, field.find('['));
  const auto it = model.report.given_by.find(bare.substr(bare.find('.') + 1));
  if (it != model.report.given_by.end()) {
    return absl::StrCat(it->second, field.substr(bare.size()));
  }
  const std::size_t dot = field.find('.');
  if (model.report.dict_path.empty() ||
      !IsAmong(field.substr(0, dot), kScalings)) {
    return field;
  }
  return dot == std::string::npos
             ? model.report.dict_path
             : absl::StrCat(model.report.dict_path, field.substr(dot));
}

// Converts an error of ResolveSpec() to an error of the configuration, because
// the error's field belongs to a spec that the caller did not write.
absl::Status ConfigFault(absl::string_view field, const ModelRope& model,
                         const absl::Status& status) {
  const std::optional<ErrorDetails> details = GetErrorDetails(status);
  if (!details || details->field == "sequence_length") return status;
  const std::string key = KeyOf(model, details->field);
  absl::string_view fact = status.message();
  absl::ConsumePrefix(&fact, absl::StrCat(details->field, ": "));
  return MakeError(absl::StatusCode::kInvalidArgument,
                   ErrorReason::kModelConfigInvalid, field,
                   absl::StrCat(key, ": ", fact), {{"key", key}});
}

// Adds an assumption about the version, unless the version is the newest.
void AssumeVersion(const RopeSource& source, const ProfileVersion& reader,
                   Report* report) {
  const ProfileRules& rules = RulesOf(reader.profile);
  const std::optional<absl::string_view> nearest =
      NearestVersion(reader.profile, reader.version);
  const std::string& version = source.profile_version;
  if (!nearest) {
    if (IsSince(reader.version, rules.newest)) return;
    report->Assume("profile_version", version,
                   absl::StrCat("read as ", rules.project, " ", rules.newest,
                                ", except for known differences"));
    return;
  }
  report->Assume(
      "profile_version", std::string(*nearest),
      rules.newest.empty()
          ? absl::StrCat("no versions of ", rules.project, " are told apart: ",
                         version, " is read as the one that is known here")
          : absl::StrCat(version,
                         IsSince(reader.version, rules.oldest) ? " is newer"
                                                               : " is older",
                         " than the versions of ", rules.project,
                         " that are known here, ",
                         rules.oldest == rules.newest
                             ? ""
                             : absl::StrCat(rules.oldest, " to "),
                         rules.newest));
}

// Returns an error if the heads are wider than `widest` (0: not known). A wider
// head is usually several heads in one row.
absl::Status CheckWidth(std::int64_t widest, absl::string_view whose,
                        std::int64_t head_dim) {
  if (widest == 0 || head_dim <= widest) return absl::OkStatus();
  return FieldInvalid(
      "head_dim",
      absl::StrCat("the heads have ", head_dim, " channels, ", whose, " ",
                   widest, "; set it to ", head_dim,
                   " if one head holds more than the model's head, for example "
                   "keys beside values or latent rows"));
}

// Upper bound on the channels that a configuration may rotate. No published
// model rotates more than an eighth of this number. A configuration of a few
// bytes can set this number, and each frequency takes time.
constexpr std::int64_t kMostOfConfig = 8192;

// Resolves the configuration that `read` reads. `field` is the field of
// RopeSource that gives the configuration.
absl::StatusOr<ResolvedRope> ResolveConfig(
    const RopeSource& source, absl::string_view field,
    absl::FunctionRef<absl::StatusOr<ModelRope>(const Question&)> read,
    std::int64_t head_dim, MissingLength missing_length) {
  ProfileVersion reader = {.profile = source.profile};
  if (!source.profile_version.empty()) {
    ASSIGN_OR_RETURN(reader.version,
                     ParseVersion(source.profile, source.profile_version));
  }
  ASSIGN_OR_RETURN(ModelRope model, read({reader, source.layer_type,
                                          source.layer_index, source.part}));
  if (model.head_dim > std::numeric_limits<std::int32_t>::max()) {
    return FieldInvalid(field, absl::StrCat("gives heads of ", model.head_dim,
                                            " channels; at most 2^31 - 1 are "
                                            "described"));
  }
  AssumeVersion(source, reader, &model.report);
  const std::int64_t rotary_dim = model.spec.rotary_dim;
  if (rotary_dim > kMostOfConfig) {
    return FieldInvalid(
        field, absl::StrCat("rotates ", rotary_dim,
                            " channels of a head; at most ", kMostOfConfig));
  }
  RETURN_IF_ERROR(source.head_dim != 0
                      ? CheckWidth(source.head_dim, "and it is", head_dim)
                      : CheckWidth(model.head_dim, "the model's", head_dim));
  if (source.head_dim != 0 && source.head_dim < rotary_dim) {
    return FieldInvalid("head_dim",
                        absl::StrCat(source.head_dim, "; ", rotary_dim,
                                     " channels of a head rotate"));
  }
  if (head_dim == 0) head_dim = source.head_dim;
  // A tensor's heads may be narrower than the model's heads. For example, MLA's
  // shared key has only the rotated channels.
  if (head_dim != 0 && head_dim < rotary_dim) {
    return FieldInvalid(
        field, absl::StrCat("rotates ", rotary_dim, " of the ", model.head_dim,
                            " channels of a head; the "
                            "tensor's heads have ",
                            head_dim));
  }
  std::optional<std::int64_t> length = source.sequence_length;
  if (model.length && (model.length_reason.empty() || !length)) {
    length = model.length;
  }
  absl::StatusOr<ResolvedRope> resolved =
      ResolveSpec(model.spec, head_dim != 0 ? head_dim : model.head_dim, length,
                  missing_length);
  if (!resolved.ok()) return ConfigFault(field, model, resolved.status());
  if (model.length) {
    // The caller gets a spec with explicit frequencies, which do not depend on
    // a length, because the project chooses the frequencies only once.
    WriteOutFrequencies(resolved->inv_freq, &resolved->spec);
    if (!source.sequence_length && !model.length_reason.empty()) {
      model.report.Assume("sequence_length", absl::StrCat(*length),
                          model.length_reason);
    }
  }
  if (model.original_max_position_embeddings > 0) {
    resolved->original_max_position_embeddings =
        model.original_max_position_embeddings;
  }
  resolved->softmax_scale_multiplier = model.softmax_scale_multiplier;
  resolved->query_scale = model.query_scale;
  resolved->assumptions.insert(resolved->assumptions.begin(),
                               model.report.assumptions.begin(),
                               model.report.assumptions.end());
  for (std::string& warning : resolved->warnings) {
    const std::size_t end = std::min(warning.find(' '), warning.size());
    warning = KeyOf(model, warning.substr(0, end)) + warning.substr(end);
  }
  resolved->warnings.insert(resolved->warnings.begin(),
                            model.report.warnings.begin(),
                            model.report.warnings.end());
  return resolved;
}

absl::StatusOr<ResolvedRope> ResolveGivenSpec(const RopeSource& source,
                                              const RopeSpec& spec,
                                              std::int64_t head_dim,
                                              MissingLength missing_length) {
  if (source.layer_type || source.layer_index) {
    return FieldInvalid(source.layer_type ? "layer_type" : "layer_index",
                        "a spec has no layers; leave it unset");
  }
  if (source.part != ModelPart::kUnspecified) {
    return FieldInvalid("part", "a spec has no parts; leave it unset");
  }
  if (!source.profile_version.empty()) {
    return FieldInvalid("profile_version",
                        "a spec is read alike by all; leave it unset");
  }
  RETURN_IF_ERROR(CheckWidth(source.head_dim, "and it is", head_dim));
  absl::StatusOr<ResolvedRope> resolved =
      ResolveSpec(spec, head_dim != 0 ? head_dim : source.head_dim,
                  source.sequence_length, missing_length);
  if (resolved.ok()) return resolved;
  const std::optional<ErrorDetails> details =
      GetErrorDetails(resolved.status());
  if (details && details->field == "rotary_dim" && spec.rotary_dim == 0 &&
      head_dim == 0 && source.head_dim != 0) {
    return FieldInvalid(
        "head_dim",
        absl::StrCat(source.head_dim,
                     "; the spec has no rotary_dim, and a whole head that "
                     "rotates has an even number of channels in [2, ",
                     kMaxRotaryDim, "]"));
  }
  // sequence_length is a field of RopeSource, not of the spec.
  if (details && details->field == "sequence_length") return resolved;
  return Prefixed("spec", resolved.status());
}

}  // namespace

absl::StatusOr<ResolvedRope> ResolveSource(const RopeSource& source,
                                           std::int64_t head_dim,
                                           MissingLength missing_length) {
  if (source.layer_type && source.layer_index) {
    return FieldInvalid("layer_index", "layer_type is set too; choose one");
  }
  if (source.head_dim < 0) {
    return FieldInvalid(
        "head_dim",
        absl::StrCat(source.head_dim, "; must be positive, or unset"));
  }
  if (source.sequence_length && *source.sequence_length <= 0) {
    return FieldInvalid(
        "sequence_length",
        absl::StrCat(*source.sequence_length, "; it must be at least 1"));
  }
  if (const auto* spec = std::get_if<RopeSpec>(&source.source)) {
    return ResolveGivenSpec(source, *spec, head_dim, missing_length);
  }
  const auto* name = std::get_if<PresetName>(&source.source);
  if (const auto text = ConfigOf(source)) {
    const auto read = [&text](const Question& question) {
      return ReadModelConfig(*text, question);
    };
    return ResolveConfig(source, name != nullptr ? "preset" : "config_json",
                         read, head_dim, missing_length);
  }
  if (name != nullptr) return UnknownPreset(name->name);
  return FieldRequired("",
                       "no source is set; give spec, preset or config_json");
}

absl::StatusOr<ResolvedRope> ResolveJson(const json& root,
                                         const RopeSource& how,
                                         MissingLength missing_length) {
  const auto read = [&root](const Question& question) {
    return ReadModelJson(root, question);
  };
  return ResolveConfig(how, "config_json", read, 0, missing_length);
}

absl::StatusOr<TowerGrid> ResolveTowerGrid(const RopeSource& source) {
  // ResolveSource() reports all errors of the source.
  RETURN_IF_ERROR(
      ResolveSource(source, 0, MissingLength::kAssumeOriginal).status());
  const auto text = ConfigOf(source);
  if (text) {
    // All versions of a project read towers in the same way, so
    // profile_version is left out.
    const absl::StatusOr<ModelRope> model = ReadModelConfig(
        *text, {.reader = {.profile = source.profile}, .part = source.part});
    if (model.ok() && model->grid) return *model->grid;
  }
  return FieldInvalid(
      !text                                               ? "spec"
      : std::holds_alternative<PresetName>(source.source) ? "preset"
                                                          : "config_json",
      "is not of a vision tower with patches on a grid; set part to vision if "
      "the file has a vision_config, else use grid, or a start for tokens of "
      "one axis");
}

RopeLookup LookupOf(RopeSource source) {
  return [source = std::move(source)](std::int64_t head_dim)
             -> absl::StatusOr<std::shared_ptr<const PreparedRope>> {
    ASSIGN_OR_RETURN(ResolvedRope rope,
                     ResolveSource(source, head_dim, MissingLength::kError));
    return std::make_shared<const PreparedRope>(std::move(rope));
  };
}

RopeLookup LookupOf(RopeSpec spec) {
  return LookupOf(RopeSource{.source = std::move(spec)});
}

}  // namespace posenc::core::interpretation
