// `posenc doctor`: reads all descriptions of a checkpoint, and prints which
// descriptions and readers disagree. For each disagreement it prints the
// distance from which it matters, and the key that corrects it.

#include "core/doctor/doctor.h"

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/tools/arguments/connection.h"
#include "client/tools/arguments/enum_flags.h"
#include "client/tools/cli/commands.h"
#include "client/tools/diagnosis/certificate.h"
#include "client/tools/diagnosis/doctor_files.h"
#include "client/tools/files/print.h"
#include "client/tools/files/status.h"
#include "core/base/text.h"
#include "server/convert/diagnosis.h"

namespace posenc::cli {
namespace {

// The heading of the flags of --cache.
constexpr char kCertificate[] = "Certificate of a cache";

struct DoctorFlags {
  std::vector<std::string> paths;
  std::string preset;
  std::vector<std::string> readers;
  std::optional<std::int64_t> length;
  std::string runtime;
  std::string fail_on = "error";
  bool checks = false;
  CertificateFlags certificate;
};

using Json = nlohmann::ordered_json;

absl::string_view SeverityName(v1::Severity severity) {
  return core::doctor::SeverityName(
      static_cast<core::doctor::Severity>(severity));
}

// Returns "" for a kind that only newer servers know.
absl::string_view KindName(v1::DescriptionKind kind) {
  // A tokenizer's file counts as part of the configuration.
  constexpr absl::string_view kKindNames[] = {
      "", "config", "params", "config", "gguf", "safetensors"};
  return v1::DescriptionKind_IsValid(kind) ? kKindNames[kind] : "";
}

// Returns "90 % of a score is left up to distance 4, 35 % at 131072; logits x
// 0.77".
std::string EffectText(const v1::ReaderVerdict& verdict, std::int64_t length) {
  std::string text;
  if (verdict.first_distance() >= 0) {
    text = absl::StrFormat(
        "90 %% of a score is left up to distance %d, %.0f %% at %d",
        verdict.first_distance(), 100 * verdict.kept_at_length(), length);
  } else if (verdict.least_kept() == 1) {
    text = absl::StrCat("no score is lost up to ", length);
  } else {
    text = absl::StrFormat("at least %.4g %% of a score is left up to %d",
                           100 * verdict.least_kept(), length);
  }
  const double logits = verdict.amplitude_ratio() * verdict.amplitude_ratio();
  if (verdict.amplitude_ratio() != 1) {
    absl::StrAppendFormat(&text, "; logits x %.4g", logits);
  }
  return text;
}

void PrintFinding(const v1::Finding& finding, std::int64_t length) {
  absl::PrintF("\n%-8s %s  %s\n", SeverityName(finding.severity()),
               finding.id(), finding.message());
  // Readers with the same effect are printed on one line.
  std::vector<std::pair<std::string, std::string>> effects;
  for (const v1::ReaderVerdict& verdict : finding.readers()) {
    // Skips refusals, because the message says which reader refuses and why.
    if (absl::StrContains(verdict.says(), " refuses: ")) continue;
    const std::string effect = EffectText(verdict, length);
    if (!effects.empty() && effects.back().second == effect) {
      absl::StrAppend(&effects.back().first, ", ", verdict.name());
    } else {
      effects.emplace_back(verdict.name(), effect);
    }
  }
  for (const auto& [name, effect] : effects) {
    absl::PrintF("         %s: %s\n", name, effect);
  }
  absl::PrintF("         fix: %s\n", finding.fix());
}

void PrintDiagnosis(const v1::DiagnoseRopeResponse& diagnosis) {
  for (const v1::DescriptionReport& input : diagnosis.inputs()) {
    absl::PrintF("%s  %s%s%s  %s\n", core::OneLine(input.path()),
                 KindName(input.kind()), input.model_type().empty() ? "" : "  ",
                 core::OneLine(input.model_type()),
                 core::OneLine(input.unreadable().empty()
                                   ? input.spec()
                                   : "unreadable: " + input.unreadable()));
  }
  for (const v1::Finding& finding : diagnosis.findings()) {
    PrintFinding(finding, diagnosis.length());
  }
  const auto count = [](int n, const char* name) {
    return absl::StrCat(n, " ", name, n == 1 ? "" : "s");
  };
  const v1::FindingCounts& summary = diagnosis.summary();
  absl::PrintF("\n%s, %s, %s; distances up to %d\n",
               count(summary.error(), "error"),
               count(summary.warning(), "warning"),
               count(summary.note(), "note"), diagnosis.length());
}

Json OrNull(const std::string& text) {
  return text.empty() ? Json() : Json(text);
}

template <typename List>
Json ListJson(const List& list) {
  return Json(std::vector<typename List::value_type>(list.begin(), list.end()));
}

Json DiagnosisJson(const v1::DiagnoseRopeResponse& diagnosis) {
  Json root = {{"inputs", Json::array()}, {"findings", Json::array()}};
  for (const v1::DescriptionReport& input : diagnosis.inputs()) {
    root["inputs"].push_back({{"path", input.path()},
                              {"kind", KindName(input.kind())},
                              {"model_type", OrNull(input.model_type())},
                              {"content_hash", OrNull(input.content_hash())},
                              {"unreadable", OrNull(input.unreadable())}});
  }
  for (const v1::Finding& finding : diagnosis.findings()) {
    Json readers = Json::array();
    for (const v1::ReaderVerdict& verdict : finding.readers()) {
      readers.push_back({{"name", verdict.name()},
                         {"says", verdict.says()},
                         {"first_distance", verdict.first_distance()},
                         {"kept_at_length", verdict.kept_at_length()},
                         {"first_angle", verdict.first_angle()},
                         {"amplitude_ratio", verdict.amplitude_ratio()},
                         {"worst_pair", verdict.worst_pair()}});
    }
    root["findings"].push_back(
        {{"id", finding.id()},
         {"severity", SeverityName(finding.severity())},
         {"message", finding.message()},
         {"fix", finding.fix()},
         {"inputs", ListJson(finding.inputs())},
         {"keys", ListJson(finding.keys())},
         {"layers",
          finding.layers().empty() ? Json("all") : ListJson(finding.layers())},
         {"readers", readers},
         {"see", ListJson(finding.see())}});
  }
  root["summary"] = {{"error", diagnosis.summary().error()},
                     {"warning", diagnosis.summary().warning()},
                     {"note", diagnosis.summary().note()}};
  root["length"] = diagnosis.length();
  return root;
}

// Returns the lowest severity that makes the command fail; 0 for "none".
absl::StatusOr<int> FailLevel(const std::string& text) {
  using core::doctor::Severity;
  for (const Severity severity :
       {Severity::kError, Severity::kWarning, Severity::kNote}) {
    if (text == core::doctor::SeverityName(severity)) {
      return static_cast<int>(severity);
    }
  }
  if (text == "none") return 0;
  return UsageError(absl::StrCat("--fail-on: '", text,
                                 "' is not known; write error, warning, note "
                                 "or none"));
}

void PrintCertificate(const Certificate& certificate) {
  absl::PrintF("%s\n", certificate.measured
                           ? "keys of two prefills: layers above 0 are judged "
                             "by the angles that they show"
                           : "the engine moved the same keys to a second "
                             "position");
  for (const LayerCertificate& layer : certificate.layers) {
    absl::PrintF(
        "  layer %d: %s; %d heads, largest error %.4g ulp, bound %.4g\n",
        layer.layer, layer.certified ? "certified" : "mismatch", layer.heads,
        layer.max_error_ulps, layer.bound_ulps);
  }
}

// Prints the id, the severity, the meaning and the fix of every check, with
// "..." instead of values. --json also has the public threads about the check.
void PrintChecks(bool json) {
  Json checks = Json::array();
  for (const core::doctor::CheckRow& row : core::doctor::CheckRows()) {
    const core::doctor::Finding any =
        core::doctor::MakeFinding(row.id, core::doctor::Values(10, "..."));
    const absl::string_view severity =
        row.by_size ? "by size" : core::doctor::SeverityName(row.severity);
    if (!json) {
      absl::PrintF("%-8s %s\n         %s\n         fix: %s\n", severity, row.id,
                   row.finds, any.fix);
    }
    checks.push_back({{"id", row.id},
                      {"severity", severity},
                      {"finds", row.finds},
                      {"fix", any.fix},
                      {"see", any.see}});
  }
  if (json) PrintJson({{"checks", checks}});
}

// Adds the keys that only a certificate has: "certificate", "files" and "made".
void AddCertificate(const Certificate& certificate, Json* root) {
  // For a finding without layers, DiagnosisJson() has written "all". In a
  // certificate "layers" is always a list, so "all" becomes an empty list.
  for (Json& finding : (*root)["findings"]) {
    if (!finding["layers"].is_array()) finding["layers"] = Json::array();
  }
  (*root)["made"] = certificate.measured ? "two prefills" : "one key";
  Json& layers = (*root)["certificate"] = Json::array();
  for (const LayerCertificate& layer : certificate.layers) {
    layers.push_back({{"layer", layer.layer},
                      {"heads", layer.heads},
                      {"elements", layer.elements},
                      {"max_error_ulps", layer.max_error_ulps},
                      {"bound_ulps", layer.bound_ulps},
                      {"verdict", layer.certified ? "certified" : "mismatch"},
                      {"encoding_hash", layer.encoding_hash}});
  }
  (*root)["files"] = {{"cache_sha256", OrNull(certificate.cache_sha256)},
                      {"after_sha256", OrNull(certificate.after_sha256)}};
}

// Returns the exit code for the findings. Prints on stderr which inputs could
// not be read.
absl::Status Outcome(const v1::DiagnoseRopeResponse& diagnosis, int level) {
  std::fflush(stdout);  // stdout comes before the lines on stderr
  bool unreadable = false;
  for (const v1::DescriptionReport& input : diagnosis.inputs()) {
    if (input.unreadable().empty()) continue;
    absl::FPrintF(stderr, "posenc: %s: %s\n", core::OneLine(input.path()),
                  core::OneLine(input.unreadable()));
    unreadable = true;
  }
  if (unreadable) return ExitWith(kExitFile);
  for (const v1::Finding& finding : diagnosis.findings()) {
    if (finding.severity() <= level) return ExitWith(kExitFailed);
  }
  return absl::OkStatus();
}

absl::Status RunCertificate(const DoctorFlags& flags, bool json, int level) {
  ASSIGN_OR_RETURN(const Certificate certificate, Certify(flags.certificate));
  v1::DiagnoseRopeResponse diagnosis;
  server::WriteDiagnosis(certificate.diagnosis, &diagnosis);
  if (json) {
    Json root = DiagnosisJson(diagnosis);
    AddCertificate(certificate, &root);
    PrintJson(root);
  } else {
    PrintCertificate(certificate);
    PrintDiagnosis(diagnosis);
  }
  return Outcome(diagnosis, level);
}

absl::StatusOr<v1::DiagnoseRopeRequest> BuildRequest(const DoctorFlags& flags) {
  v1::DiagnoseRopeRequest request;
  for (const std::string& id : flags.readers) request.add_readers(Utf8(id));
  // Refuses 0, because 0 in the request means that no length is given.
  if (flags.length == 0) {
    return UsageError("--length: 0; it must be in [1, 2^31]");
  }
  request.set_length(flags.length.value_or(0));
  request.set_runtime(Utf8(flags.runtime));
  if (!flags.preset.empty()) {
    absl::StatusOr<v1::ModelDescription> preset = DescribePreset(flags.preset);
    if (!preset.ok()) {
      return UsageError(absl::StrCat("--preset: ", preset.status().message()));
    }
    *request.add_inputs() = *std::move(preset);
  }
  for (v1::ModelDescription& input : ReadDescriptions(flags.paths)) {
    *request.add_inputs() = std::move(input);
  }
  return request;
}

// Replaces the name of the field in the server's error by the name of the flag.
absl::Status WithFlag(const absl::Status& status) {
  if (status.code() != absl::StatusCode::kInvalidArgument) return status;
  absl::string_view fact = status.message();
  for (const absl::string_view field : {"length", "runtime"}) {
    if (absl::StartsWith(fact, absl::StrCat(field, ": "))) {
      return UsageError(absl::StrCat("--", fact));
    }
  }
  const std::size_t colon = fact.find("]: ");
  if (absl::StartsWith(fact, "readers[") && colon != fact.npos) {
    return UsageError(absl::StrCat("--reader", fact.substr(colon + 1)));
  }
  return status;
}

// Refuses flags of a certificate, which need --cache.
absl::Status CheckNoCertificate(const CLI::App& app) {
  const std::vector<std::string> given = flags::GivenFlags(app, kCertificate);
  if (given.empty()) return absl::OkStatus();
  return UsageError(absl::StrCat(
      given[0], ": belongs to --cache; models and their files are PATHs"));
}

absl::Status RunDoctor(const CLI::App& app, const DoctorFlags& flags,
                       const GlobalFlags& globals) {
  ASSIGN_OR_RETURN(const int level, FailLevel(flags.fail_on));
  if (flags.checks) {
    PrintChecks(globals.json);
    return absl::OkStatus();
  }
  if (!flags.certificate.cache.empty()) {
    if (!flags.paths.empty() || !flags.preset.empty()) {
      return UsageError(
          "--cache: takes no PATH and no --preset; run doctor on them alone");
    }
    return RunCertificate(flags, globals.json, level);
  }
  RETURN_IF_ERROR(CheckNoCertificate(app));
  if (flags.paths.empty() && flags.preset.empty()) {
    return UsageError("PATH: missing; name a model's folder or its files");
  }
  for (const std::string& path : flags.paths) {
    if (path.empty()) return UsageError("PATH: is empty");
  }
  ASSIGN_OR_RETURN(const auto request, BuildRequest(flags));
  ASSIGN_OR_RETURN(const Connection connection, Connection::Open(globals));
  const absl::StatusOr<v1::DiagnoseRopeResponse> response =
      connection.client().DiagnoseRope(request);
  if (!response.ok()) return WithFlag(response.status());
  if (globals.json) {
    PrintJson(DiagnosisJson(*response));
  } else {
    PrintDiagnosis(*response);
  }
  return Outcome(*response, level);
}

}  // namespace

Command AddDoctor(CLI::App* app, const GlobalFlags* globals) {
  const auto flags = std::make_shared<DoctorFlags>();
  AddFlag(app, "PATH", &flags->paths, "",
          "Model folders, or files: config.json, params.json, "
          "tokenizer_config.json, .gguf, .safetensors");
  AddFlag(app, "--preset", &flags->preset, "NAME",
          "A model that `posenc info` lists; it is the reference, before "
          "PATH's files");
  AddFlag(
      app, "--reader", &flags->readers, "NAME",
      "Only these readers: hf, hf4, vllm, sglang, llama_cpp, mlx, gpt_oss, "
      "deepseek, mistral, gguf_hf, exllamav3, tensorrt_llm, onnxruntime_genai, "
      "candle, mistral_rs, ollama, openvino; a version: vllm@0.20 (repeatable)",
      {.one_value = true});  // the argument after the value is a PATH
  AddFlag(app, "--length", &flags->length, "N",
          "Longest distance that counts (default: the model's length)");
  AddFlag(app, "--runtime", &flags->runtime, "COMMAND",
          "An engine's command line: \"vllm serve --hf-overrides "
          "{...}\"");
  AddFlag(app, "--fail-on", &flags->fail_on, "LEVEL",
          "Exit with 1 from this severity on: error, warning, note, none",
          {.show_default = true});
  AddFlag(app, "--checks", &flags->checks, "",
          "Only list the checks: ids, severities, texts");
  CertificateFlags& certificate = flags->certificate;
  const flags::FlagRules of_cache = {.group = kCertificate};
  AddFlag(app, "--cache", &certificate.cache, "FILE",
          "Keys as the engine cached them at --start: .safetensors, "
          "a tensor for each layer (layers.3.k)",
          of_cache);
  AddFlag(app, "--after", &certificate.after, "FILE",
          "The engine's own keys of the same tokens, --shift further",
          of_cache);
  AddFlag(app, "--config", &certificate.config, "FILE",
          "The model's config.json", of_cache);
  AddEnumFlag(app, "--layout", &certificate.layout, "bshd, bhsd, sbhd or thd",
              of_cache);
  AddFlag(app, "--start", &certificate.start, "N",
          "Position of the first token", of_cache);
  AddFlag(app, "--shift", &certificate.shift, "N", "How far the keys moved",
          of_cache);
  AddFlag(app, "--layers", &certificate.layers, "PATTERN",
          "Names of the tensors; their first number is the layer", of_cache);
  AddFlag(app, "--dtype-bound", &certificate.dtype_bound, "ULPS",
          "Ulps that a pair may be off: 4 if the engine's tables have the "
          "keys' dtype (default 2; 4 for float32 and float64 keys)",
          of_cache);
  AddFlag(app, "--measured", &certificate.measured, "",
          "The keys are of two prefills; judges layers above 0 by their "
          "measured angles",
          of_cache);
  return [app, flags, globals] { return RunDoctor(*app, *flags, *globals); };
}

}  // namespace posenc::cli
