// Flags that several commands share, and the messages that they stand for.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cli/file.h"
#include "posenc/client.h"

namespace posenc::cli {

struct GlobalFlags {
  std::string server;  // empty: the service runs inside this process
  std::string timeout = "60s";
  bool json = false;
};

void AddGlobalFlags(CLI::App* app, GlobalFlags* flags);

// Which rotary encoding: --preset, --config or --spec, and what belongs to it.
struct SourceFlags {
  std::string prefix;  // of the flags' names
  std::string preset;
  std::string config;
  std::string spec;
  std::string profile;
  std::string layer_type;
  std::optional<std::int32_t> layer_index;
  std::optional<std::int64_t> length;

  // None of --preset, --config and --spec.
  bool Empty() const;

  // Anything at all.
  bool Given() const;

  // "llama-3.1-8b", the configuration's file, "spec".
  std::string Name() const;
};

// `prefix` stands in front of every name: "compare-". `group` heads their part
// of --help.
void AddSourceFlags(CLI::App* app, const std::string& prefix,
                    const std::string& group, SourceFlags* flags);

// Reads the configuration. Errors: exit codes 2 and 3.
absl::StatusOr<v1::RopeSource> BuildSource(const SourceFlags& flags);

// The same, where flags that name no encoding mean `base` under another
// profile, layer or length.
absl::StatusOr<v1::RopeSource> BuildVariant(const v1::RopeSource& base,
                                            const SourceFlags& flags);

// Where tokens stand: --start, --starts, --ids or --cu-seqlens.
struct PositionFlags {
  std::string prefix;  // of the flags' names
  std::optional<std::int64_t> start;
  std::string starts;
  std::string ids;
  std::string cu_seqlens;
  std::string packed_starts;

  // None of the kinds.
  bool Empty() const;
};

void AddPositionFlags(CLI::App* app, const std::string& prefix,
                      const std::string& group, PositionFlags* flags);

// One of the kinds, from the command line; --ids reads a file.
absl::StatusOr<v1::Positions> BuildPositions(const PositionFlags& flags);

// "1,2,-3". Errors name the flag.
absl::StatusOr<std::vector<std::int64_t>> ParseIntegers(
    const std::string& flag, const std::string& text);

// "1,0.5,-3e2" into a field; nothing where the text is empty.
absl::Status ParseNumbers(const std::string& flag, const std::string& text,
                          google::protobuf::RepeatedField<double>* field);

// "2x4x4", each extent in [0, 2^31).
absl::StatusOr<std::vector<std::int32_t>> ParseExtents(const std::string& flag,
                                                       const std::string& text);

// "bfloat16", "bshd", ... by the enum's own names without their prefix.
// `prefix` is "DTYPE_".
template <typename Enum>
absl::StatusOr<Enum> ParseEnum(const std::string& flag,
                               const std::string& prefix,
                               const std::string& text);

// "bfloat16" for "DTYPE_", DTYPE_BFLOAT16.
template <typename Enum>
std::string EnumText(const std::string& prefix, Enum value);

}  // namespace posenc::cli
