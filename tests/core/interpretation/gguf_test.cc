// The reader of GGUF headers: its results, and its errors for damaged files.
// tests/data/model/gguf.json has the encodings.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/fixtures/core/gguf_bytes.h"

namespace posenc::core::interpretation {
namespace {

using testing::HasSubstr;

TEST(GgufTest, VersionsTwoAndThreeReadAlike) {
  for (const std::uint32_t version : {2u, 3u}) {
    const GgufRope rope = Read(File(Llama(), {}, version));
    EXPECT_EQ(rope.architecture, "llama");
    EXPECT_EQ(rope.Base(), 500000);
    EXPECT_EQ(rope.RotaryDim(), 64);
    EXPECT_EQ(rope.context_length, 8192);
    EXPECT_EQ(rope.pairing, GgufPairing::kInterleaved);
  }
}

TEST(GgufTest, KeysThatSayNothingOfRotationArePassedOver) {
  std::vector<std::string> keys = Llama();
  std::string tokens = Bytes<std::uint32_t>(8) + Bytes<std::uint64_t>(20000);
  for (int i = 0; i < 20000; ++i) tokens += Text(absl::StrCat("token", i));
  keys.insert(keys.begin(), Key("tokenizer.ggml.tokens", 9, tokens));
  keys.insert(keys.begin(),
              Key("tokenizer.ggml.scores", 9,
                  Bytes<std::uint32_t>(6) + Bytes<std::uint64_t>(50000) +
                      std::string(200000, 'x')));
  keys.insert(keys.begin(),
              Str("general.description", std::string(99999, 'y')));
  EXPECT_EQ(Read(File(keys)).Base(), 500000);
}

TEST(GgufTest, KeysThatAreWrittenReadAsTheyWere) {
  GgufFile file;
  file.keys["general.architecture"] = std::string("llama");
  file.keys["llama.rope.freq_base"] = 500000.5;
  file.keys["llama.rope.dimension_count"] = std::uint64_t{1} << 60;
  file.keys["llama.rope.a"] = std::int64_t{-3};
  file.keys["llama.rope.scaling.finetuned"] = true;
  file.keys["llama.rope.dimension_sections"] =
      std::vector<double>{16, 24.5, -24, 0};
  file.keys["llama.rope.none"] = std::vector<double>();
  const std::string bytes = WriteGgufKeys(file);
  const auto read = ReadGguf(SourceOf(bytes));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->keys, file.keys);
  EXPECT_TRUE(read->tensors.empty());
}

TEST(GgufTest, AlignmentOfTheFileIsKept) {
  std::vector<std::string> keys = Llama();
  keys.push_back(U32("general.alignment", 256));
  std::string file =
      Padded(File(keys, {Tensor("rope_freqs.weight", {1}, 0, 0)}), 256);
  file += Bytes<float>(3);
  EXPECT_EQ(Read(file).rope_freqs, (std::vector<double>{3}));
}

TEST(GgufBadInputTest, EveryCutSaysWhereTheFileEnds) {
  const std::string file = File(Llama(), {Tensor("output", {4, 4}, 2, 0)});
  for (std::size_t n = 0; n < file.size(); ++n) {
    const std::string error = ErrorOf(file.substr(0, n));
    // After it has read a count, the reader compares the count with the rest of
    // the file.
    EXPECT_TRUE(absl::StrContains(error, absl::StrCat("ends at byte ", n)) ||
                absl::StrContains(error, " in "))
        << n << ": " << error;
  }
  EXPECT_THAT(ErrorOf(""), HasSubstr("ends at byte 0"));
}

TEST(GgufBadInputTest, AStringPastTheEndIsNamedWithItsLength) {
  const std::string file =
      Head(3, 0, 1) + Bytes<std::uint64_t>(26) + "general.archi";
  EXPECT_THAT(ErrorOf(file),
              testing::AllOf(HasSubstr("ends at byte 45"),
                             HasSubstr("a string of 26 bytes begins at")));
}

TEST(GgufBadInputTest, OtherMagicAndVersionsAreToldApart) {
  EXPECT_EQ(ErrorOf("GGML" + std::string(30, 'x')),
            "begins with \"GGML\", not \"GGUF\"");
  EXPECT_THAT(
      ErrorOf(File(Llama(), {}, 1)),
      HasSubstr(
          "GGUF version 1 (32-bit counts) is not read; convert it again"));
  EXPECT_THAT(ErrorOf(File(Llama(), {}, 4)),
              HasSubstr("GGUF version 4 is not read"));
  EXPECT_THAT(ErrorOf(File(Llama(), {}, 0x03000000)),
              HasSubstr("big-endian GGUF (version 3)"));
}

TEST(GgufBadInputTest, CountsAreComparedWithTheRemainingBytes) {
  // Another GGUF reader hung on a file of 43 bytes with such a count.
  EXPECT_EQ(ErrorOf(Head(3, 0, std::uint64_t{1} << 62)),
            "4611686018427387904 keys in 0 bytes");
  EXPECT_EQ(ErrorOf(Head(3, std::uint64_t{1} << 62, 0) + std::string(19, 0)),
            "4611686018427387904 tensors in 19 bytes");
  EXPECT_THAT(ErrorOf(Head(3, 0, 1000001) + std::string(13 * 1000001, 0)),
              HasSubstr("1000001 keys; at most 1000000 are read"));
}

TEST(GgufBadInputTest, KeptMemoryIsBoundedForEveryFile) {
  // 13 MB of bools in lists would become 104 MB of numbers.
  const std::string list = Bytes<std::uint32_t>(7) +
                           Bytes<std::uint64_t>(65536) + std::string(65536, 1);
  std::vector<std::string> keys = Llama();
  for (int i = 0; i < 200; ++i) {
    keys.push_back(Key(absl::StrCat("llama.rope.", i), 9, list));
  }
  EXPECT_EQ(ErrorOf(File(keys)),
            "names and values that would be kept have more than 67108864 "
            "bytes");
  // Long names of tensors and keys count, too.
  std::vector<std::string> tensors;
  tensors.reserve(1100);
  for (int i = 0; i < 1100; ++i) {
    tensors.push_back(
        Tensor(absl::StrCat(i, std::string(65000, 'x')), {1}, 0, 0));
  }
  EXPECT_THAT(ErrorOf(File(Llama(), tensors)), HasSubstr("67108864"));
}

TEST(GgufBadInputTest, KeysAreNamed) {
  const auto with = [](const std::string& key) {
    std::vector<std::string> keys = Llama();
    keys.push_back(key);
    return ErrorOf(File(keys));
  };
  EXPECT_THAT(
      with(Key("a", 9, Bytes<std::uint32_t>(9) + Bytes<std::uint64_t>(1))),
      HasSubstr("key a: an array of arrays"));
  EXPECT_THAT(with(Key("a", 9,
                       Bytes<std::uint32_t>(4) +
                           Bytes<std::uint64_t>(~std::uint64_t{0}))),
              HasSubstr("key a: ends at byte"));
  EXPECT_THAT(
      with(Key("a", 9, Bytes<std::uint32_t>(13) + Bytes<std::uint64_t>(0))),
      HasSubstr("key a: an array of type 13"));
  EXPECT_THAT(with(Key("a", 13, "")), HasSubstr("key a is of type 13"));
  EXPECT_THAT(with(U32("", 1)), HasSubstr("has an empty name"));
  EXPECT_THAT(with(F32("llama.rope.freq_base", 1)),
              HasSubstr("key llama.rope.freq_base stands twice"));
}

TEST(GgufBadInputTest, KnownKeysOfTheWrongTypeAreNamed) {
  std::vector<std::string> keys = Llama();
  keys[5] = F32("llama.rope.freq_base", std::nanf(""));
  EXPECT_THAT(ErrorOf(File(keys)), HasSubstr("llama.rope.freq_base is NaN"));
  EXPECT_THAT(ErrorOf(File({U32("general.architecture", 1)})),
              HasSubstr("general.architecture is a number"));
  EXPECT_THAT(ErrorOf(File({})), HasSubstr("general.architecture is missing"));
}

TEST(GgufBadInputTest, AlignmentIsAPowerOfTwoUpToOneMebibyte) {
  for (const std::uint32_t alignment : {0u, 3u, 1u << 21}) {
    std::vector<std::string> keys = Llama();
    keys.push_back(U32("general.alignment", alignment));
    EXPECT_THAT(ErrorOf(File(keys)),
                HasSubstr(absl::StrCat("general.alignment is ", alignment)));
  }
}

TEST(GgufBadInputTest, FactorsAreFiniteAndAboveZero) {
  for (const float bad : {0.0f, -1.0f, std::nanf(""), HUGE_VALF}) {
    std::string file =
        Padded(File(Llama(), {Tensor("rope_freqs.weight", {2}, 0, 0)}));
    file += Bytes(1.0f) + Bytes(bad);
    EXPECT_THAT(
        ErrorOf(file),
        testing::AllOf(HasSubstr("tensor rope_freqs.weight has a value"),
                       HasSubstr("factors are finite and > 0")));
  }
}

TEST(GgufBadInputTest, ElementsOfArraysAreIntegersOf32Bits) {
  const auto array = [](std::uint32_t type, const std::string& element) {
    return Bytes(type) + Bytes<std::uint64_t>(1) + element;
  };
  for (const std::string& refused :
       {array(0, "a"), array(3, "ab"), array(6, Bytes(16.0F)),
        array(8, Text("16")), array(10, Bytes<std::uint64_t>(16)),
        array(12, Bytes(std::nan("")))}) {
    for (const char* key :
         {"llama.rope.dimension_sections", "llama.attention.head_count"}) {
      std::vector<std::string> keys = Llama();
      keys.erase(keys.begin() + 2);
      keys.push_back(Key(key, 9, refused));
      EXPECT_THAT(
          ErrorOf(File(keys)),
          HasSubstr(absl::StrCat(
              "key ", key, " is an array, but not of integers of 32 bits")));
    }
  }
  for (const std::uint32_t type : {4, 5}) {
    std::vector<std::string> keys = Llama();
    keys[2] = Key("llama.attention.head_count", 9,
                  array(type, Bytes<std::int32_t>(8)));
    EXPECT_EQ(Read(File(keys)).head_count, 8);
  }
}

TEST(GgufBadInputTest, ANameThatIsTooLongCountsAsAbsent) {
  // Strings of more than 1 MiB are skipped, for every key.
  const std::string file =
      File({Str("general.architecture", std::string((1 << 20) + 1, 'x'))});
  EXPECT_THAT(ErrorOf(file), HasSubstr("general.architecture"));
}

TEST(GgufBadInputTest, TensorsAreNamed) {
  const auto with = [](const std::vector<std::string>& tensors) {
    return ErrorOf(Padded(File(Llama(), tensors)));
  };
  EXPECT_THAT(with({Tensor("rope_freqs.weight", {32}, 0, 0)}),
              HasSubstr("tensor rope_freqs.weight of 128 bytes begins at"));
  EXPECT_THAT(with({Tensor("rope_freqs.weight", {32}, 0, ~std::uint64_t{0})}),
              HasSubstr("tensor rope_freqs.weight"));
  EXPECT_THAT(with({Tensor("rope_freqs.weight", {32}, 2, 0)}),
              HasSubstr("tensor rope_freqs.weight is of type 2"));
  EXPECT_THAT(with({Tensor("rope_freqs.weight", {16, 2}, 0, 0)}),
              HasSubstr("tensor rope_freqs.weight has more than one row"));
  EXPECT_THAT(with({Tensor("a", {1}, 0, 0), Tensor("a", {1}, 0, 0)}),
              HasSubstr("tensor a stands twice"));
  EXPECT_THAT(with({Tensor("a", {1, 1, 1, 1, 1}, 0, 0)}),
              HasSubstr("tensor a has 5 dimensions"));
  const std::uint64_t large = std::uint64_t{1} << 40;
  EXPECT_THAT(with({Tensor("a", {large, large}, 0, 0)}),
              HasSubstr("tensor a: its extents overflow"));
  EXPECT_THAT(with({Tensor("rope_freqs.weight", {large}, 0, 0)}),
              HasSubstr("tensor rope_freqs.weight has"));
}

}  // namespace
}  // namespace posenc::core::interpretation
