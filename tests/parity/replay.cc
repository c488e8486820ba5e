#include "tests/parity/replay.h"

#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/error.h"
#include "core/interpretation/source.h"
#include "nlohmann/json.hpp"

namespace posenc::parity {
namespace {

using core::MissingLength;
using core::ResolvedRope;
using core::interpretation::ConfigJson;
using core::interpretation::RopeSource;
using nlohmann::json;

// The relative error of a float32 frequency theta^x is 2^-24 times the exponent
// x ln(theta). The exponent is at most 20 here; YaRN and Llama 3 blend two
// frequencies.
constexpr double kTolerance = 4 * 20 * 0x1p-24;

// If some layers do not rotate, this many layers are tried to find one that
// rotates.
constexpr int kLayersTried = 16;

std::string Decompressed(const std::string& path) {
  std::string text;
  gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) return text;
  char buffer[1 << 16];
  for (int n = 0; (n = gzread(file, buffer, sizeof(buffer))) > 0;) {
    text.append(buffer, n);
  }
  gzclose(file);
  return text;
}

std::vector<float> Unpacked(const std::string& base64) {
  std::string bytes;
  absl::Base64Unescape(base64, &bytes);
  std::vector<float> values(bytes.size() / sizeof(float));
  if (values.empty()) return values;
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

Case CaseOf(const json& line, const std::vector<std::vector<float>>& known) {
  Case one = {line.at("g"), line.at("t"), line.at("s"), line.at("c")};
  one.error = line.value("e", "");
  for (const json& given : line.value("a", json::array())) {
    Answer answer;
    if (given.contains("type")) {
      answer.layer_type = given.at("type");
    } else if (given.contains("index")) {
      answer.layer_index = given.at("index").get<std::int32_t>();
    }
    answer.inv_freq = known.at(given.at("f").get<std::size_t>());
    answer.attention_factor = given.at("scale").get<double>();
    answer.sections = given.value("sections", std::vector<std::int32_t>());
    answer.pairing = given.value("pairing", "");
    // A damaged configuration may have a length of 1e30.
    answer.length =
        static_cast<std::int64_t>(std::min(given.value("length", 0.0), 0x1p62));
    one.answers.push_back(std::move(answer));
  }
  return one;
}

bool IsAboutLayer(const absl::Status& status) {
  const auto details = core::GetErrorDetails(status);
  return details &&
         (details->field == "layer_type" || details->field == "layer_index");
}

absl::StatusOr<ResolvedRope> Resolve(const RopeSource& source) {
  return core::interpretation::ResolveSource(source, 0,
                                             MissingLength::kAssumeOriginal);
}

// Returns posenc's answer for a layer, or for layers of a type; if neither is
// given, the answer without a layer, or else for the first layer that rotates.
absl::StatusOr<ResolvedRope> Asked(
    const Case& one, const std::optional<std::string>& layer_type,
    const std::optional<std::int32_t>& layer_index) {
  RopeSource source;
  source.source = ConfigJson{one.config_json};
  if (one.group == "audio")
    source.part = core::interpretation::ModelPart::kAudio;
  source.layer_type = layer_type;
  source.layer_index = layer_index;
  absl::StatusOr<ResolvedRope> rope = Resolve(source);
  if (layer_index) return rope;
  if (layer_type && (rope.ok() || !IsAboutLayer(rope.status()))) return rope;
  source.layer_type.reset();
  if (layer_type) rope = Resolve(source);
  for (int i = 0; i < kLayersTried; ++i) {
    if (rope.ok() ? !rope->spec.nope : !IsAboutLayer(rope.status())) break;
    source.layer_index = i;
    absl::StatusOr<ResolvedRope> next = Resolve(source);
    // Past the last layer, the earlier answer stays.
    if (!next.ok() && IsAboutLayer(next.status()) && i > 0) break;
    rope = std::move(next);
  }
  return rope;
}

// The pairs of each axis. A class's interleaved sections may exceed the number
// of pairs.
std::vector<std::int32_t> Sections(const ResolvedRope& rope) {
  return rope.spec.axes ? rope.spec.axes->sections
                        : std::vector<std::int32_t>();
}

// Compares the values that the class gives in addition to its frequencies.
// Returns "" if they agree.
std::string StatedDifference(const ResolvedRope& rope, const Answer& answer) {
  const bool is_half = rope.spec.pairing == core::Pairing::kHalfSplit;
  if (!answer.pairing.empty() && is_half != (answer.pairing == "half")) {
    return absl::StrCat("pairing ", is_half ? "half" : "interleaved",
                        ", transformers ", answer.pairing);
  }
  std::vector<std::int32_t> ours = Sections(rope);
  std::vector<std::int32_t> theirs = answer.sections;
  std::int64_t pairs = 0;
  for (const std::int32_t section : theirs) pairs += section;
  // Does not compare the order of sections, because ERNIE's axes have another
  // order, and does not compare sections that do not fill the pairs.
  std::sort(ours.begin(), ours.end());
  std::sort(theirs.begin(), theirs.end());
  if (!theirs.empty() &&
      pairs == static_cast<std::int64_t>(rope.inv_freq.size()) &&
      ours != theirs) {
    return absl::StrCat("sections ", absl::StrJoin(Sections(rope), ", "),
                        ", transformers ",
                        absl::StrJoin(answer.sections, ", "));
  }
  const std::int64_t length = rope.original_max_position_embeddings;
  if (answer.length > 0 && length > 0 && length != answer.length) {
    return absl::StrCat("trained length ", length, ", transformers ",
                        answer.length);
  }
  return "";
}

// Returns "" if they agree.
std::string Difference(const ResolvedRope& rope, const Answer& answer) {
  const std::size_t pairs = answer.inv_freq.size();
  if (rope.spec.nope) return "posenc: no rope";
  if (rope.inv_freq.size() != pairs) {
    return absl::StrCat("width ", 2 * rope.inv_freq.size(), ", transformers ",
                        2 * pairs);
  }
  if (std::abs(rope.attention_factor - answer.attention_factor) >
      1e-6 * std::abs(answer.attention_factor)) {
    return absl::StrCat("amplitude ", rope.attention_factor, ", transformers ",
                        answer.attention_factor);
  }
  for (std::size_t i = 0; i < pairs; ++i) {
    const double theirs = answer.inv_freq[i];
    if (!(std::abs(rope.inv_freq[i] - theirs) <=
          kTolerance * std::abs(theirs))) {
      return absl::StrCat("pair ", i, " of ", pairs, " turns by ",
                          rope.inv_freq[i], ", transformers ", theirs);
    }
  }
  return StatedDifference(rope, answer);
}

Finding Refusal(const absl::Status& status, bool raised) {
  const std::string why(status.message());
  if (status.code() != absl::StatusCode::kInvalidArgument) {
    return {Outcome::kWrongStatus, why};
  }
  return {raised ? Outcome::kBothRefuse : Outcome::kRefuses, why};
}

Finding ExamineAnswer(const Case& one, const Answer& answer) {
  const auto rope = Asked(one, answer.layer_type, answer.layer_index);
  if (!rope.ok()) return Refusal(rope.status(), false);
  const std::string difference = Difference(*rope, answer);
  const std::string warnings = absl::StrJoin(rope->warnings, " | ");
  if (difference.empty()) {
    return {warnings.empty() ? Outcome::kAgrees : Outcome::kAgreesWarned,
            warnings, rope->warnings};
  }
  return {warnings.empty() ? Outcome::kDiffersSilent : Outcome::kDiffersWarned,
          absl::StrCat(answer.layer_type.value_or(""),
                       answer.layer_type ? ": " : "", difference,
                       warnings.empty() ? "" : " | ", warnings),
          rope->warnings};
}

void AddKeys(const json& value, std::set<std::string>* keys) {
  if (!value.is_object()) return;
  for (const auto& [key, inner] : value.items()) {
    keys->insert(key);
    AddKeys(inner, keys);
  }
}

}  // namespace

absl::StatusOr<Record> ReadRecord(const std::string& path) {
  Record record;
  std::vector<std::vector<float>> known;
  const std::string text = Decompressed(path);
  for (const absl::string_view line :
       absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const json values = json::parse(line, nullptr, false);
    if (values.is_discarded()) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": ", line));
    }
    if (values.contains("f")) {
      known.push_back(Unpacked(values.at("f").get<std::string>()));
    } else if (values.contains("g")) {
      record.cases.push_back(CaseOf(values, known));
    } else {
      record.versions = values.dump();
    }
  }
  if (record.cases.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": no record"));
  }
  return record;
}

absl::string_view OutcomeName(Outcome outcome) {
  constexpr absl::string_view kNames[kOutcomes] = {
      "agrees",          "agrees, warned", "differs, warned",
      "differs",         "refuses",        "both refuse",
      "answers, warned", "answers",        "wrong status"};
  return kNames[static_cast<int>(outcome)];
}

bool SaysBothReadings(const std::string& config_json,
                      const std::vector<std::string>& warnings) {
  // Keys that a file may lack.
  std::set<std::string> keys = {"hidden_size",      "num_attention_heads",
                                "head_dim",         "rope_theta",
                                "rope_type",        "rope_parameters",
                                "rope_scaling",     "text_config",
                                "mrope_section",    "partial_rotary_factor",
                                "full_attention",   "sliding_attention",
                                "layer_rope_theta", "model_type"};
  AddKeys(json::parse(config_json, nullptr, false), &keys);
  for (const std::string& warning : warnings) {
    bool names = false;
    // The words of a path are keys: "text_config.rope_scaling.type".
    for (const absl::string_view word : absl::StrSplit(
             warning, absl::ByAnyChar(" .,:;\"()[]{}"), absl::SkipEmpty())) {
      names = names || keys.count(std::string(word)) > 0;
    }
    const bool theirs = absl::StrContains(warning, "transformers") ||
                        absl::StrContains(warning, "class");
    bool ours = false;
    for (const absl::string_view text :
         {"used", "read", "takes", "ignored", "refuse", "fail", "rotate",
          "cannot"}) {
      ours = ours || absl::StrContains(warning, text);
    }
    if (names && theirs && ours) return true;
  }
  return false;
}

Finding Examine(const Case& one) {
  if (!one.error.empty()) {
    const auto rope = Asked(one, std::nullopt, std::nullopt);
    if (!rope.ok()) return Refusal(rope.status(), true);
    return {
        rope->warnings.empty() ? Outcome::kAnswersSilent
                               : Outcome::kAnswersWarned,
        absl::StrCat(one.error, " | ", absl::StrJoin(rope->warnings, " | ")),
        rope->warnings};
  }
  Finding worst = {Outcome::kAgrees, ""};
  for (const Answer& answer : one.answers) {
    Finding finding = ExamineAnswer(one, answer);
    if (finding.outcome > worst.outcome) worst = std::move(finding);
  }
  return worst;
}

}  // namespace posenc::parity
