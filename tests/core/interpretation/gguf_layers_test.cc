// The layers of GGUF files that llama.cpp does not rotate.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "tests/fixtures/core/gguf_bytes.h"

namespace posenc::core::interpretation {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string Bool(const std::string& name, bool value) {
  return Key(name, 7, Bytes(static_cast<std::uint8_t>(value)));
}

// Returns the keys of a small file of an architecture, and more keys.
std::vector<std::string> Small(const std::string& architecture,
                               std::vector<std::string> more = {}) {
  more.insert(more.end(), {Str("general.architecture", architecture),
                           U32(architecture + ".block_count", 8),
                           U32(architecture + ".embedding_length", 512),
                           U32(architecture + ".attention.head_count", 8)});
  return more;
}

GgufRope SmallRope(const std::string& architecture,
                   std::vector<std::string> more = {}) {
  return Read(File(Small(architecture, std::move(more))));
}

TEST(GgufLayersTest, EveryFourthLayerOfSomeArchitecturesHasNoRope) {
  for (const char* name : {"smollm3", "llama4", "afmoe"}) {
    const GgufRope rope = SmallRope(name);
    EXPECT_EQ(rope.RotatesLayer(2), true) << name;
    EXPECT_EQ(rope.RotatesLayer(3), false) << name;
    EXPECT_EQ(rope.LayersWithoutRope(), "layers 3, 7") << name;
  }
  EXPECT_EQ(SmallRope("llama4", {U32("llama4.attention.sliding_window", 0)})
                .RotatesLayer(3),
            true);
  const GgufRope first = SmallRope(
      "smallthinker", {U32("smallthinker.attention.sliding_window", 4096)});
  EXPECT_EQ(first.LayersWithoutRope(), "layers 0, 4");
  EXPECT_EQ(SmallRope("smallthinker").LayersWithoutRope(), "");
  EXPECT_EQ(SmallRope("llama").RotatesLayer(3), std::nullopt);
}

TEST(GgufLayersTest, LayersWithoutAWindowHaveNoRopeInSomeArchitectures) {
  for (const std::string name : {"cohere2", "exaone-moe"}) {
    EXPECT_TRUE(SmallRope(name, {U32(name + ".attention.sliding_window", 4096)})
                    .RotatesInWindowsAlone())
        << name;
    EXPECT_FALSE(SmallRope(name).RotatesInWindowsAlone()) << name;
  }
  EXPECT_FALSE(SmallRope("exaone4").RotatesInWindowsAlone());
  GgufRope large = SmallRope("exaone4");
  large.block_count = 64;
  EXPECT_TRUE(large.RotatesInWindowsAlone());
  EXPECT_FALSE(
      SmallRope("gemma3", {U32("gemma3.attention.sliding_window", 512)})
          .RotatesInWindowsAlone());
}

TEST(GgufLayersTest, TheFilesPatternDecides) {
  std::string pattern = Bytes<std::uint32_t>(7) + Bytes<std::uint64_t>(3);
  for (const bool rotates : {false, true, true}) {
    pattern += Bytes(static_cast<std::uint8_t>(rotates));
  }
  const GgufRope rope = SmallRope(
      "granite_swa", {Key("granite_swa.attention.rope_pattern", 9, pattern)});
  EXPECT_EQ(rope.RotatesLayer(0), false);
  EXPECT_EQ(rope.RotatesLayer(1), true);
  EXPECT_EQ(rope.LayersWithoutRope(), "layers 0");
}

TEST(GgufLayersTest, GranitesSwitchTurnsRotationOff) {
  for (const std::string name : {"granite", "granitemoe", "granitehybrid"}) {
    const std::string key = name + ".rope.scaling.finetuned";
    EXPECT_TRUE(SmallRope(name).rotates) << name;
    EXPECT_TRUE(SmallRope(name, {Bool(key, true)}).rotates) << name;
    EXPECT_FALSE(SmallRope(name, {Bool(key, false)}).rotates) << name;
    EXPECT_THAT(ErrorOf(File(Small(name, {U32(key, 0)}))),
                HasSubstr("finetuned is a number; it must be a bool"));
  }
  EXPECT_TRUE(SmallRope("llama", {Bool("llama.rope.scaling.finetuned", false)})
                  .rotates);
}

TEST(GgufLayersTest, LayersWithoutRopeAreAssumed) {
  const auto rope = ResolveGguf(SmallRope("smollm3"), 8192, false);
  ASSERT_TRUE(rope.ok()) << rope.status();
  ASSERT_EQ(rope->assumptions.size(), 2);
  EXPECT_EQ(rope->assumptions[0].field, "layers");
  EXPECT_EQ(rope->assumptions[0].reason,
            "llama.cpp does not rotate layers 3, 7");
}

TEST(GgufLayersTest, KeysOfTypesThatLlamaCppRefusesAreNamed) {
  const auto mistyped = [](const std::string& key) {
    std::vector<std::string> names;
    for (const MistypedKey& one : SmallRope("llama", {key}).mistyped) {
      names.push_back(one.key + " is " + one.is + " for " + one.wanted);
    }
    return names;
  };
  EXPECT_THAT(mistyped(F32("llama.rope.freq_base", 500000)), IsEmpty());
  EXPECT_THAT(mistyped(U32("llama.rope.freq_base", 500000)),
              ElementsAre("llama.rope.freq_base is an integer for a float32"));
  EXPECT_THAT(
      mistyped(F32("llama.rope.dimension_count", 64)),
      ElementsAre("llama.rope.dimension_count is a float for a uint32"));
  EXPECT_THAT(
      mistyped(Key("llama.context_length", 5, Bytes(8192))),
      ElementsAre("llama.context_length is a signed integer for a uint32"));
}

}  // namespace
}  // namespace posenc::core::interpretation
