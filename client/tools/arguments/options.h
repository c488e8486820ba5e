// Flags that several commands share, and the messages that are built from them.
// Flags have the names of the contract's fields, so that an error of the server
// that names a field also names the flag.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/tools/arguments/field_flags.h"
#include "client/tools/files/file.h"
#include "client/tools/flags/command_line.h"
#include "client/tools/flags/security_flags.h"
#include "posenc/client.h"

namespace posenc::cli {

using flags::AddFlag;

// Flags that every command has. They can precede or follow the command's name.
struct GlobalFlags {
  std::string server;  // empty: a server inside this process
  flags::SecurityFlags security;
  std::string timeout = "60s";
  std::string request_id, traceparent;
  bool json = false;
};

void AddGlobalFlags(CLI::App* app, GlobalFlags* flags);

// A rotary encoding: --preset, --config or --spec names it. The other flags
// select the interpretation of a model's configuration, the part and the layer
// of the model, and the length.
struct SourceFlags {
  std::string prefix;  // before the flags' names: "compare-"
  std::string preset;  // a name that the server knows
  std::string config;  // the path of a config.json or a GGUF
  std::string spec;    // a posenc.v1.RopeSpec as JSON
  FieldFlags details{v1::RopeSource::descriptor()};

  // Returns a source with the fields of `details` only: profile and its
  // version, part, layer, length and head_dim.
  v1::RopeSource Details() const;

  // Returns true if none of --preset, --config and --spec is given.
  bool Empty() const;

  bool Given() const;

  // Returns a name for messages and titles: the preset, the path of the
  // configuration, or "spec".
  std::string Name() const;
};

// Adds the flags. `prefix` ("compare-") is put before every name, so that a
// command can take two encodings. `group` is the heading of these flags in
// --help.
void AddSourceFlags(CLI::App* app, const std::string& prefix,
                    const std::string& group, SourceFlags* flags);

// Returns the source that the flags name. Reads the configuration's file, which
// is sent with the request. Errors have exit code 2 (flags) or 3 (the file).
absl::StatusOr<v1::RopeSource> BuildSource(const SourceFlags& flags);

// Returns the encoding that `flags` name. If they name no encoding, the result
// is `base` with the profile, part, layer or length of `flags`.
absl::StatusOr<v1::RopeSource> BuildVariant(const v1::RopeSource& base,
                                            const SourceFlags& flags);

// Adds flags for the positions of tokens, in one of four forms: --start,
// --starts, --ids or --cu-seqlens. `flags` must set fields of Positions.
void AddPositionFlags(CLI::App* app, const std::string& prefix,
                      const std::string& group, FieldFlags* flags);

// Returns the positions in the form that is given, and reads the file of --ids.
// If no form is given, returns an error with exit code 2.
absl::StatusOr<v1::Positions> BuildPositions(const FieldFlags& flags);

// Adds the flags of an absolute encoding. `flags` must set fields of an
// AbsoluteEncoding.
void AddAbsoluteFlags(CLI::App* app, FieldFlags* flags);

// Returns an error with exit code 2: neither a rotary nor an absolute encoding
// is given.
absl::Status NoEncoding();

// Adds --layout, which is required.
void AddLayoutFlag(CLI::App* app, v1::Layout* layout);

// Adds --saturation, for commands that may rotate tensors of FP8. The server
// refuses FP8 without it.
void AddSaturationFlag(CLI::App* app, v1::Saturation* saturation);

// Parses a list of integers, for example "1,2,-3". Errors of ParseIntegers(),
// ParseNumbers() and ParseExtents() have exit code 2 and name `flag`.
absl::StatusOr<std::vector<std::int64_t>> ParseIntegers(
    const std::string& flag, const std::string& text);

// Parses a list of numbers, for example "1,0.5,-3e2". An empty text gives no
// numbers.
absl::StatusOr<std::vector<double>> ParseNumbers(const std::string& flag,
                                                 const std::string& text);

// Parses extents, for example "2x4x4". Each extent must be in [0, 2^31).
absl::StatusOr<std::vector<std::int32_t>> ParseExtents(const std::string& flag,
                                                       const std::string& text);

}  // namespace posenc::cli
