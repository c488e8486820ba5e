#include "core/doctor/gguf_case.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/interpretation/compare.h"

namespace posenc::core::doctor {

bool DiffersBy(double a, double b, double tolerance) {
  return std::abs(a - b) > tolerance * std::max(std::abs(a), std::abs(b));
}

GgufCase::GgufCase(const DoctorInput& input, const ConfigCase* configuration,
                   const Runtime& runtime, const Reach& how_far,
                   std::vector<Finding>* findings)
    : path(input.path),
      file(*input.gguf),
      gguf(file),
      config(configuration),
      reach(how_far),
      findings_(findings) {
  ApplyRuntime(runtime, &gguf);
  FindReference();
}

void GgufCase::FindReference() {
  if (config == nullptr || config->reference() == nullptr) return;
  std::size_t full = 0;
  for (std::size_t g = 0; g < config->groups().size(); ++g) {
    if (!config->reference()->ropes[g]->spec.nope) {
      full = g;
      break;
    }
  }
  const std::string text = config->root().dump();
  const interpretation::Reader& hf = *interpretation::FindReader("hf");
  const interpretation::Reader& llama_cpp =
      *interpretation::FindReader("llama_cpp");
  if (config->groups().size() > 1) {
    LayerGroup group;
    group.type = "sliding_attention";
    auto local = ResolveText(text, hf, group, config->reach());
    group.type = "full_attention";
    auto whole = ResolveText(text, hf, group, config->reach());
    if (local.ok() && whole.ok() && !local->spec.nope && !whole->spec.nope) {
      reference = *std::move(whole);
      sliding = *std::move(local);
      const auto own = ResolveText(text, llama_cpp, group, config->reach());
      converted = own.ok() ? *own : *reference;
      return;
    }
  }
  const ResolvedRope& first = *config->reference()->ropes[full];
  if (first.spec.nope) return;
  reference = first;
  const auto own =
      ResolveText(text, llama_cpp, config->groups()[full], config->reach());
  converted = own.ok() ? *own : first;
}

Finding& GgufCase::Add(absl::string_view id, std::vector<std::string> values,
                       const std::vector<std::string>& keys) {
  values.insert(values.begin(), path);
  Finding& finding = AddFinding(id, values, {path}, keys, findings_);
  if (config != nullptr) finding.inputs.push_back(config->path());
  if (reference) finding.readers = {FileVerdict()};
  return finding;
}

std::optional<ResolvedRope> GgufCase::Resolve(const ResolvedRope& like) const {
  auto rope = interpretation::ResolveGguf(gguf, reach.length, false);
  if (!rope.ok()) return std::nullopt;
  rope->spec.pairing = like.spec.pairing;
  rope->spec.slice = like.spec.slice;
  rope->head_dim = like.head_dim;
  return *std::move(rope);
}

// Compares the GGUF with the reference.
Verdict GgufCase::FileVerdict() const {
  Verdict verdict;
  if (const auto rope = Resolve(*reference)) {
    verdict = Compare(*reference, *rope, reach).verdict;
  } else {
    verdict.first_distance = 1;
    verdict.kept_at_length = 0;
  }
  verdict.name = "llama.cpp";
  verdict.says = absl::StrCat("2026: ", gguf.Describe());
  return verdict;
}

double GgufCase::ReferenceFactor() const {
  const auto& scaling = reference->spec.scaling;
  if (const auto* s = std::get_if<LinearScaling>(&scaling)) return s->factor;
  if (const auto* s = std::get_if<YarnScaling>(&scaling)) return s->factor;
  if (const auto* s = std::get_if<Llama3Scaling>(&scaling)) return s->factor;
  return 1;
}

bool GgufCase::IsLinear() const {
  return std::holds_alternative<LinearScaling>(reference->spec.scaling);
}

bool GgufCase::IsYarn() const {
  return std::holds_alternative<YarnScaling>(reference->spec.scaling);
}

bool GgufCase::NeedsFreqs() const {
  const auto& scaling = reference->spec.scaling;
  return std::holds_alternative<Llama3Scaling>(scaling) ||
         std::holds_alternative<ProportionalScaling>(scaling);
}

bool GgufCase::IsLongRope() const {
  return std::holds_alternative<LongRopeScaling>(reference->spec.scaling);
}

bool GgufCase::HasTensors() const {
  return !gguf.rope_freqs.empty() || !gguf.factors_long.empty() ||
         !gguf.factors_short.empty();
}

std::string GgufCase::ReferenceText() const {
  const std::string text = interpretation::ScalingText(reference->spec);
  return text.substr(0, text.find(','));
}

}  // namespace posenc::core::doctor
