#include "client/tools/arguments/options.h"

#include <set>

#include "CLI/CLI.hpp"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "client/tools/arguments/enum_flags.h"
#include "client/tools/arguments/gguf_source.h"
#include "client/tools/diagnosis/doctor_files.h"
#include "client/tools/files/status.h"
#include "core/doctor/doctor.h"
#include "google/protobuf/util/json_util.h"
#include "nlohmann/json.hpp"

namespace posenc::cli {
namespace {

// Returns a field that an object of the JSON text has twice; empty if there is
// none. Protobuf would take the last value. Protobuf accepts each field under
// two names, for example rotaryDim and rotary_dim.
std::string FieldGivenTwice(const std::string& text) {
  using Json = nlohmann::json;
  std::string twice;
  std::vector<std::set<std::string>> fields;  // of the open objects
  const auto look = [&](int depth, Json::parse_event_t event, Json& value) {
    fields.resize(static_cast<std::size_t>(depth) + 1);
    if (event == Json::parse_event_t::key) {
      const std::string name = absl::StrReplaceAll(
          absl::AsciiStrToLower(value.get<std::string>()), {{"_", ""}});
      if (!fields.back().insert(name).second) {
        twice = value.get<std::string>();
      }
    }
    return true;
  };
  // A text that is not JSON is refused later.
  const Json unused = Json::parse(text, look, /*allow_exceptions=*/false);
  return twice;
}

// Sets the encoding that --preset, --config or --spec names.
absl::Status SetEncoding(const SourceFlags& flags, v1::RopeSource* source) {
  if (!flags.preset.empty()) {
    // A protobuf message cannot hold a text that is not UTF-8.
    if (Utf8(flags.preset) != flags.preset) {
      return UsageError(
          absl::StrCat("--", flags.prefix, "preset: is not UTF-8"));
    }
    source->set_preset(flags.preset);
  } else if (!flags.config.empty() && IsGguf(flags.config)) {
    ASSIGN_OR_RETURN(*source, GgufSource(flags));
  } else if (!flags.config.empty()) {
    ASSIGN_OR_RETURN(std::string text, ReadConfigText(flags.config));
    const std::string fault = core::doctor::JsonFault(text);
    if (!fault.empty()) return FileError(flags.config, fault);
    source->set_config_json(std::move(text));
  } else {
    const std::string twice = FieldGivenTwice(flags.spec);
    if (!twice.empty()) {
      return UsageError(absl::StrCat("--", flags.prefix, "spec: has the field ",
                                     twice, " twice; remove one"));
    }
    const auto status = google::protobuf::util::JsonStringToMessage(
        flags.spec, source->mutable_spec());
    if (!status.ok()) {
      return UsageError(absl::StrCat(
          "--", flags.prefix,
          "spec: no posenc.v1.RopeSpec: ", std::string(status.message()),
          "; write the contract's names, such as PAIRING_HALF_SPLIT; a file is "
          "--",
          flags.prefix, "config"));
    }
  }
  return absl::OkStatus();
}

constexpr FieldFlag kDetails[] = {
    {"--profile", "profile", "NAME",
     "Reader: hf, vllm, llama_cpp, gpt_oss, deepseek, mistral, mlx (default "
     "hf)",
     kAlone},
    {"--profile-version", "profile_version", "VERSION",
     "Version of the profile's project, for example 0.21.0 of vllm (default: "
     "the newest that is known)",
     kAlone},
    {"--part", "part", "NAME",
     "Part of the model: text, vision, audio, indexer (default text; in a "
     "tower's own file, the tower)",
     kAlone},
    {"--layer-type", "layer_type", "NAME", "full_attention, sliding_attention",
     kAlone},
    {"--layer-index", "layer_index", "N", "Layer index, from 0", kAlone},
    {"--length", "sequence_length", "N",
     "Length in tokens for scalings that depend on it (dynamic_ntk, longrope)",
     kAlone},
    {"--head-dim", "head_dim", "N",
     "Channels of a head, for a --spec without rotaryDim or heads wider than "
     "the model's (keys beside values, latent rows)",
     kAlone},
};

constexpr FieldFlag kPositions[] = {
    {"--start", "start", "N", "Token t of every sequence has position N + t"},
    {"--starts", "starts.values", "LIST", "One start per sequence: 0,-3"},
    {"--ids", "ids", "FILE",
     "One position per token: an .npy, or FILE.safetensors:NAME"},
    {"--cu-seqlens", "packed.cu_seqlens", "LIST",
     "Ends of packed sequences, with a 0 in front: 0,3,7"},
    {"--packed-starts", "packed.starts", "LIST",
     "First position of each packed sequence", "--cu-seqlens"},
};

// Parses the elements of a list. If `parse` returns false for an element, the
// error message is the element, then `fault`.
template <typename T>
absl::StatusOr<std::vector<T>> ParseList(const std::string& flag,
                                         const std::string& text,
                                         char separator,
                                         bool (*parse)(absl::string_view, T*),
                                         const char* fault) {
  std::vector<T> values;
  for (const absl::string_view part : absl::StrSplit(text, separator)) {
    if (!parse(part, &values.emplace_back())) {
      return UsageError(absl::StrCat(flag, ": '", part, "' ", fault));
    }
  }
  return values;
}

}  // namespace

void AddGlobalFlags(CLI::App* app, GlobalFlags* flags) {
  AddFlag(
      app, "--server", &flags->server, "ADDRESS",
      "Address of a server (127.0.0.1:50051, unix:/path, dns:///host:port); "
      "without it, and without POSENC_SERVER in the environment, the service "
      "runs inside this process. No variable stands for the flags of TLS and "
      "tokens",
      {.fault =
           [](const std::string& address) {
             return std::string(address.empty() ? "is empty" : "");
           }})
      ->envname("POSENC_SERVER");
  AddFlag(app, "--timeout", &flags->timeout, "DURATION",
          "Deadline of each call", {.show_default = true});
  AddFlag(
      app, "--request-id", &flags->request_id, "TEXT",
      "Name of the calls in the server's log and in errors (default: random)");
  AddFlag(app, "--traceparent", &flags->traceparent, "TEXT",
          "W3C trace context that the calls belong to");
  AddFlag(app, "--json", &flags->json, "",
          "Print one JSON object on stdout, errors too");
  flags::AddSecurityFlags(app, &flags->security);
}

bool SourceFlags::Empty() const {
  return preset.empty() && config.empty() && spec.empty();
}

bool SourceFlags::Given() const {
  return !Empty() || Details().ByteSizeLong() > 0;
}

std::string SourceFlags::Name() const {
  return !preset.empty() ? preset : !config.empty() ? config : "spec";
}

v1::RopeSource SourceFlags::Details() const {
  v1::RopeSource source;
  details.Read(&source).IgnoreError();  // CLI11 has checked the values
  return source;
}

void AddSourceFlags(CLI::App* app, const std::string& prefix,
                    const std::string& group, SourceFlags* flags) {
  flags->prefix = prefix;
  const std::string dashes = "--" + prefix;
  CLI::Option* const preset =
      AddFlag(app, dashes + "preset", &flags->preset, "NAME",
              "Name of a model that `posenc info` lists", {.group = group});
  CLI::Option* const config = AddFlag(
      app, dashes + "config", &flags->config, "FILE",
      "A model's config.json (-: stdin) or the folder of it, or its .gguf as "
      "llama.cpp reads it",
      {.group = group});
  CLI::Option* const spec = AddFlag(app, dashes + "spec", &flags->spec, "JSON",
                                    "posenc.v1.RopeSpec as JSON, for example "
                                    "{\"rotaryDim\":128,"
                                    "\"pairing\":\"PAIRING_HALF_SPLIT\"}",
                                    {.group = group});
  preset->excludes(config)->excludes(spec);
  config->excludes(spec);
  flags->details.Add(app, group, kDetails, prefix);
  app->get_option(dashes + "layer-index")
      ->excludes(app->get_option(dashes + "layer-type"));
}

absl::StatusOr<v1::RopeSource> BuildSource(const SourceFlags& flags) {
  if (flags.Empty()) {
    const std::string dashes = "--" + flags.prefix;
    return UsageError(absl::StrCat("one of ", dashes, "preset, ", dashes,
                                   "config and ", dashes, "spec is required"));
  }
  v1::RopeSource source;
  RETURN_IF_ERROR(SetEncoding(flags, &source));
  v1::RopeSource details = flags.Details();
  if (!flags.config.empty() && source.has_spec()) {
    // GgufSource() has already applied the other flags.
    if (details.head_dim() != 0) source.set_head_dim(details.head_dim());
  } else {
    source.MergeFrom(details);
  }
  return source;
}

absl::StatusOr<v1::RopeSource> BuildVariant(const v1::RopeSource& base,
                                            const SourceFlags& flags) {
  if (!flags.Empty()) return BuildSource(flags);
  v1::RopeSource source = base;
  source.MergeFrom(flags.Details());
  return source;
}

void AddLayoutFlag(CLI::App* app, v1::Layout* layout) {
  AddEnumFlag(app, "--layout", layout, "bshd, bhsd, sbhd or thd",
              {.required = true});
}

void AddSaturationFlag(CLI::App* app, v1::Saturation* saturation) {
  AddEnumFlag(app, "--saturation", saturation,
              "finite or none, for results past the largest number; required "
              "for float8, and for int8 without blocks");
}

absl::StatusOr<std::vector<std::int64_t>> ParseIntegers(
    const std::string& flag, const std::string& text) {
  return ParseList<std::int64_t>(flag, text, ',',
                                 absl::SimpleAtoi<std::int64_t>,
                                 "is no integer; write numbers such as 0,3,7");
}

absl::StatusOr<std::vector<double>> ParseNumbers(const std::string& flag,
                                                 const std::string& text) {
  if (text.empty()) return std::vector<double>();
  return ParseList<double>(flag, text, ',', absl::SimpleAtod,
                           "is no number; write 1,0.5");
}

absl::StatusOr<std::vector<std::int32_t>> ParseExtents(
    const std::string& flag, const std::string& text) {
  return ParseList<std::int32_t>(
      flag, text, 'x',
      [](absl::string_view part, std::int32_t* extent) {
        return absl::SimpleAtoi(part, extent) && *extent >= 0;
      },
      "is no extent; write 2x4x4");
}

void AddPositionFlags(CLI::App* app, const std::string& prefix,
                      const std::string& group, FieldFlags* flags) {
  flags->Add(app, group, kPositions, prefix);
}

absl::StatusOr<v1::Positions> BuildPositions(const FieldFlags& flags) {
  v1::Positions positions;
  const absl::Status status = flags.Read(&positions);
  if (flags.Empty()) {
    return UsageError(absl::StrCat("no positions; ", status.message()));
  }
  if (!status.ok()) return status;
  return positions;
}

}  // namespace posenc::cli
