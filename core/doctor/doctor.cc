#include "core/doctor/doctor.h"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/doctor/config_case.h"
#include "core/doctor/input_checks.h"
#include "core/error.h"
#include "core/interpretation/claimed_length.h"
#include "core/interpretation/content_hash.h"
#include "core/interpretation/json_object.h"
#include "core/interpretation/json_text.h"
#include "core/interpretation/profile.h"
#include "core/interpretation/reading_rules.h"

namespace posenc::core::doctor {
namespace {

using nlohmann::json;

// Contradictions inside one file, which are reported for any choice of readers.
constexpr absl::string_view kAlwaysTold[] = {
    "config.type-conflict",    "config.both-spellings",
    "config.theta-conflict",   "config.type-missing",
    "config.partial-conflict", "config.sections",
    "config.longrope-lengths"};

// Returns "vllm" and "0.20" for "vllm@0.20"; the version may begin with v.
std::pair<absl::string_view, absl::string_view> PartsOf(
    absl::string_view reader) {
  std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(reader, absl::MaxSplits('@', 1));
  absl::ConsumePrefix(&parts.second, "v");
  return parts;
}

// False for files that hold no model that rotates: an adapter has no shape,
// and the pairing of an architecture that is not known may be none.
bool Rotates(const interpretation::GgufRope& gguf) {
  if (gguf.pairing == interpretation::GgufPairing::kNone) return false;
  if (gguf.RotaryDim() > 0) return true;
  return gguf.pairing != interpretation::GgufPairing::kUnknown &&
         (gguf.embedding_length || gguf.head_count || gguf.key_length ||
          gguf.dimension_count);
}

class Doctor {
 public:
  // The options must have passed CheckOptions().
  Doctor(std::vector<DoctorInput> inputs, const DoctorOptions& options,
         const StopAsked& stop)
      : inputs_(std::move(inputs)), options_(options) {
    reach_.stop = stop;
  }

  absl::StatusOr<Diagnosis> Run() {
    ReadOptions();
    CheckTexts();
    FindLength();
    ReadConfigs();
    for (const DoctorInput& input : inputs_) {
      if (!input.unreadable.empty() || !reach_.status().ok()) continue;
      if (IsJson(input) && input.kind != InputKind::kTokenizer) {
        TellKeysTwice(input);
      }
      CheckInput(input);
    }
    std::optional<interpretation::GgufRope> served;
    if (FirstGguf() != nullptr) {
      served = *FirstGguf();
      ApplyRuntime(runtime_, &*served);
    }
    CheckRuntime(runtime_, first_, served ? &*served : nullptr,
                 &diagnosis_.findings);
    Report();
    const absl::Status stopped = reach_.status();
    if (!stopped.ok()) return stopped;
    Filter();
    Rank();
    return std::move(diagnosis_);
  }

 private:
  void ReadOptions() {
    for (const absl::string_view name : options_.readers) {
      const auto [id, version] = PartsOf(name);
      const interpretation::Reader* const row = interpretation::FindReader(id);
      if (version.empty()) {
        readers_.push_back(row);
        continue;
      }
      interpretation::Reader reader = *row;
      reader.title =
          titles_.emplace_back(absl::StrCat(row->title, " ", version));
      reader.version = reader.reads_as = version;
      readers_.push_back(&versions_.emplace_back(reader));
      TellVersion(reader);
    }
    if (readers_.empty()) {
      for (const interpretation::Reader& reader : interpretation::Readers()) {
        if (!reader.by_name) readers_.push_back(&reader);
      }
    }
    runtime_ = *ParseRuntime(options_.runtime);
  }

  // A version outside of the known ones is read as the nearest of them.
  void TellVersion(const interpretation::Reader& reader) {
    const std::optional<absl::string_view> nearest =
        interpretation::NearestVersion(reader.profile,
                                       interpretation::VersionOf(reader));
    if (!nearest) return;
    const interpretation::ProfileRules& rules =
        interpretation::RulesOf(reader.profile);
    AddFinding("readers.version",
               {std::string(reader.title), std::string(*nearest),
                std::string(rules.oldest), std::string(rules.newest)},
               {}, {}, &diagnosis_.findings);
  }

  static bool IsJson(const DoctorInput& input) {
    return input.kind == InputKind::kConfig ||
           input.kind == InputKind::kParams ||
           input.kind == InputKind::kTokenizer;
  }

  void CheckTexts() {
    for (DoctorInput& input : inputs_) {
      if (IsJson(input) && input.unreadable.empty()) {
        input.unreadable = JsonFault(input.text);
      }
    }
  }

  void FindLength() {
    std::int64_t length = options_.length.value_or(RuntimeLength(runtime_));
    for (const InputKind kind : {InputKind::kConfig, InputKind::kParams}) {
      for (const DoctorInput& input : inputs_) {
        if (length > 0 || input.kind != kind || !input.unreadable.empty()) {
          continue;
        }
        length = interpretation::ClaimedLength(
            interpretation::RopeSource{interpretation::ConfigJson{input.text}});
      }
    }
    for (const DoctorInput& input : inputs_) {
      if (length <= 0 && input.gguf) {
        length = input.gguf->context_length.value_or(0);
      }
    }
    diagnosis_.length =
        length > 0 ? length : interpretation::kDefaultComparedLength;
    reach_.length = diagnosis_.length;
  }

  // Reads configurations; the first is the reference, or else params.json.
  void ReadConfigs() {
    bool has_config = false;
    for (const DoctorInput& input : inputs_) {
      has_config |= input.kind == InputKind::kConfig;
    }
    for (DoctorInput& input : inputs_) {
      const bool is_reference = input.kind == InputKind::kConfig ||
                                (input.kind == InputKind::kParams &&
                                 !has_config && first_ == nullptr);
      if (!is_reference || !input.unreadable.empty()) continue;
      // All readers of params.json agree on it.
      const bool params = input.kind == InputKind::kParams;
      auto config = std::make_unique<ConfigCase>(
          input.path, interpretation::ParseConfig(input.text),
          params ? std::vector<const interpretation::Reader*>() : readers_,
          reach_);
      for (const DoctorInput& other : inputs_) {
        if (other.key_rows) config->key_rows = other.key_rows;
      }
      if (!params) {
        CheckConfig(config.get());
        CheckScaling(config.get());
        CheckShape(config.get());
        CheckPublished(config.get());
        CheckReaders(config.get());
        CheckUnreadKeys(config.get());
        CheckWarnings(config.get());
        if (!options_.readers.empty()) TellLacking(config.get());
      }
      Finish(&input, config.get());
      if (first_ == nullptr) {
        first_ = config.get();
        reference_ = &input;
      } else {
        CompareConfigs(*first_, *config, &diagnosis_.findings);
      }
      configs_.emplace(&input, std::move(config));
    }
  }

  // Readers that the caller named, and that have no class for the model.
  void TellLacking(ConfigCase* config) const {
    for (const interpretation::Reader* reader : readers_) {
      if (!interpretation::LacksClass(reader->profile,
                                      interpretation::VersionOf(*reader),
                                      config->type())) {
        continue;
      }
      Finding& finding =
          config->Add("readers.refuses",
                      {std::string(reader->title),
                       absl::StrCat("it has no class for model_type ",
                                    config->model_type())},
                      {});
      finding.fix = "use another reader, or another version of it";
    }
  }

  // A configuration is malformed if no reader can read it and no check says
  // why.
  void Finish(DoctorInput* input, ConfigCase* config) {
    auto& findings = diagnosis_.findings;
    const bool told = std::any_of(
        config->findings().begin(), config->findings().end(),
        [](const Finding& f) { return f.severity == Severity::kError; });
    if (config->reference() == nullptr && !told) {
      input->unreadable = FactOf(config->readings()[0].status());
    }
    findings.insert(findings.end(), config->findings().begin(),
                    config->findings().end());
  }

  void CheckInput(const DoctorInput& input) {
    auto* const findings = &diagnosis_.findings;
    switch (input.kind) {
      case InputKind::kParams:
        if (first_ != nullptr && reference_ != &input) {
          CheckParams(input, *first_, findings);
        }
        break;
      case InputKind::kTokenizer:
        if (first_ != nullptr) CheckTokenizer(input, *first_, findings);
        break;
      case InputKind::kGguf:
        if (input.gguf) {
          CheckGguf(input, inputs_, first_, runtime_, reach_, findings);
          for (const DoctorInput& other : inputs_) {
            if (first_ != nullptr && other.kind == InputKind::kSafetensors) {
              CheckPairing(input, other, *first_, findings);
            }
          }
        }
        break;
      case InputKind::kSafetensors:
        CheckTables(input, first_, findings);
        break;
      case InputKind::kConfig:
        break;
    }
  }

  void TellKeysTwice(const DoctorInput& input) {
    for (const interpretation::JsonText::Twice& twice :
         interpretation::ReadJsonText(input.text).twice) {
      AddFinding("config.key-twice",
                 {input.path, twice.path, twice.first, twice.last},
                 {input.path}, {twice.path}, &diagnosis_.findings);
    }
  }

  const interpretation::GgufRope* FirstGguf() const {
    for (const DoctorInput& input : inputs_) {
      if (input.gguf) return &*input.gguf;
    }
    return nullptr;
  }

  void Report() {
    for (const DoctorInput& input : inputs_) {
      InputReport report;
      report.path = input.path;
      report.kind = input.kind;
      report.unreadable = input.unreadable;
      if (const auto it = configs_.find(&input); it != configs_.end()) {
        ReportConfig(*it->second, &report);
      }
      if (input.kind == InputKind::kParams && report.spec.empty() &&
          input.unreadable.empty()) {
        const auto rope = ResolveText(
            input.text, *interpretation::FindReader("mistral"), {}, reach_);
        if (rope.ok()) {
          report.content_hash = interpretation::ContentHash(*rope);
          report.spec = DescribeRope(*rope);
        } else {
          report.unreadable = FactOf(rope.status());
        }
      }
      if (input.gguf) {
        report.model_type = input.gguf->architecture;
        report.spec = input.gguf->Describe();
        const auto rope =
            interpretation::ResolveGguf(*input.gguf, diagnosis_.length, false);
        if (rope.ok()) {
          report.content_hash = interpretation::ContentHash(*rope);
        } else if (Rotates(*input.gguf)) {
          report.unreadable = FactOf(rope.status());
        }
      }
      if (input.kind == InputKind::kSafetensors && input.unreadable.empty()) {
        report.spec =
            input.tables.empty()
                ? "no tables of frequencies"
                : absl::StrCat(input.tables.size(), " tables of frequencies");
      }
      diagnosis_.inputs.push_back(std::move(report));
    }
  }

  static void ReportConfig(const ConfigCase& config, InputReport* report) {
    report->model_type = config.model_type();
    const Reading* const reference = config.reference();
    if (reference == nullptr) return;
    report->content_hash = interpretation::ContentHash(*reference->ropes[0]);
    report->spec = DescribeRope(*reference->ropes[0]);
    if (config.groups().size() > 1) {
      absl::StrAppend(&report->spec, "; layers differ");
    }
    if (!config.family().learned.empty()) {
      absl::StrAppend(&report->spec, "; without what the checkpoint learned");
    }
    if (config.family().indexer == Pairing::kUnspecified) return;
    const auto indexer = config.Indexer(*reference->reader);
    if (!indexer.ok() || indexer->spec.nope) return;
    const bool leads = indexer->spec.slice != RotarySlice::kTrailing;
    const bool has_halves = indexer->spec.pairing == Pairing::kHalfSplit;
    absl::StrAppend(&report->spec, "; indexer: the ",
                    leads ? "leading " : "trailing ", indexer->spec.rotary_dim,
                    " of ", indexer->head_dim, " channels, ",
                    has_halves ? "half-split" : "interleaved");
  }

  // Leaves out findings about readers that the options do not name.
  void Filter() {
    if (options_.readers.empty()) return;
    std::set<std::string> titles = {"the saved table"};
    for (const interpretation::Reader* reader : readers_)
      titles.emplace(reader->title);
    std::vector<Finding> kept;
    for (Finding& finding : diagnosis_.findings) {
      const bool always =
          std::find(std::begin(kAlwaysTold), std::end(kAlwaysTold),
                    finding.id) != std::end(kAlwaysTold) ||
          finding.id.rfind("runtime.", 0) == 0;
      std::vector<Verdict> readers;
      for (const Verdict& verdict : finding.readers) {
        if (titles.count(verdict.name) > 0) readers.push_back(verdict);
      }
      const bool others_only = !finding.readers.empty() && readers.empty();
      if (others_only && !always) continue;
      if (finding.id == "gguf.other-loaders" &&
          titles.count("transformers' GGUF loader") == 0) {
        continue;
      }
      finding.readers = std::move(readers);
      kept.push_back(std::move(finding));
    }
    diagnosis_.findings = std::move(kept);
  }

  void Rank() {
    const auto kept = [](const Finding& finding) {
      double least = 1;
      for (const Verdict& verdict : finding.readers) {
        least = std::min(least, verdict.kept_at_length);
      }
      return least;
    };
    std::stable_sort(diagnosis_.findings.begin(), diagnosis_.findings.end(),
                     [&](const Finding& a, const Finding& b) {
                       if (a.severity != b.severity) {
                         return a.severity < b.severity;
                       }
                       return kept(a) < kept(b);
                     });
  }

  std::vector<DoctorInput> inputs_;
  const DoctorOptions& options_;
  std::vector<const interpretation::Reader*> readers_;
  // Readers in other versions than their rows', and the names of these.
  std::deque<interpretation::Reader> versions_;
  std::deque<std::string> titles_;
  Runtime runtime_;
  Reach reach_;
  // The inputs that are configurations.
  std::map<const DoctorInput*, std::unique_ptr<ConfigCase>> configs_;
  const DoctorInput* reference_ = nullptr;  // the input of first_
  const ConfigCase* first_ = nullptr;
  Diagnosis diagnosis_;
};

nlohmann::ordered_json VerdictJson(const Verdict& verdict) {
  return {{"name", verdict.name},
          {"says", verdict.says},
          {"first_distance", verdict.first_distance},
          {"kept_at_length", verdict.kept_at_length},
          {"first_angle", verdict.first_angle},
          {"amplitude_ratio", verdict.amplitude_ratio},
          {"worst_pair", verdict.worst_pair}};
}

}  // namespace

absl::string_view InputKindName(InputKind kind) {
  switch (kind) {
    case InputKind::kParams:
      return "params";
    case InputKind::kTokenizer:
      return "config";  // what it tells belongs to the configuration
    case InputKind::kGguf:
      return "gguf";
    case InputKind::kSafetensors:
      return "safetensors";
    default:
      return "config";
  }
}

int Diagnosis::Count(Severity severity) const {
  return static_cast<int>(std::count_if(
      findings.begin(), findings.end(),
      [severity](const Finding& f) { return f.severity == severity; }));
}

bool Diagnosis::unreadable() const {
  return std::any_of(inputs.begin(), inputs.end(), [](const InputReport& i) {
    return !i.unreadable.empty();
  });
}

std::string JsonFault(absl::string_view text) {
  const absl::Status size = interpretation::CheckJsonSize(text);
  if (!size.ok()) return FactOf(size);
  const json root = interpretation::ParseConfig(text);
  if (root.is_object()) return "";
  if (!root.is_discarded()) {
    return absl::StrCat("is JSON of type ", root.type_name(),
                        "; it must be an object");
  }
  const std::size_t at =
      std::min(interpretation::ReadJsonText(text).fault_byte, text.size());
  const absl::string_view before = text.substr(0, at);
  const auto lines = std::count(before.begin(), before.end(), '\n');
  const std::size_t newline = before.rfind('\n');
  return absl::StrCat(
      "not JSON: line ", lines + 1, ", column ",
      newline == absl::string_view::npos ? at : at - newline - 1);
}

namespace {

// Returns why that version of a reader cannot be asked; "" if it can.
std::string VersionFault(const interpretation::Reader& reader,
                         absl::string_view version) {
  // A reader may read as a project whose versions are not its own.
  if (interpretation::RulesOf(reader.profile).project != reader.title) {
    return absl::StrCat("no versions of ", reader.title,
                        " are told apart; write ", reader.id, " alone");
  }
  const auto parsed = interpretation::ParseVersion(reader.profile, version);
  if (parsed.ok()) return "";
  return absl::StrCat(
      absl::StripPrefix(parsed.status().message(), "profile_version: "),
      " for ", reader.id);
}

}  // namespace

absl::Status CheckOptions(const DoctorOptions& options) {
  Faults faults;
  std::string known;
  for (const interpretation::Reader& one : interpretation::Readers())
    absl::StrAppend(&known, " ", one.id);
  // A caller may name any number of readers that do not exist. The answer has
  // an error for each of the first 64.
  int left = 64;
  for (std::size_t i = 0; i < options.readers.size() && left > 0; ++i) {
    const absl::string_view name = options.readers[i];
    const auto [id, version] = PartsOf(name);
    const interpretation::Reader* const reader = interpretation::FindReader(id);
    std::string fact;
    if (reader == nullptr) {
      fact = absl::StrCat("\"", id.substr(0, 40), "\" is not known; known are",
                          known);
    } else if (absl::StrContains(name, '@')) {
      fact = VersionFault(*reader, version);
    }
    if (fact.empty()) continue;
    --left;
    faults.Note(FieldInvalid(absl::StrCat("readers[", i, "]"), fact));
  }
  if (options.length &&
      (*options.length < 1 ||
       *options.length > interpretation::kMaxComparedLength)) {
    faults.Note(FieldInvalid(
        "length", absl::StrCat(*options.length, "; it must be in [1, 2^31]")));
  }
  faults.Note(ParseRuntime(options.runtime).status());
  return faults.status();
}

absl::StatusOr<Diagnosis> Diagnose(std::vector<DoctorInput> inputs,
                                   const DoctorOptions& options,
                                   const StopAsked& stop) {
  const absl::Status good = CheckOptions(options);
  if (!good.ok()) return good;
  return Doctor(std::move(inputs), options, stop).Run();
}

std::string DiagnosisJson(const Diagnosis& diagnosis) {
  using Ordered = nlohmann::ordered_json;
  Ordered root = {{"inputs", Ordered::array()}, {"findings", Ordered::array()}};
  const auto or_null = [](const std::string& text) {
    return text.empty() ? Ordered() : Ordered(text);
  };
  for (const InputReport& input : diagnosis.inputs) {
    root["inputs"].push_back({{"path", input.path},
                              {"kind", InputKindName(input.kind)},
                              {"model_type", or_null(input.model_type)},
                              {"content_hash", or_null(input.content_hash)},
                              {"unreadable", or_null(input.unreadable)}});
  }
  for (const Finding& finding : diagnosis.findings) {
    Ordered readers = Ordered::array();
    for (const Verdict& verdict : finding.readers) {
      readers.push_back(VerdictJson(verdict));
    }
    root["findings"].push_back(
        {{"id", finding.id},
         {"severity", SeverityName(finding.severity)},
         {"message", finding.message},
         {"fix", finding.fix},
         {"inputs", finding.inputs},
         {"keys", finding.keys},
         {"layers", finding.layers ? Ordered(*finding.layers) : Ordered("all")},
         {"readers", readers},
         {"see", finding.see}});
  }
  root["summary"] = {{"error", diagnosis.Count(Severity::kError)},
                     {"warning", diagnosis.Count(Severity::kWarning)},
                     {"note", diagnosis.Count(Severity::kNote)}};
  root["length"] = diagnosis.length;
  return root.dump(2, ' ', false, Ordered::error_handler_t::replace);
}

}  // namespace posenc::core::doctor
