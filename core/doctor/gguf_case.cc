#include "core/doctor/gguf_case.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/interpretation/compare.h"

namespace posenc::core::doctor {

bool DiffersBy(double a, double b, double tolerance) {
  return std::abs(a - b) > tolerance * std::max(std::abs(a), std::abs(b));
}

std::string GivenOr(const char* otherwise, bool given, double taken) {
  return absl::StrCat(given ? "" : otherwise, PlainNumber(taken));
}

GgufCase::GgufCase(const DoctorInput& input,
                   const std::vector<DoctorInput>& all,
                   const ConfigCase* config, const Runtime& runtime,
                   const Reach& reach, std::vector<Finding>* findings)
    : path_(input.path),
      file_(*input.gguf),
      gguf_(file_),
      all_(all),
      config_(config),
      config_path_(config == nullptr ? "" : config->path()),
      runtime_(runtime),
      reach_(reach),
      findings_(findings) {
  ApplyRuntime(runtime, &gguf_);
  FindReference();
}

void GgufCase::FindReference() {
  if (config_ == nullptr || config_->reference() == nullptr) return;
  const auto& groups = config_->groups();
  const auto resolve = [&](const char* reader, const LayerGroup& group) {
    auto rope = doctor::Resolve(config_->root(), *FindReader(reader), group,
                                config_->reach());
    return rope.ok() ? std::optional(*std::move(rope)) : std::nullopt;
  };
  LayerGroup full, local;
  full.type = "full_attention";
  local.type = "sliding_attention";
  if (groups.size() > 1) {
    reference_ = resolve("hf", full);
    sliding_ = resolve("hf", local);
  }
  if (!reference_ || !sliding_ || reference_->spec.nope ||
      sliding_->spec.nope) {
    sliding_.reset();
    const auto& ropes = config_->reference()->ropes;
    const auto turns =
        std::find_if(ropes.begin(), ropes.end(),
                     [](const auto& rope) { return !rope->spec.nope; });
    reference_.reset();
    if (turns == ropes.end()) return;
    reference_ = **turns;
    full = groups[static_cast<std::size_t>(turns - ropes.begin())];
  }
  converted_ = resolve("llama_cpp", full);
  if (!converted_) converted_ = reference_;
}

Finding& GgufCase::Add(absl::string_view id, Values values,
                       std::vector<std::string> keys) {
  values.insert(values.begin(), path_);
  std::vector<std::string> inputs = {path_};
  if (config_ != nullptr) inputs.push_back(config_path_);
  std::vector<Verdict> readers;
  if (reference_) readers.push_back(FileVerdict());
  return AddFinding(id, values, std::move(inputs), std::move(keys), findings_,
                    std::move(readers));
}

Finding& GgufCase::Explain(absl::string_view id, const Values& values,
                           std::vector<std::string> keys) {
  explained_ = true;
  return Add(id, values, std::move(keys));
}

std::optional<ResolvedRope> GgufCase::Resolve(const ResolvedRope& like) const {
  if (!gguf_.rotates) {
    ResolvedRope none;
    none.spec.nope = true;
    none.head_dim = like.head_dim;
    return none;
  }
  auto rope = interpretation::ResolveGguf(gguf_, reach_.length, false);
  if (!rope.ok()) return std::nullopt;
  rope->spec.pairing = like.spec.pairing;
  rope->spec.slice = like.spec.slice;
  rope->head_dim = like.head_dim;
  return *std::move(rope);
}

Verdict GgufCase::FileVerdict() const {
  Verdict verdict;
  if (const auto rope = Resolve(*reference_)) {
    verdict = Compare(*reference_, *rope, reach_).verdict;
  } else {
    verdict.first_distance = 1;
    verdict.kept_at_length = 0;
  }
  verdict.name = "llama.cpp";
  verdict.says = absl::StrCat("2026: ", gguf_.Describe());
  return verdict;
}

double GgufCase::ReferenceFactor() const {
  return FactorOf(reference_->spec).value_or(1);
}

std::string GgufCase::ReferenceText() const {
  const std::string text = interpretation::ScalingText(reference_->spec);
  return text.substr(0, text.find(','));
}

std::vector<std::string> GgufCase::Tensors() const {
  std::vector<std::string> names;
  for (const FactorList& list : kFactorLists) {
    if (!(file_.*list.values).empty()) names.emplace_back(list.name);
  }
  return names;
}

}  // namespace posenc::core::doctor
