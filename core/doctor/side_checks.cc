// Compares params.json, tokenizer_config.json and a second config.json with the
// first configuration.

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/doctor/input_checks.h"
#include "core/error.h"

namespace posenc::core::doctor {
namespace {

using nlohmann::json;

std::string Digits(double value) { return absl::StrFormat("%.4g", value); }

// The two formats' weights have different pairings: their rows are permuted.
ResolvedRope WithPairing(ResolvedRope rope, const ResolvedRope& like) {
  rope.spec.pairing = like.spec.pairing;
  rope.spec.output_pairing = like.spec.output_pairing;
  return rope;
}

}  // namespace

void CheckParams(const DoctorInput& input, const ConfigCase& config,
                 std::vector<Finding>* findings) {
  const Reading* const reference = config.reference();
  const json params = json::parse(input.text, nullptr, false);
  if (reference == nullptr || !params.is_object()) return;
  const interpretation::Reader& mistral =
      *interpretation::FindReader("mistral");
  for (std::size_t g = 0; g < config.groups().size(); ++g) {
    auto rope = ResolveText(input.text, mistral, {}, config.reach());
    if (!rope.ok()) {
      rope =
          ResolveText(input.text, mistral, config.groups()[g], config.reach());
    }
    if (!rope.ok()) return;
    const ResolvedRope& ours = *reference->ropes[g];
    const Comparison comparison =
        Compare(ours, WithPairing(*rope, ours), config.reach());
    if (!comparison.pairing && !comparison.frequencies &&
        !comparison.amplitude) {
      continue;
    }
    std::string fact = DescribeRope(*rope);
    std::string theirs = DescribeRope(ours);
    std::string fix =
        "make the two agree: the weights were trained with one "
        "of them";
    if (!comparison.pairing && !comparison.frequencies) {
      const auto yarn = params.find("yarn");
      const bool applies = yarn == params.end() || !yarn->is_object() ||
                           !yarn->contains("apply_scale") ||
                           (*yarn)["apply_scale"] != false;
      fact = absl::StrCat(applies ? "" : "apply_scale false: ", "amplitude ",
                          Digits(rope->attention_factor));
      theirs = Digits(ours.attention_factor);
      std::string dict = "rope_parameters";
      config.FlatDict(&dict);
      fix = absl::StrCat(
          rope->attention_factor == 1
              ? "write \"mscale\": 1 and \"mscale_all_dim\": 1, or "
                "\"attention_factor\": 1,"
              : absl::StrCat("write \"attention_factor\": ",
                             PlainNumber(rope->attention_factor)),
          " in ", dict, " of the configuration");
    }
    Finding& finding = AddFinding(
        "params.config-differs", {input.path, fact, config.path(), theirs, fix},
        {input.path, config.path()},
        {"yarn", config.KeyPath("rope_parameters")}, findings);
    finding.readers = {VerdictOf(comparison, mistral, *rope)};
    if (config.groups().size() > 1 && !config.groups()[g].layers.empty()) {
      finding.layers = config.groups()[g].layers;
    }
    JudgeBySize(&finding);
  }
}

void CheckTokenizer(const DoctorInput& input, const ConfigCase& config,
                    std::vector<Finding>* findings) {
  const json tokenizer = json::parse(input.text, nullptr, false);
  const auto maximum = config.MaxPositions();
  if (!tokenizer.is_object() || !maximum) return;
  const auto it = tokenizer.find("model_max_length");
  if (it == tokenizer.end() || !it->is_number()) return;
  const double length = it->get<double>();
  // transformers writes 10^30 for "not known".
  constexpr double kUnknown = 1e15;
  if (length >= kUnknown || length == static_cast<double>(*maximum)) return;
  AddFinding(
      "config.tokenizer-length",
      {input.path, PlainNumber(length), config.path(), absl::StrCat(*maximum)},
      {input.path, config.path()},
      {"model_max_length", config.KeyPath("max_position_embeddings")},
      findings);
}

void CompareConfigs(const ConfigCase& first, const ConfigCase& second,
                    std::vector<Finding>* findings) {
  const Reading* const a = first.reference();
  const Reading* const b = second.reference();
  if (a == nullptr || b == nullptr) return;
  for (std::size_t g = 0; g < first.groups().size(); ++g) {
    const std::size_t h = std::min(g, second.groups().size() - 1);
    const Comparison comparison =
        Compare(*a->ropes[g], *b->ropes[h], first.reach());
    if (!comparison.any()) continue;
    const char* const id = comparison.pairing       ? "readers.pairing"
                           : comparison.frequencies ? "readers.frequencies"
                           : comparison.amplitude   ? "readers.amplitude"
                           : comparison.softmax     ? "readers.softmax"
                                                    : "readers.axes";
    Finding& finding =
        AddFinding(id, {}, {second.path(), first.path()},
                   {"rope_theta", "rope_scaling", "rope_parameters"}, findings);
    finding.message =
        absl::StrCat(second.path(), ": ", DescribeRope(*b->ropes[h]), "; ",
                     first.path(), ": ", DescribeRope(*a->ropes[g]));
    finding.fix = absl::StrCat(
        "make the two agree: take rope_theta and rope_scaling of the one that "
        "the weights were trained with");
    finding.readers = {VerdictOf(comparison, *b->reader, *b->ropes[h])};
    if (FindCheck(id)->by_size) JudgeBySize(&finding);
    return;
  }
}

}  // namespace posenc::core::doctor
