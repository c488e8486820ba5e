// Bounds of a configuration's text, and invalid sources.

#include "core/interpretation/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "core/interpretation/classes/known_keys.h"
#include "core/interpretation/report.h"
#include "core/interpretation/source.h"
#include "nlohmann/json.hpp"

namespace posenc::core::interpretation {
namespace {

using nlohmann::json;
using testing::HasSubstr;

absl::Status Resolve(const RopeSource& source, std::int64_t head_dim = 0) {
  return ResolveSource(source, head_dim, MissingLength::kError).status();
}

absl::Status OfText(const std::string& text) {
  RopeSource source;
  source.source = ConfigJson{text};
  return Resolve(source);
}

TEST(ModelConfigTest, RejectsDeepAndLongText) {
  for (const auto& [text, fact] :
       {std::pair(std::string(65, '[') + std::string(65, ']'),
                  "deeper than 64"),
        std::pair(std::string(100000, '['), "deeper than 64"),
        std::pair(std::string((1 << 20) + 1, ' '), "1048577 bytes")}) {
    const absl::Status status = OfText(text);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    const auto details = GetErrorDetails(status);
    ASSERT_TRUE(details.has_value()) << status;
    EXPECT_EQ(details->reason, ErrorReason::kModelConfigInvalid) << status;
    EXPECT_EQ(details->field, "config_json");
    EXPECT_TRUE(details->metadata.empty()) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(fact));
  }
  // Brackets inside strings do not count as depth.
  const absl::Status quoted = OfText(absl::StrCat(
      R"({"model_type": "llama", "hidden_size": 4096, "note": "\")",
      std::string(100, '['), "\"}"));
  EXPECT_TRUE(quoted.ok()) << quoted;
}

TEST(ModelConfigTest, SomeKeysSayThatAModelRotates) {
  Report report;
  for (const json& config :
       {json{{"rope_theta", 1e4}}, json{{"rotary_dim", 64}},
        json{{"position_embedding_type", "rotary"}},
        json{{"attn_config", {{"rope_theta", 1e4}}}}}) {
    EXPECT_TRUE(HasRotaryKey(JsonObject(&config, "", &report)))
        << config.dump();
  }
  const json none = {{"hidden_size", 64},
                     {"position_embedding_type", "absolute"}};
  EXPECT_FALSE(HasRotaryKey(JsonObject(&none, "", &report)));
}

TEST(SourceTest, MustBeGiven) {
  EXPECT_EQ(GetErrorDetails(Resolve(RopeSource()))->reason,
            ErrorReason::kFieldRequired);
}

TEST(SourceTest, SpecsHaveNoLayersNoPartsAndNoVersions) {
  RopeSource plain;
  plain.source = RopeSpec{.rotary_dim = 64, .pairing = Pairing::kHalfSplit};
  EXPECT_TRUE(Resolve(plain, 64).ok());
  RopeSource layer = plain, part = plain, version = plain;
  layer.layer_type = "full_attention";
  EXPECT_EQ(GetErrorDetails(Resolve(layer, 64))->field, "layer_type");
  part.part = ModelPart::kVision;
  EXPECT_EQ(GetErrorDetails(Resolve(part, 64))->field, "part");
  version.profile_version = "0.33.0";
  EXPECT_EQ(GetErrorDetails(Resolve(version, 64))->field, "profile_version");
}

TEST(SourceTest, NamesTheSpecInItsErrors) {
  RopeSource source;
  source.source = RopeSpec{.rotary_dim = 63, .pairing = Pairing::kHalfSplit};
  EXPECT_EQ(GetErrorDetails(Resolve(source, 64))->field, "spec.rotary_dim");
}

}  // namespace
}  // namespace posenc::core::interpretation
