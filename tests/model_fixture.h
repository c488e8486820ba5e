// What the tests of reading configurations by profile share.

#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>

#include "core/model/source.h"
#include "nlohmann/json.hpp"

namespace posenc::core {

inline constexpr Profile kEveryProfile[] = {
    Profile::kHf,       Profile::kVllm,    Profile::kLlamaCpp, Profile::kGptOss,
    Profile::kDeepseek, Profile::kMistral, Profile::kMlx};

inline absl::StatusOr<ResolvedRope> TryRead(
    const nlohmann::json& config, Profile profile,
    std::optional<std::int64_t> length = {}) {
  RopeSource source;
  source.source = ConfigJson{config.dump()};
  source.profile = profile;
  source.sequence_length = length;
  return ResolveSource(source, 0, MissingLength::kError);
}

inline ResolvedRope Read(const nlohmann::json& config, Profile profile,
                         std::optional<std::int64_t> length = {}) {
  auto rope = TryRead(config, profile, length);
  EXPECT_TRUE(rope.ok()) << rope.status();
  return rope.ok() ? *rope : ResolvedRope();
}

inline bool Warned(const ResolvedRope& rope, const std::string& text) {
  for (const std::string& warning : rope.warnings) {
    if (warning.find(text) != std::string::npos) return true;
  }
  return false;
}

inline bool Assumed(const ResolvedRope& rope, const std::string& field,
                    const std::string& value) {
  for (const Assumption& assumption : rope.assumptions) {
    if (assumption.field == field && assumption.value == value) return true;
  }
  return false;
}

// To rounding of one float64.
inline void ExpectSame(double actual, long double expected) {
  EXPECT_NEAR(actual, static_cast<double>(expected),
              std::abs(static_cast<double>(expected)) * 0x1p-51);
}

}  // namespace posenc::core
