// Compares params.json, tokenizer_config.json and a second config.json with the
// first configuration.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/doctor/input_checks.h"

namespace posenc::core::doctor {

void CheckParams(const Input& input, const ConfigCase& config,
                 std::vector<Finding>* findings) {
  const json& params = input.parsed.value;
  const Reading* const reference = config.reference();
  if (reference == nullptr) return;
  const Reader& mistral = *FindReader("mistral");
  for (std::size_t g = 0; g < config.groups().size(); ++g) {
    const LayerGroup& group = config.groups()[g];
    auto rope = Resolve(params, mistral, {}, config.reach());
    if (!rope.ok()) {
      rope = Resolve(params, mistral, group, config.reach());
    }
    if (!rope.ok()) return;
    const ResolvedRope& ours = *reference->ropes[g];
    // The two formats have the rows of weights in different orders, so their
    // pairings differ and are not compared.
    rope->spec.pairing = ours.spec.pairing;
    rope->spec.output_pairing = ours.spec.output_pairing;
    const Comparison comparison = Compare(ours, *rope, config.reach());
    std::string fact, theirs, fix;
    if (comparison.pairing || comparison.frequencies) {
      fact = DescribeRope(*rope);
      theirs = DescribeRope(ours);
      fix = Say("params.agree", {});
    } else if (comparison.amplitude) {
      const bool applies =
          ValueAt(ValueAt(params, "yarn"), "apply_scale") != false;
      const double own = rope->attention_factor;
      fact = absl::StrFormat("%samplitude %.4g",
                             applies ? "" : "apply_scale false: ", own);
      theirs = absl::StrFormat("%.4g", ours.attention_factor);
      std::string dict = "rope_parameters";
      config.FlatDict(&dict);
      fix = own == 1 ? Say("params.one", {dict})
                     : Say("params.amplitude", {own, dict});
    } else {
      continue;
    }
    Finding& finding = AddFinding(
        "params.config-differs", {input.path, fact, config.path(), theirs, fix},
        {input.path, config.path()},
        {"yarn", config.KeyPath("rope_parameters")}, findings,
        {VerdictOf(comparison, mistral, *rope)});
    if (config.groups().size() > 1 && !group.layers.empty()) {
      finding.layers = group.layers;
    }
  }
}

void CheckTokenizer(const Input& input, const ConfigCase& config,
                    std::vector<Finding>* findings) {
  const auto maximum = config.MaxPositions();
  const auto length = NumberAt(input.parsed.value, "model_max_length");
  // transformers writes 10^30 for "not known".
  constexpr double kUnknown = 1e15;
  if (!maximum || !length || *length >= kUnknown ||
      *length == static_cast<double>(*maximum)) {
    return;
  }
  AddFinding("config.tokenizer-length",
             {input.path, *length, config.path(), *maximum},
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
                   {"rope_theta", "rope_scaling", "rope_parameters"}, findings,
                   {VerdictOf(comparison, *b->reader, *b->ropes[h])});
    finding.message =
        absl::StrCat(second.path(), ": ", DescribeRope(*b->ropes[h]), "; ",
                     first.path(), ": ", DescribeRope(*a->ropes[g]));
    finding.fix = Say("configs.agree", {});
    return;
  }
}

}  // namespace posenc::core::doctor
