// Flags that several commands share, and the messages that they stand for.
// Flags have the names of the contract's fields, so that an error of the
// server, which names a field, names the flag too.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cli/field_flags.h"
#include "client/cli/file.h"
#include "client/flags/security_flags.h"
#include "posenc/client.h"

namespace posenc::cli {

// Adds a flag with a value, which --help calls `type`.
template <typename T>
CLI::Option* AddValue(CLI::App* app, const std::string& name, T* value,
                      const std::string& type, const std::string& text) {
  return app->add_option(name, *value, text)->type_name(type);
}

// Flags of every command, before or after its name.
struct GlobalFlags {
  std::string server;  // empty: a server inside this process
  flags::SecurityFlags security;
  std::string timeout = "60s";
  std::string request_id, traceparent;
  bool json = false;
};

void AddGlobalFlags(CLI::App* app, GlobalFlags* flags);

// A rotary encoding: one of --preset, --config and --spec names it; the others
// say how a model's configuration is to be interpreted, of which part and
// layer, and at which length.
struct SourceFlags {
  std::string prefix;  // stands before the flags' names: "compare-"
  std::string preset;  // a name that the server knows
  std::string config;  // the path of a config.json
  std::string spec;    // a posenc.v1.RopeSpec as JSON
  FieldFlags details{v1::RopeSource::descriptor()};

  // Profile, its version, part, layer, length and head_dim alone.
  v1::RopeSource Details() const;

  // True without --preset, --config and --spec.
  bool Empty() const;

  // True with any of the flags.
  bool Given() const;

  // Returns a name for people: "llama-3.1-8b", the configuration's file, or
  // "spec".
  std::string Name() const;
};

// What the details add to a name: "profile vllm", "layer 3".
std::vector<std::string> DetailTexts(const v1::RopeSource& details);

// `prefix` stands before every name ("compare-"), so that one command may take
// two encodings. `group` is the heading of these flags in --help.
void AddSourceFlags(CLI::App* app, const std::string& prefix,
                    const std::string& group, SourceFlags* flags);

// The source that the flags name. Reads the configuration's file, which travels
// with the request. Errors have exit code 2 (flags) or 3 (the file).
absl::StatusOr<v1::RopeSource> BuildSource(const SourceFlags& flags);

// The same for a second encoding. If its flags name none, they mean `base`
// under another profile, part, layer or length.
absl::StatusOr<v1::RopeSource> BuildVariant(const v1::RopeSource& base,
                                            const SourceFlags& flags);

// The positions of tokens, in one of four forms: --start, --starts, --ids or
// --cu-seqlens. `flags` are of Positions.
void AddPositionFlags(CLI::App* app, const std::string& prefix,
                      const std::string& group, FieldFlags* flags);

// The message for the one form that is given; exit code 2 if there is none.
// --ids reads its file.
absl::StatusOr<v1::Positions> BuildPositions(const FieldFlags& flags);

// --layout, which must be given.
void AddLayoutFlag(CLI::App* app, v1::Layout* layout);

// --saturation, for commands that may rotate tensors of FP8. If it is not
// given, the server asks for it where it is needed.
void AddSaturationFlag(CLI::App* app, v1::Saturation* saturation);

// Parses "1,2,-3". This and the next two fail with exit code 2 and name `flag`.
absl::StatusOr<std::vector<std::int64_t>> ParseIntegers(
    const std::string& flag, const std::string& text);

// Parses "1,0.5,-3e2" and appends it to a field. An empty text is no numbers.
absl::Status ParseNumbers(const std::string& flag, const std::string& text,
                          google::protobuf::RepeatedField<double>* field);

// Parses "2x4x4", each extent in [0, 2^31).
absl::StatusOr<std::vector<std::int32_t>> ParseExtents(const std::string& flag,
                                                       const std::string& text);

}  // namespace posenc::cli
