// .npy and .safetensors: the command reads the files that it writes, and
// refuses hostile files.

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "client/tools/check/element.h"
#include "client/tools/files/file.h"
#include "client/tools/files/npy.h"
#include "client/tools/files/safetensors.h"
#include "client/tools/files/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "posenc/wire/frame.h"

namespace posenc::cli {
namespace {

using check::ElementAt;
using check::SetElement;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Text(absl::Span<const char> bytes) {
  return std::string(bytes.begin(), bytes.end());
}

// Parses an exact copy, so that ASan detects reads past its end.
template <typename Parse>
auto ParseExact(Parse parse, const std::string& text) {
  auto bytes = std::make_unique<char[]>(text.size());
  std::copy(text.begin(), text.end(), bytes.get());
  return parse(absl::MakeConstSpan(bytes.get(), text.size())).status();
}

std::string Npy(const std::string& dict, const std::string& data) {
  std::string file("\x93NUMPY\x01\x00", 8);
  file += static_cast<char>(dict.size());
  file += static_cast<char>(dict.size() >> 8);
  return file + dict + data;
}

std::string SafetensorsText(const std::string& json, const std::string& data) {
  std::string file;
  for (int i = 0; i < 8; ++i) {
    file += static_cast<char>(std::uint64_t{json.size()} >> (8 * i));
  }
  return file + json + data;
}

absl::Status NpyStatus(const std::string& dict, const std::string& data) {
  return ParseExact(ParseNpy, Npy(dict, data));
}

absl::Status SafetensorsStatus(const std::string& json,
                               const std::string& data) {
  return ParseExact(ParseSafetensors, SafetensorsText(json, data));
}

TEST(NpyTest, ReadsWhatItWrites) {
  const std::string data(48, 'x');
  for (const v1::Dtype dtype :
       {v1::DTYPE_FLOAT16, v1::DTYPE_FLOAT32, v1::DTYPE_FLOAT64,
        v1::DTYPE_INT32, v1::DTYPE_INT64}) {
    const std::int64_t n =
        48 / static_cast<std::int64_t>(wire::ElementBytes(dtype));
    for (const auto& shape :
         std::vector<std::vector<std::int64_t>>{{n}, {2, n / 2}, {1, n, 1}}) {
      const TensorView tensor{dtype, shape, data};
      const auto header = NpyHeader(tensor);
      ASSERT_TRUE(header.ok()) << header.status();
      EXPECT_EQ(header->size() % 64, 0);
      const std::string file = *header + data;
      const auto parsed = ParseNpy(file);
      ASSERT_TRUE(parsed.ok()) << parsed.status();
      EXPECT_EQ(parsed->dtype, dtype);
      EXPECT_EQ(parsed->shape, shape);
      EXPECT_EQ(Text(parsed->bytes), data);
    }
  }
}

TEST(NpyTest, ReadsScalarsAndEmptyArrays) {
  const std::string scalar =
      Npy("{'descr':'<f4','fortran_order':False,'shape':()}", "abcd");
  const auto parsed = ParseNpy(scalar);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_TRUE(parsed->shape.empty());
  EXPECT_TRUE(
      NpyStatus("{'descr':'<f4','fortran_order':False,'shape':(0, 5),}", "")
          .ok());
}

TEST(NpyTest, ReadsVersion2) {
  const std::string dict =
      "{'shape': (1,), 'descr': '<i4', 'fortran_order': False}\n";
  std::string file("\x93NUMPY\x02\x00", 8);
  file += static_cast<char>(dict.size());
  file += std::string(3, '\0') + dict + std::string("\x07\0\0\0", 4);
  const auto parsed = ParseNpy(file);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(ElementAt(*parsed, 0), 7);
}

TEST(NpyTest, RefusesEveryTruncation) {
  const std::string file =
      Npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n",
          "12345678");
  ASSERT_TRUE(ParseExact(ParseNpy, file).ok());
  for (std::size_t n = 0; n < file.size(); ++n) {
    EXPECT_FALSE(ParseExact(ParseNpy, file.substr(0, n)).ok()) << n;
  }
  EXPECT_FALSE(ParseExact(ParseNpy, file + "x").ok());
}

TEST(NpyTest, RefusesFortranOrderBigEndianOtherDtypesAndBadShapes) {
  struct Case {
    const char* dict;
    const char* fault;
  };
  for (const auto& [dict, fault] :
       {Case{"'descr':'<f4','fortran_order':True,'shape':(1,)",
             "fortran_order is True"},
        {"'descr':'>f4','fortran_order':False,'shape':(1,)", "big-endian"},
        {"'descr':'|O','fortran_order':False,'shape':(1,)", "not supported"},
        {"'descr':[('a','<f4')],'fortran_order':False,'shape':(1,)",
         "structured"}}) {
    EXPECT_THAT(
        std::string(NpyStatus(std::string("{") + dict + "}", "abcd").message()),
        HasSubstr(fault));
  }
  // The first three overflow.
  for (const char* shape :
       {"(9223372036854775808,)", "(4294967296, 4294967296, 4)",
        "(4611686018427387905, 4)", "(-1,)", "(1", "(1,,)", "(1.5,)"}) {
    EXPECT_FALSE(NpyStatus(std::string("{'descr':'<f4','fortran_order':False,"
                                       "'shape':") +
                               shape + "}",
                           "abcd")
                     .ok())
        << shape;
  }
}

TEST(NpyTest, RefusesToWriteBfloat16AndNamesSafetensors) {
  const auto header = NpyHeader({v1::DTYPE_BFLOAT16, {1}, "ab"});
  EXPECT_THAT(std::string(header.status().message()),
              HasSubstr(".safetensors"));
}

TEST(SafetensorsTest, KeepsEntriesMetadataAndOpaqueTensors) {
  Safetensors file;
  file.metadata = {{"format", "pt"}};
  file.entries = {{"q", "BF16", {2}, "abcd"},
                  {"none", "F32", {0, 7}, {}},
                  {"mask", "BOOL", {3}, "xyz"},
                  {"odd", "F4_FUTURE", {3}, "12"}};
  // String literals carry a trailing zero.
  for (SafetensorsEntry& entry : file.entries) {
    if (!entry.bytes.empty()) entry.bytes.remove_suffix(1);
  }
  std::string bytes = SafetensorsHeader(file);
  EXPECT_EQ(bytes.size() % 8, 0);
  bytes += "abcdxyz12";
  const auto parsed = ParseSafetensors(bytes);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->metadata, file.metadata);
  ASSERT_EQ(parsed->entries.size(), 4);
  for (const SafetensorsEntry& expected : file.entries) {
    const auto found = std::find_if(
        parsed->entries.begin(), parsed->entries.end(),
        [&](const auto& entry) { return entry.name == expected.name; });
    ASSERT_NE(found, parsed->entries.end()) << expected.name;
    EXPECT_EQ(found->dtype, expected.dtype);
    EXPECT_EQ(found->shape, expected.shape);
    EXPECT_EQ(Text(found->bytes), Text(expected.bytes));
    EXPECT_EQ(AsTensor(*found).ok(),
              expected.name == "q" || expected.name == "none");
  }
}

constexpr char kTwo[] =
    R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
    R"("b":{"dtype":"F16","shape":[1,2],"data_offsets":[4,8]}})";

TEST(SafetensorsTest, RefusesEveryTruncation) {
  const std::string file = SafetensorsText(kTwo, "12345678");
  ASSERT_TRUE(ParseExact(ParseSafetensors, file).ok());
  for (std::size_t n = 0; n < file.size(); ++n) {
    EXPECT_FALSE(ParseExact(ParseSafetensors, file.substr(0, n)).ok()) << n;
  }
  EXPECT_FALSE(ParseExact(ParseSafetensors, file + "x").ok());
}

TEST(SafetensorsTest, SurvivesEveryChangedByte) {
  const std::string file = SafetensorsText(kTwo, "12345678");
  int refused = 0;
  for (std::size_t i = 0; i < file.size(); ++i) {
    for (const char c : {'\0', '\xff', '9', '[', '"', '{'}) {
      std::string changed = file;
      changed[i] = c;
      refused += !ParseExact(ParseSafetensors, changed).ok();
    }
  }
  EXPECT_GT(refused, 0);
}

TEST(SafetensorsTest, RefusesOverlapsHolesAndOffsetsOutside) {
  const auto with = [](const char* a, const char* b) {
    return SafetensorsStatus(
        std::string(R"({"a":{"dtype":"I8","shape":[4],"data_offsets":)") + a +
            R"(},"b":{"dtype":"I8","shape":[4],"data_offsets":)" + b + "}}",
        "12345678");
  };
  EXPECT_TRUE(with("[0,4]", "[4,8]").ok());
  EXPECT_TRUE(with("[4,8]", "[0,4]").ok());
  for (const auto& [a, b] : std::vector<std::pair<const char*, const char*>>{
           {"[0,4]", "[0,4]"},
           {"[0,4]", "[3,7]"},
           {"[0,4]", "[5,9]"},
           {"[0,4]", "[8,4]"},
           {"[0,4]", "[18446744073709551612,18446744073709551616]"},
           {"[0,4]", "[-4,0]"},
           {"[0,4]", "[4]"},
           {"[0,4]", "[4.0,8.0]"},
           {"[0,4]", "\"48\""}}) {
    EXPECT_FALSE(with(a, b).ok()) << a << b;
  }
}

TEST(SafetensorsTest, RefusesHugeHeaders) {
  for (const std::uint64_t size : {std::uint64_t{100'000'001}, UINT64_MAX,
                                   UINT64_MAX - 7, std::uint64_t{3}}) {
    std::string file(8, '\0');
    for (int i = 0; i < 8; ++i) file[i] = static_cast<char>(size >> (8 * i));
    EXPECT_FALSE(ParseExact(ParseSafetensors, file + "{}").ok()) << size;
  }
}

TEST(SafetensorsTest, RefusesBadJson) {
  const std::string deep(100000, '[');
  for (const char* json :
       {"[]", "{", "nul", R"({"a":1})", "{} {}", deep.c_str(),
        R"({"__metadata__":{"a":1}})", R"({"__metadata__":[]})",
        R"({"a":{"dtype":5,"shape":[],"data_offsets":[0,0]}})",
        R"({"a":{"dtype":"F99","shape":[-1],"data_offsets":[0,0]}})"}) {
    EXPECT_FALSE(SafetensorsStatus(json, "").ok())
        << std::string(json).substr(0, 60);
  }
  EXPECT_TRUE(SafetensorsStatus("{}", "").ok());
}

TEST(SafetensorsTest, RefusesRepeatedNames) {
  EXPECT_THAT(
      std::string(SafetensorsStatus(
                      R"({"a":{"dtype":"I8","shape":[0],"data_offsets":[0,0]},)"
                      R"("a":{"dtype":"I8","shape":[0],"data_offsets":[0,0]}})",
                      "")
                      .message()),
      HasSubstr("twice"));
}

TEST(SafetensorsTest, RefusesShapesThatDoNotMatchTheBytes) {
  for (const char* shape : {"[2]", "[1,1,3]", "[4611686018427387905,4]",
                            "[4294967296,4294967296]"}) {
    EXPECT_FALSE(
        SafetensorsStatus(std::string(R"({"a":{"dtype":"F32","shape":)") +
                              shape + R"(,"data_offsets":[0,4]}})",
                          "1234")
            .ok())
        << shape;
  }
}

TEST(FileTest, ReplacesFilesAndLeavesNoOther) {
  const std::string path = testing::TempDir() + "cli_files_test.bin";
  const std::string first = "first", second = "2";
  ASSERT_TRUE(WriteFile(path, {first, first}).ok());
  ASSERT_TRUE(WriteFile(path, {second}).ok());
  const auto read = FileBytes::Read(path);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(Text(read->bytes()), "2");
  std::remove(path.c_str());
}

TEST(FileTest, SaysWhichFileIsMissing) {
  const absl::Status status = FileBytes::Read("/nonexistent/f.npy").status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("/nonexistent/f.npy"));
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ExitCode(status), kExitFile);
}

TEST(ElementTest, RoundsToNearestEven) {
  const auto rounded = [](v1::Dtype dtype, float value) {
    char bytes[8];
    SetElement(dtype, bytes, 0, value);
    return ElementAt({dtype, {1}, absl::MakeConstSpan(bytes)}, 0);
  };
  EXPECT_EQ(rounded(v1::DTYPE_BFLOAT16, 1.00390625f), 1);         // tie, even
  EXPECT_EQ(rounded(v1::DTYPE_BFLOAT16, 1.01171875f), 1.015625);  // tie, even
  EXPECT_EQ(rounded(v1::DTYPE_FLOAT16, 1 + 0x1p-11f), 1);
  EXPECT_EQ(rounded(v1::DTYPE_FLOAT16, 1 + 0x1.8p-10f), 1 + 0x1p-9);
  EXPECT_EQ(rounded(v1::DTYPE_FLOAT16, 65504), 65504);
  EXPECT_TRUE(std::isinf(rounded(v1::DTYPE_FLOAT16, 65520)));
  EXPECT_EQ(rounded(v1::DTYPE_FLOAT16, 65519.996f), 65504);
  EXPECT_EQ(rounded(v1::DTYPE_FLOAT16, 0x1p-24f), 0x1p-24);
  EXPECT_EQ(rounded(v1::DTYPE_FLOAT16, 0x1.8p-24f), 0x1p-23);
  EXPECT_EQ(rounded(v1::DTYPE_FLOAT16, -0x1.ff8p-15f), -0x1.ff8p-15);
}

}  // namespace
}  // namespace posenc::cli
