#include "core/doctor/gguf_case.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/interpretation/compare.h"

namespace posenc::core::doctor {

std::string GivenOr(const char* otherwise, bool given, double taken) {
  return absl::StrCat(given ? "" : otherwise, PlainNumber(taken));
}

void GgufCase::FindReference() {
  if (config == nullptr || config->reference() == nullptr) return;
  const auto& groups = config->groups();
  const auto resolve = [&](const char* reader, const LayerGroup& group) {
    auto rope = doctor::Resolve(config->root(), *FindReader(reader), group,
                                config->reach());
    return rope.ok() ? std::optional(*std::move(rope)) : std::nullopt;
  };
  LayerGroup full, local;
  full.type = "full_attention";
  local.type = "sliding_attention";
  if (groups.size() > 1) {
    reference = resolve("hf", full);
    sliding = resolve("hf", local);
  }
  if (!reference || !sliding || reference->spec.nope || sliding->spec.nope) {
    sliding.reset();
    const auto& ropes = config->reference()->ropes;
    const auto turns = std::ranges::find_if(
        ropes, [](const auto& rope) { return !rope->spec.nope; });
    reference.reset();
    if (turns == ropes.end()) return;
    reference = **turns;
    full = groups[static_cast<std::size_t>(turns - ropes.begin())];
  }
  converted = resolve("llama_cpp", full);
  if (!converted) converted = reference;
}

Finding& GgufCase::Add(absl::string_view id, Values values,
                       std::vector<std::string> keys) {
  values.insert(values.begin(), path);
  std::vector<std::string> inputs = {path};
  if (config != nullptr) inputs.push_back(config->path());
  std::vector<Verdict> readers;
  if (reference) readers.push_back(FileVerdict());
  return AddFinding(id, values, std::move(inputs), std::move(keys), findings,
                    std::move(readers));
}

Finding& GgufCase::AddKey(absl::string_view id, absl::string_view name,
                          Values values) {
  const std::string key = gguf.Key(name);
  values.insert(values.begin(), key);
  return Add(id, std::move(values), {key});
}

std::optional<ResolvedRope> GgufCase::Resolve(const ResolvedRope& like) const {
  if (!gguf.rotates) {
    ResolvedRope none;
    none.spec.nope = true;
    none.head_dim = like.head_dim;
    return none;
  }
  auto rope = interpretation::ResolveGguf(gguf, config->reach().length, false);
  if (!rope.ok()) return std::nullopt;
  rope->spec.pairing = like.spec.pairing;
  rope->spec.slice = like.spec.slice;
  rope->head_dim = like.head_dim;
  return *std::move(rope);
}

Verdict GgufCase::FileVerdict() const {
  Verdict verdict;
  if (const auto rope = Resolve(*reference)) {
    verdict = Compare(*reference, *rope, config->reach()).verdict;
  } else {
    verdict.first_distance = 1;
    verdict.kept_at_length = 0;
  }
  verdict.name = "llama.cpp";
  verdict.says = absl::StrCat("2026: ", gguf.Describe());
  return verdict;
}

double GgufCase::ReferenceFactor() const {
  return FactorOf(reference->spec).value_or(1);
}

std::string GgufCase::ReferenceText() const {
  const std::string text = interpretation::ScalingText(reference->spec);
  return text.substr(0, text.find(','));
}

std::vector<std::string> GgufCase::Tensors() const {
  std::vector<std::string> names;
  for (const FactorList& list : kFactorLists) {
    if (!(file.*list.values).empty()) names.emplace_back(list.name);
  }
  return names;
}

}  // namespace posenc::core::doctor
