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
  std::string preset;
  std::string config;
  std::string spec;
  std::string profile;
  std::string layer_type;
  std::optional<std::int32_t> layer_index;
  std::optional<std::int64_t> length;

  // None of --preset, --config and --spec.
  bool Empty() const;

  // "llama-3.1-8b", the configuration's file, "spec".
  std::string Name() const;
};

// `prefix` stands in front of every name: "compare-".
void AddSourceFlags(CLI::App* app, const std::string& prefix,
                    SourceFlags* flags);

// Reads the configuration. Errors: exit codes 2 and 3.
absl::StatusOr<v1::RopeSource> BuildSource(const SourceFlags& flags);

// Where tokens stand: --start, --starts, --ids or --cu-seqlens.
struct PositionFlags {
  std::optional<std::int64_t> start;
  std::string starts;
  std::string ids;
  std::string cu_seqlens;
  std::string packed_starts;
};

// One of the kinds, from the command line; --ids reads an .npy file.
absl::StatusOr<v1::Positions> BuildPositions(const PositionFlags& flags);

// "1,2,-3". Errors name the flag.
absl::StatusOr<std::vector<std::int64_t>> ParseIntegers(
    const std::string& flag, const std::string& text);

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
