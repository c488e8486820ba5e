// Presets that differ from their class's defaults
// (core/interpretation/preset_default.h).

#include "core/interpretation/preset_default.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/interpretation/presets.h"

namespace posenc::core::interpretation {
namespace {

using testing::HasSubstr;

std::optional<Assumption> OfPreset(const std::string& name, Profile profile) {
  RopeSource source;
  source.source = PresetName{name};
  source.profile = profile;
  const auto rope = ResolveSource(source, 0, MissingLength::kAssumeOriginal);
  EXPECT_TRUE(rope.ok()) << rope.status();
  return rope.ok() ? DifferenceFromDefault(source, *rope) : std::nullopt;
}

TEST(PresetDefaultTest, APresetUnlikeItsClassSaysHow) {
  const auto found = OfPreset("llama-3.1-8b", Profile::kHf);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->field, "preset");
  EXPECT_EQ(found->value, "llama-3.1-8b");
  EXPECT_THAT(found->reason,
              HasSubstr("transformers' default for model_type llama differs"));
  EXPECT_THAT(found->reason, HasSubstr("10000"));
  EXPECT_THAT(found->reason, HasSubstr("llama3 by 8"));
}

TEST(PresetDefaultTest, APresetLikeItsClassSaysNothing) {
  EXPECT_FALSE(OfPreset("llama-2-7b", Profile::kHf).has_value());
}

TEST(PresetDefaultTest, OtherProfilesAndSourcesSayNothing) {
  EXPECT_FALSE(OfPreset("llama-3.1-8b", Profile::kMlx).has_value());
  RopeSource spec;
  spec.source = RopeSpec{.rotary_dim = 64, .pairing = Pairing::kHalfSplit};
  const auto rope = ResolveSource(spec, 64, MissingLength::kError);
  ASSERT_TRUE(rope.ok());
  EXPECT_FALSE(DifferenceFromDefault(spec, *rope).has_value());
}

}  // namespace
}  // namespace posenc::core::interpretation
