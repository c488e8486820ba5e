#include "client/cli/options.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/cli/doctor_files.h"
#include "client/cli/enum_flags.h"
#include "client/cli/gguf_source.h"
#include "client/cli/status.h"
#include "client/cli/tensor_file.h"
#include "google/protobuf/util/json_util.h"

namespace posenc::cli {
namespace {

// Sets the encoding itself: --preset, --config or --spec.
absl::Status SetEncoding(const SourceFlags& flags, v1::RopeSource* source) {
  if (!flags.preset.empty()) {
    source->set_preset(flags.preset);
  } else if (!flags.config.empty() && IsGguf(flags.config)) {
    const absl::StatusOr<v1::RopeSource> gguf = GgufSource(flags);
    if (!gguf.ok()) return gguf.status();
    *source = *gguf;
  } else if (!flags.config.empty()) {
    absl::StatusOr<std::string> text = ReadConfigText(flags.config);
    if (!text.ok()) return text.status();
    source->set_config_json(*std::move(text));
  } else {
    const auto status = google::protobuf::util::JsonStringToMessage(
        flags.spec, source->mutable_spec());
    if (!status.ok()) {
      return UsageError(absl::StrCat(
          "--", flags.prefix,
          "spec: no posenc.v1.RopeSpec: ", std::string(status.message())));
    }
  }
  return absl::OkStatus();
}

// Sets how it is interpreted: --profile, --profile-version, --part,
// --layer-type, --layer-index, --length.
void SetInterpretation(const SourceFlags& flags, v1::RopeSource* source) {
  if (flags.profile != v1::PROFILE_UNSPECIFIED) {
    source->set_profile(flags.profile);
  }
  if (!flags.profile_version.empty()) {
    source->set_profile_version(flags.profile_version);
  }
  if (flags.part != v1::MODEL_PART_UNSPECIFIED) source->set_part(flags.part);
  if (!flags.layer_type.empty()) source->set_layer_type(flags.layer_type);
  if (flags.layer_index) source->set_layer_index(*flags.layer_index);
  if (flags.length) source->set_sequence_length(*flags.length);
}

}  // namespace

void AddGlobalFlags(CLI::App* app, GlobalFlags* flags) {
  AddValue(app, "--server", &flags->server, "ADDRESS",
           "Address of a server (127.0.0.1:50051, unix:/path, "
           "dns:///host:port); without it, and without POSENC_SERVER "
           "in the environment, the service runs inside this process")
      ->envname("POSENC_SERVER");
  AddValue(app, "--timeout", &flags->timeout, "DURATION",
           "Deadline of each call")
      ->capture_default_str();
  AddValue(app, "--request-id", &flags->request_id, "TEXT",
           "The calls' name in the server's log, and with their errors "
           "(default: random)");
  AddValue(app, "--traceparent", &flags->traceparent, "TEXT",
           "W3C trace context that the calls belong to");
  app->add_flag("--json", flags->json,
                "Print one JSON object on stdout, errors too");
  flags::AddSecurityFlags(app, &flags->security);
}

bool SourceFlags::Empty() const {
  return preset.empty() && config.empty() && spec.empty();
}

bool SourceFlags::Given() const {
  return !Empty() || profile != v1::PROFILE_UNSPECIFIED ||
         !profile_version.empty() || part != v1::MODEL_PART_UNSPECIFIED ||
         !layer_type.empty() || layer_index || length || head_dim != 0;
}

std::string SourceFlags::Name() const {
  return !preset.empty() ? preset : !config.empty() ? config : "spec";
}

void AddSourceFlags(CLI::App* app, const std::string& prefix,
                    const std::string& group, SourceFlags* flags) {
  flags->prefix = prefix;
  const std::string dashes = "--" + prefix;
  const auto add = [&](const char* name, auto* value, const char* type,
                       const char* text) {
    return app->add_option(dashes + name, *value, text)
        ->type_name(type)
        ->group(group);
  };
  CLI::Option* const preset = add("preset", &flags->preset, "NAME",
                                  "Name of a model that `posenc info` lists");
  CLI::Option* const config =
      add("config", &flags->config, "FILE",
          "A model's config.json (-: stdin), or its .gguf as llama.cpp reads "
          "it");
  CLI::Option* const spec = add("spec", &flags->spec, "JSON",
                                "posenc.v1.RopeSpec as JSON, for example "
                                "{\"pairing\":\"PAIRING_INTERLEAVED\"}");
  preset->excludes(config)->excludes(spec);
  config->excludes(spec);
  AddEnumFlag(app, dashes + "profile", &flags->profile,
              "Whose reading: hf, vllm, llama_cpp, gpt_oss, deepseek, "
              "mistral, mlx (default hf)")
      ->group(group);
  add("profile-version", &flags->profile_version, "VERSION",
      "Version of the profile's project, for example 0.21.0 of vllm (default: "
      "the newest that is known)");
  AddEnumFlag(
      app, dashes + "part", &flags->part,
      "Which part of the model: text, vision, audio, indexer (default text, or "
      "the tower that the file is)")
      ->group(group);
  CLI::Option* const type = add("layer-type", &flags->layer_type, "NAME",
                                "full_attention, sliding_attention");
  add("layer-index", &flags->layer_index, "N", "Which layer, from 0")
      ->excludes(type);
  add("length", &flags->length, "N",
      "Tokens that length-dependent scalings (dynamic_ntk, longrope) are "
      "evaluated at");
  add("head-dim", &flags->head_dim, "N",
      "Channels of a head; for a --spec without rotaryDim, and for heads that "
      "are wider than the model's (keys beside values, latent rows)");
}

absl::StatusOr<v1::RopeSource> BuildSource(const SourceFlags& flags) {
  if (flags.Empty()) {
    const std::string dashes = "--" + flags.prefix;
    return UsageError(absl::StrCat("one of ", dashes, "preset, ", dashes,
                                   "config and ", dashes, "spec is required"));
  }
  v1::RopeSource source;
  const absl::Status status = SetEncoding(flags, &source);
  if (!status.ok()) return status;
  // A GGUF is read whole by now; the flags would be of a configuration.
  const bool is_gguf = !flags.config.empty() && source.has_spec();
  if (!is_gguf) SetInterpretation(flags, &source);
  if (flags.head_dim != 0) source.set_head_dim(flags.head_dim);
  return source;
}

absl::StatusOr<v1::RopeSource> BuildVariant(const v1::RopeSource& base,
                                            const SourceFlags& flags) {
  if (!flags.Empty()) return BuildSource(flags);
  v1::RopeSource source = base;
  SetInterpretation(flags, &source);
  if (flags.head_dim != 0) source.set_head_dim(flags.head_dim);
  return source;
}

void AddLayoutFlag(CLI::App* app, v1::Layout* layout) {
  AddEnumFlag(app, "--layout", layout, "bshd, bhsd, sbhd or thd")->required();
}

void AddSaturationFlag(CLI::App* app, v1::Saturation* saturation) {
  AddEnumFlag(app, "--saturation", saturation,
              "finite or none: what becomes of results past the largest "
              "number; float8_e4m3fn and float8_e5m2 need it");
}

absl::StatusOr<std::vector<std::int64_t>> ParseIntegers(
    const std::string& flag, const std::string& text) {
  std::vector<std::int64_t> values;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    std::int64_t value;
    if (!absl::SimpleAtoi(part, &value)) {
      return UsageError(
          absl::StrCat(flag, ": '", part, "' is no integer; write 0,3,7"));
    }
    values.push_back(value);
  }
  return values;
}

absl::Status ParseNumbers(const std::string& flag, const std::string& text,
                          google::protobuf::RepeatedField<double>* field) {
  if (text.empty()) return absl::OkStatus();
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    double value;
    if (!absl::SimpleAtod(part, &value)) {
      return UsageError(
          absl::StrCat(flag, ": '", part, "' is no number; write 1,0.5"));
    }
    field->Add(value);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::int32_t>> ParseExtents(
    const std::string& flag, const std::string& text) {
  std::vector<std::int32_t> extents;
  for (const absl::string_view part : absl::StrSplit(text, 'x')) {
    std::int32_t extent;
    if (!absl::SimpleAtoi(part, &extent) || extent < 0) {
      return UsageError(
          absl::StrCat(flag, ": '", text, "' are no extents; write 2x4x4"));
    }
    extents.push_back(extent);
  }
  return extents;
}

bool PositionFlags::Empty() const {
  return !start && starts.empty() && ids.empty() && cu_seqlens.empty();
}

void AddPositionFlags(CLI::App* app, const std::string& prefix,
                      const std::string& group, PositionFlags* flags) {
  flags->prefix = prefix;
  const std::string dashes = "--" + prefix;
  const auto add = [&](const char* name, auto* value, const char* text) {
    return app->add_option(dashes + name, *value, text)->group(group);
  };
  add("start", &flags->start, "Token t of every sequence stands at N + t")
      ->type_name("N");
  add("starts", &flags->starts, "One start per sequence: 0,-3")
      ->type_name("LIST");
  add("ids", &flags->ids,
      "One position per token: an .npy, or FILE.safetensors:NAME")
      ->type_name("FILE");
  add("cu-seqlens", &flags->cu_seqlens,
      "Ends of packed sequences, with a 0 in front: 0,3,7")
      ->type_name("LIST");
  add("packed-starts", &flags->packed_starts,
      "First position of each packed sequence")
      ->type_name("LIST");
}

absl::StatusOr<v1::Positions> BuildPositions(const PositionFlags& flags) {
  const std::string dashes = "--" + flags.prefix;
  const int kinds = flags.start.has_value() + !flags.starts.empty() +
                    !flags.ids.empty() + !flags.cu_seqlens.empty();
  if (kinds != 1) {
    return UsageError(
        absl::StrCat(kinds == 0 ? "no" : absl::StrCat(kinds, " kinds of"),
                     " positions; give one of ", dashes, "start, ", dashes,
                     "starts, ", dashes, "ids and ", dashes, "cu-seqlens"));
  }
  if (!flags.packed_starts.empty() && flags.cu_seqlens.empty()) {
    return UsageError(absl::StrCat(dashes, "packed-starts: belongs to ", dashes,
                                   "cu-seqlens"));
  }
  v1::Positions positions;
  if (flags.start) {
    positions.set_start(*flags.start);
  } else if (!flags.starts.empty()) {
    const auto values = ParseIntegers(dashes + "starts", flags.starts);
    if (!values.ok()) return values.status();
    positions.mutable_starts()->mutable_values()->Assign(values->begin(),
                                                         values->end());
  } else if (!flags.ids.empty()) {
    const absl::Status status =
        ReadTensor(dashes + "ids", flags.ids, positions.mutable_ids());
    if (!status.ok()) return status;
  } else {
    const auto lengths = ParseIntegers(dashes + "cu-seqlens", flags.cu_seqlens);
    if (!lengths.ok()) return lengths.status();
    v1::PackedSequences* const packed = positions.mutable_packed();
    packed->mutable_cu_seqlens()->Assign(lengths->begin(), lengths->end());
    if (!flags.packed_starts.empty()) {
      const auto starts =
          ParseIntegers(dashes + "packed-starts", flags.packed_starts);
      if (!starts.ok()) return starts.status();
      packed->mutable_starts()->Assign(starts->begin(), starts->end());
    }
  }
  return positions;
}

}  // namespace posenc::cli
