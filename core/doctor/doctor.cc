#include "core/doctor/doctor.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/doctor/config_case.h"
#include "core/doctor/input_checks.h"
#include "core/interpretation/claimed_length.h"
#include "core/interpretation/classes/profile.h"
#include "core/interpretation/content_hash.h"
#include "core/interpretation/json_object.h"

namespace posenc::core::doctor {
namespace {

// Returns "vllm" and "0.20" for "vllm@0.20"; the version may begin with v.
std::pair<absl::string_view, absl::string_view> PartsOf(
    absl::string_view reader) {
  std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(reader, absl::MaxSplits('@', 1));
  absl::ConsumePrefix(&parts.second, "v");
  return parts;
}

// Returns why doctor cannot apply this version of a reader, or "" if doctor can
// apply it.
std::string VersionFault(const Reader& reader, absl::string_view version) {
  // Some readers follow the rules of another project. posenc knows the versions
  // of that project, but no versions of these readers.
  if (interpretation::RulesOf(reader.profile).project != reader.title) {
    return Say("options.no-versions", {reader.title, reader.id});
  }
  const auto parsed = interpretation::ParseVersion(reader.profile, version);
  if (parsed.ok()) return "";
  return absl::StrCat(
      absl::StripPrefix(parsed.status().message(), "profile_version: "),
      " for ", reader.id);
}

// True if the file must describe a rotation. Returns false for an adapter,
// because its file does not give the model's shape. Returns false for an
// unknown architecture without a rotated width.
bool Rotates(const interpretation::GgufRope& gguf) {
  using interpretation::GgufPairing;
  if (gguf.pairing == GgufPairing::kNone) return false;
  return gguf.RotaryDim() > 0 || (gguf.pairing != GgufPairing::kUnknown &&
                                  (gguf.embedding_length || gguf.head_count ||
                                   gguf.key_length || gguf.dimension_count));
}

// Returns why a text is not a JSON object. Returns "" for a JSON object.
// `parsed` becomes the parsed text.
std::string FaultOf(absl::string_view text,
                    interpretation::ParsedText* parsed) {
  if (absl::StartsWith(text, "\xEF\xBB\xBF")) {
    return "begins with a byte order mark, and Python's reader of JSON refuses "
           "that: save it as UTF-8 without the mark";
  }
  *parsed = interpretation::ParseText(text);
  const interpretation::JsonText& read = parsed->text;
  if (read.fault.empty()) {
    return parsed->value.is_object()
               ? ""
               : absl::StrCat("is JSON of type ", parsed->value.type_name(),
                              "; it must be an object");
  }
  if (!read.fault_path.empty()) {
    return absl::StrCat(read.fault_path, " ", read.fault);
  }
  if (read.fault_byte == 0) return read.fault;
  const std::size_t at = std::min(read.fault_byte, text.size());
  const absl::string_view before = text.substr(0, at);
  const auto lines = std::count(before.begin(), before.end(), '\n');
  const std::size_t newline = before.rfind('\n');
  return absl::StrCat(
      "not JSON: line ", lines + 1, ", column ",
      newline == absl::string_view::npos ? at : at - newline - 1);
}

bool IsJson(InputKind kind) {
  return kind == InputKind::kConfig || kind == InputKind::kParams ||
         kind == InputKind::kTokenizer;
}

class Doctor {
 public:
  // The options must have passed CheckOptions().
  Doctor(std::vector<DoctorInput> inputs, const DoctorOptions& options,
         const StopAsked& stop)
      : options_(options) {
    reach_.stop = stop;
    for (DoctorInput& input : inputs) inputs_.push_back({std::move(input)});
  }

  absl::StatusOr<Diagnosis> Run() {
    ReadOptions();
    for (Input& input : inputs_) {
      if (IsJson(input.kind) && input.unreadable.empty()) {
        input.unreadable = FaultOf(input.text, &input.parsed);
      }
    }
    FindLength();
    ReadConfigs();
    std::optional<interpretation::GgufRope> served;
    for (const Input& input : inputs_) {
      if (input.gguf && !served) served = input.gguf;
      if (input.unreadable.empty() && reach_.status().ok()) CheckInput(input);
    }
    if (served) ApplyRuntime(runtime_, &*served);
    CheckRuntime(runtime_, first_, served ? &*served : nullptr, findings());
    for (const Input& input : inputs_) Report(input);
    RETURN_IF_ERROR(reach_.status());
    Filter();
    Rank();
    return std::move(diagnosis_);
  }

 private:
  std::vector<Finding>* findings() { return &diagnosis_.findings; }

  void ReadOptions() {
    for (const absl::string_view name : options_.readers) {
      const auto [id, version] = PartsOf(name);
      const Reader* const row = FindReader(id);
      if (version.empty()) {
        readers_.push_back(row);
        continue;
      }
      Reader reader = *row;
      reader.title =
          titles_.emplace_back(absl::StrCat(row->title, " ", version));
      reader.version = reader.reads_as = version;
      readers_.push_back(&versions_.emplace_back(reader));
      TellVersion(reader);
    }
    if (readers_.empty()) {
      for (const Reader& reader : interpretation::Readers()) {
        if (!reader.by_name) readers_.push_back(&reader);
      }
    }
    runtime_ = *ParseRuntime(options_.runtime);
  }

  // Adds a finding if the version is not known, because doctor then applies the
  // rules of the nearest known version.
  void TellVersion(const Reader& reader) {
    const auto nearest = interpretation::NearestVersion(
        reader.profile, interpretation::VersionOf(reader));
    if (!nearest) return;
    const interpretation::ProfileRules& rules =
        interpretation::RulesOf(reader.profile);
    std::string known = Say("version.none", {rules.project});
    std::string ask = Say("version.none-fix", {});
    if (!rules.newest.empty()) {
      const std::string versions =
          rules.oldest == rules.newest
              ? std::string(rules.newest)
              : absl::StrCat(rules.oldest, " to ", rules.newest);
      known = Say("version.known", {versions});
      ask = Say("version.known-fix", {versions});
    }
    AddFinding("readers.version", {reader.title, *nearest, known, ask}, {}, {},
               findings());
  }

  void FindLength() {
    std::int64_t length = options_.length.value_or(RuntimeLength(runtime_));
    for (const InputKind kind :
         {InputKind::kConfig, InputKind::kParams, InputKind::kGguf}) {
      for (const Input& input : inputs_) {
        if (length > 0 || input.kind != kind) continue;
        if (input.gguf) {
          length = input.gguf->context_length.value_or(0);
        } else if (IsJson(kind) && input.unreadable.empty()) {
          interpretation::Report ignored;
          length = interpretation::ClaimedLength(
              interpretation::JsonObject(&input.parsed.value, "", &ignored));
        }
      }
    }
    reach_.length = diagnosis_.length =
        length > 0 ? length : interpretation::kDefaultComparedLength;
  }

  void ReadConfigs() {
    const bool has_config =
        std::ranges::count(inputs_, InputKind::kConfig, &DoctorInput::kind) > 0;
    for (Input& input : inputs_) {
      const bool params = input.kind == InputKind::kParams;
      const bool is_reference = input.kind == InputKind::kConfig ||
                                (params && !has_config && first_ == nullptr);
      if (!is_reference || !input.unreadable.empty()) continue;
      // All readers read params.json in the same way, so one reader is enough.
      auto config = std::make_unique<ConfigCase>(
          input.path, input.parsed.value,
          params ? std::vector<const Reader*>() : readers_, reach_);
      for (const Input& other : inputs_) {
        if (other.key_rows) config->key_rows = other.key_rows;
      }
      if (!params) CheckOne(config.get());
      // A configuration counts as unreadable if no reader can read it and no
      // check says why.
      if (config->reference() == nullptr && !config->HasError()) {
        const Reading& first = config->readings()[0];
        input.unreadable = first.refusal();
        if (!config->groups()[0].Name().empty()) {
          input.unreadable = Say("readers.refuses-layer",
                                 {first.reader->title, first.refusal()});
        }
      }
      const auto& found = config->findings();
      findings()->insert(findings()->end(), found.begin(), found.end());
      if (first_ == nullptr) {
        first_ = config.get();
      } else {
        CompareConfigs(*first_, *config, findings());
      }
      input.config = std::move(config);
    }
  }

  void CheckOne(ConfigCase* config) const {
    CheckConfig(config);
    CheckScaling(config);
    CheckShape(config);
    CheckPublished(config);
    CheckReaders(config);
    CheckUnreadKeys(config);
    CheckWarnings(config);
    if (options_.readers.empty()) return;
    // Reports readers that the caller named but that have no class for the
    // model.
    for (const Reader* reader : readers_) {
      if (!interpretation::LacksClass(reader->profile,
                                      interpretation::VersionOf(*reader),
                                      config->type())) {
        continue;
      }
      const std::string fact = Say("readers.no-class", {config->model_type()});
      config->Add("readers.refuses", {reader->title, fact}, {}).fix =
          Say("readers.no-class-fix", {});
    }
  }

  void CheckInput(const Input& input) {
    switch (input.kind) {
      case InputKind::kConfig:
        TellKeysTwice(input);
        break;
      case InputKind::kParams:
        TellKeysTwice(input);
        if (first_ != nullptr && input.config == nullptr) {
          CheckParams(input, *first_, findings());
        }
        break;
      case InputKind::kTokenizer:
        if (first_ != nullptr) CheckTokenizer(input, *first_, findings());
        break;
      case InputKind::kGguf:
        if (!input.gguf) break;
        CheckGguf(input, inputs_, first_, runtime_, findings());
        for (const Input& other : inputs_) {
          if (first_ != nullptr && other.kind == InputKind::kSafetensors) {
            CheckPairing(input, other, *first_, findings());
          }
        }
        break;
      case InputKind::kSafetensors:
        CheckTables(input, first_, findings());
        break;
    }
  }

  void TellKeysTwice(const Input& input) {
    for (const auto& twice : input.parsed.text.twice) {
      AddFinding("config.key-twice",
                 {input.path, twice.path, twice.first, twice.last},
                 {input.path}, {twice.path}, findings());
    }
  }

  void Report(const Input& input) {
    InputReport& report = diagnosis_.inputs.emplace_back();
    report.path = input.path;
    report.kind = input.kind;
    report.unreadable = input.unreadable;
    const auto take = [&report](const absl::StatusOr<ResolvedRope>& rope) {
      if (rope.ok()) report.content_hash = interpretation::ContentHash(*rope);
      return rope.ok();
    };
    if (input.config != nullptr) ReportConfig(*input.config, &report);
    if (input.kind == InputKind::kParams && report.spec.empty() &&
        input.unreadable.empty()) {
      const auto rope =
          Resolve(input.parsed.value, *FindReader("mistral"), {}, reach_);
      if (take(rope)) {
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
      if (!take(rope) && Rotates(*input.gguf)) {
        // Factors of the wrong length do not make the file unreadable, but get
        // the finding gguf.factor-tensors.
        interpretation::GgufRope bare = *input.gguf;
        bare.rope_freqs = bare.factors_long = bare.factors_short = {};
        if (!interpretation::ResolveGguf(bare, diagnosis_.length, false).ok()) {
          report.unreadable = FactOf(rope.status());
        }
      }
    }
    if (input.kind == InputKind::kSafetensors && input.unreadable.empty()) {
      const std::size_t tables = input.tables.size();
      report.spec = absl::StrCat(tables == 0 ? "no" : absl::StrCat(tables),
                                 " tables of frequencies");
    }
  }

  static void ReportConfig(const ConfigCase& config, InputReport* report) {
    report->model_type = config.model_type();
    if (config.reference() == nullptr) return;
    report->content_hash = interpretation::ContentHash(config.rope());
    report->spec =
        absl::StrCat(DescribeRope(config.rope()),
                     config.groups().size() > 1 ? "; layers differ" : "",
                     config.family().learned.empty()
                         ? ""
                         : "; without what the checkpoint learned");
    if (config.family().indexer == Pairing::kUnspecified) return;
    const auto indexer = config.Indexer(*config.reference()->reader);
    if (!indexer.ok() || indexer->spec.nope) return;
    const bool leads = indexer->spec.slice != RotarySlice::kTrailing;
    const bool has_halves = indexer->spec.pairing == Pairing::kHalfSplit;
    report->spec +=
        Say("report.indexer",
            {leads ? "leading" : "trailing", indexer->spec.rotary_dim,
             indexer->head_dim, has_halves ? "half-split" : "interleaved"});
  }

  // Removes findings about readers that the options do not name.
  void Filter() {
    if (options_.readers.empty()) return;
    std::set<std::string> titles = {"the saved table"};
    for (const Reader* reader : readers_) titles.emplace(reader->title);
    std::erase_if(diagnosis_.findings, [&titles](Finding& finding) {
      const bool of_readers = !finding.readers.empty();
      std::erase_if(finding.readers, [&titles](const Verdict& verdict) {
        return titles.count(verdict.name) == 0;
      });
      if (finding.id == "gguf.other-loaders") {
        return titles.count("transformers' GGUF loader") == 0;
      }
      return of_readers && finding.readers.empty() &&
             !FindCheck(finding.id)->always;
    });
  }

  void Rank() {
    const auto kept = [](const Finding& finding) {
      double least = 1;
      for (const Verdict& verdict : finding.readers) {
        least = std::min(least, verdict.kept_at_length);
      }
      return std::pair(finding.severity, least);
    };
    std::ranges::stable_sort(diagnosis_.findings, {}, kept);
  }

  std::vector<Input> inputs_;
  const DoctorOptions& options_;
  std::vector<const Reader*> readers_;
  // Copies of readers for versions that the caller named, and the titles of
  // these copies.
  std::deque<Reader> versions_;
  std::deque<std::string> titles_;
  Runtime runtime_;
  Reach reach_;
  const ConfigCase* first_ = nullptr;  // the reference
  Diagnosis diagnosis_;
};

}  // namespace

int Diagnosis::Count(Severity severity) const {
  return static_cast<int>(
      std::ranges::count(findings, severity, &Finding::severity));
}

bool Diagnosis::unreadable() const {
  return std::ranges::any_of(
      inputs, [](const InputReport& i) { return !i.unreadable.empty(); });
}

std::string JsonFault(absl::string_view text) {
  interpretation::ParsedText ignored;
  return FaultOf(text, &ignored);
}

absl::Status CheckOptions(const DoctorOptions& options) {
  Faults faults;
  std::string known;
  for (const Reader& one : interpretation::Readers()) {
    absl::StrAppend(&known, " ", one.id);
  }
  // A caller may name any number of unknown readers. The answer has errors only
  // for the first 64 of them.
  int left = 64;
  for (std::size_t i = 0; i < options.readers.size() && left > 0; ++i) {
    const absl::string_view name = options.readers[i];
    const auto [id, version] = PartsOf(name);
    const Reader* const reader = FindReader(id);
    std::string fact;
    if (reader == nullptr) {
      fact = Say("options.reader", {id.substr(0, 40), known});
    } else if (absl::StrContains(name, '@')) {
      fact = VersionFault(*reader, version);
    }
    if (fact.empty()) continue;
    --left;
    faults.Note(FieldInvalid(absl::StrCat("readers[", i, "]"), fact));
  }
  const std::int64_t length = options.length.value_or(1);
  if (length < 1 || length > interpretation::kMaxComparedLength) {
    faults.Note(FieldInvalid(
        "length", absl::StrCat(length, "; it must be in [1, 2^31]")));
  }
  faults.Note(ParseRuntime(options.runtime).status());
  return faults.status();
}

absl::StatusOr<Diagnosis> Diagnose(std::vector<DoctorInput> inputs,
                                   const DoctorOptions& options,
                                   const StopAsked& stop) {
  RETURN_IF_ERROR(CheckOptions(options));
  return Doctor(std::move(inputs), options, stop).Run();
}

}  // namespace posenc::core::doctor
