// Keys that are integers: blocks equal those of ggml's Python package
// (tests/data/ggml_blocks.json), and Reposition() moves them as the same keys
// in float32.

#include "core/rotation/quantised_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/interpretation/source.h"
#include "core/rotation/reposition.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/reference/reposition_reference.h"

namespace posenc::test {
namespace {

using core::BlockFormat;
using core::Dtype;
using core::Layout;

constexpr std::int64_t kHeadDim = 64, kBlockChannels = 32;
constexpr BlockFormat kFormats[] = {BlockFormat::kNone, BlockFormat::kQ8_0,
                                    BlockFormat::kQ4_0};
constexpr BlockFormat kBlockFormats[] = {BlockFormat::kQ8_0,
                                         BlockFormat::kQ4_0};

std::vector<std::byte> Bytes(const std::string& hex) {
  const std::string text = absl::HexStringToBytes(hex);
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

std::vector<float> Floats(const std::vector<std::byte>& bytes) {
  std::vector<float> floats(bytes.size() / sizeof(float));
  std::memcpy(floats.data(), bytes.data(), bytes.size());
  return floats;
}

std::vector<std::byte> BytesOf(const std::vector<float>& floats) {
  std::vector<std::byte> bytes(floats.size() * sizeof(float));
  std::memcpy(bytes.data(), floats.data(), bytes.size());
  return bytes;
}

std::vector<std::byte> Quantised(BlockFormat format,
                                 const std::vector<float>& floats) {
  const core::Block block = core::BlockOf(format);
  const std::size_t n = floats.size() / block.channels;
  std::vector<std::byte> bytes(n * block.bytes);
  core::Quantise(format, floats.data(), n, bytes.data());
  return bytes;
}

std::vector<float> Dequantised(BlockFormat format,
                               const std::vector<std::byte>& bytes) {
  const core::Block block = core::BlockOf(format);
  const std::size_t n = bytes.size() / block.bytes;
  std::vector<float> floats(n * block.channels);
  core::Dequantise(format, bytes.data(), n, floats.data());
  return floats;
}

TEST(QuantisedRowsTest, BlocksEqualThoseOfGgml) {
  const auto record = nlohmann::json::parse(
      std::ifstream(POSENC_TEST_DATA "/ggml_blocks.json"));
  ASSERT_GT(record["blocks"].size(), 50U);
  for (const BlockFormat format : kBlockFormats) {
    const std::string name(core::BlockFormatName(format));
    std::vector<std::byte> values, blocks, read;
    for (const auto& recorded : record["blocks"]) {
      const auto append = [](std::vector<std::byte>* to, const auto& hex) {
        const std::vector<std::byte> bytes = Bytes(hex);
        to->insert(to->end(), bytes.begin(), bytes.end());
      };
      append(&values, recorded["values"]);
      append(&blocks, recorded[name]["bytes"]);
      append(&read, recorded[name]["read"]);
    }
    EXPECT_EQ(Quantised(format, Floats(values)), blocks) << name;
    // Products of 0 and an infinite scale are NaN, with any sign.
    const std::vector<float> expected = Floats(read);
    const std::vector<float> actual = Dequantised(format, blocks);
    ASSERT_EQ(actual.size(), expected.size());
    for (std::size_t i = 0; i < actual.size(); ++i) {
      if (std::isnan(expected[i]) && std::isnan(actual[i])) continue;
      ASSERT_EQ(std::bit_cast<std::uint32_t>(actual[i]),
                std::bit_cast<std::uint32_t>(expected[i]))
          << name << " " << i << " is " << actual[i];
    }
  }
}

// Numbers in a block with the scale 1.
TEST(QuantisedRowsTest, Q8_0RoundsHalvesAwayFromZero) {
  for (int half = -253; half <= 253; ++half) {
    const float x = static_cast<float>(half) / 2;
    std::vector<float> block(kBlockChannels, x);
    block[1] = std::nextafter(x, -200.0F);
    block[2] = std::nextafter(x, 200.0F);
    block[31] = 127;
    const std::vector<std::byte> bytes = Quantised(BlockFormat::kQ8_0, block);
    for (const int i : {0, 1, 2}) {
      EXPECT_EQ(static_cast<std::int8_t>(bytes[2 + i]), std::round(block[i]))
          << block[i];
    }
  }
}

TEST(QuantisedRowsTest, Int8RoundsToNearestEvenAndSaturates) {
  std::vector<float> values;
  for (int quarter = -600; quarter <= 600; ++quarter) {
    const float x = static_cast<float>(quarter) / 4;
    values.insert(values.end(),
                  {x, std::nextafter(x, -200.0F), std::nextafter(x, 200.0F)});
  }
  const float infinity = std::numeric_limits<float>::infinity();
  values.insert(values.end(), {1e30F, -1e30F, infinity, -infinity, 1e-40F});
  const std::vector<std::byte> bytes = Quantised(BlockFormat::kNone, values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float expected =
        std::fmin(127, std::fmax(-128, std::nearbyint(values[i])));
    EXPECT_EQ(static_cast<std::int8_t>(bytes[i]), expected) << values[i];
  }
}

TEST(QuantisedRowsTest, Int8KeepsEveryNumber) {
  std::vector<std::byte> numbers;
  for (int i = -128; i <= 127; ++i) numbers.push_back(std::byte(i & 255));
  for (std::size_t n = 0; n < 70; ++n) {
    const std::vector<std::byte> some(numbers.end() - n, numbers.end());
    const std::vector<float> floats = Dequantised(BlockFormat::kNone, some);
    for (std::size_t i = 0; i < n; ++i) {
      EXPECT_EQ(floats[i], 128.0F - static_cast<float>(n - i));
    }
    EXPECT_EQ(Quantised(BlockFormat::kNone, floats), some);
  }
}

TEST(QuantisedRowsTest, BlocksWithAValueThatIsNotFiniteAreNan) {
  for (const float bad : {std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()}) {
    for (const BlockFormat format : kBlockFormats) {
      std::vector<float> values(2 * kBlockChannels, 0.5F);
      values[kBlockChannels + 7] = bad;
      const std::vector<std::byte> bytes = Quantised(format, values);
      const std::size_t block = core::BlockOf(format).bytes;
      std::vector<std::byte> nan(block);
      nan[1] = std::byte{0x7e};
      EXPECT_EQ(std::vector<std::byte>(bytes.begin() + block, bytes.end()),
                nan);
      const std::vector<float> read = Dequantised(format, bytes);
      EXPECT_TRUE(std::isfinite(read[0]));
      EXPECT_TRUE(std::isnan(read[kBlockChannels]));
    }
  }
}

// If magnitudes are so small that 1 / d would be infinite, the scale is 0.
TEST(QuantisedRowsTest, TinyMagnitudesBecomeZeros) {
  const std::vector<float> tiny(kBlockChannels, 0x1p-140F);
  const std::vector<std::byte> eight = Quantised(BlockFormat::kQ8_0, tiny);
  EXPECT_EQ(eight, std::vector<std::byte>(34));
  std::vector<std::byte> four(18, std::byte{0x88});
  four[0] = std::byte{0};
  four[1] = std::byte{0x80};
  EXPECT_EQ(Quantised(BlockFormat::kQ4_0, tiny), four);
}

// Int8 keys, and the same keys in float32.
struct Keys {
  Keys(BlockFormat format_in, Layout layout, const Extents& extents,
       std::mt19937_64& random)
      : format(format_in), floats(Dtype::kFloat32, layout, extents) {
    const core::Block block = core::BlockOf(format);
    const std::size_t elements = floats.bytes.size() / sizeof(float);
    bytes.resize(elements / block.channels * block.bytes);
    for (std::byte& byte : bytes) byte = std::byte(random() & 255);
    if (format != BlockFormat::kNone) {
      for (std::size_t i = 0; i < bytes.size(); i += block.bytes) {
        // Scales of 2^-9 to 2^6.
        bytes[i + 1] = std::byte(0x18 + random() % 64);
      }
    }
    floats.bytes = BytesOf(Dequantised(format, bytes));
    shape = floats.shape;
    shape.back() =
        shape.back() / block.channels * static_cast<std::int64_t>(block.bytes);
  }
  core::ConstTensorView in() const {
    return {Dtype::kInt8, shape, bytes.data()};
  }
  core::TensorView out() { return {Dtype::kInt8, shape, bytes.data()}; }

  BlockFormat format;
  Tensor floats;
  core::Shape shape;
  std::vector<std::byte> bytes;
};

// Returns the channels that the encoding rotates.
std::vector<bool> Rotated(const core::RopeSpec& spec, std::int64_t head_dim) {
  std::vector<bool> rotated(head_dim);
  const std::int64_t first = spec.slice == core::RotarySlice::kTrailing
                                 ? head_dim - spec.rotary_dim
                                 : std::int64_t{0};
  std::fill_n(rotated.begin() + first, spec.rotary_dim, true);
  return rotated;
}

// Returns the bytes of keys that were moved in float32.
std::vector<std::byte> Expected(const Keys& keys,
                                const std::vector<std::byte>& moved,
                                const std::vector<bool>& rotated) {
  const core::Block block = core::BlockOf(keys.format);
  const std::vector<std::byte> all = Quantised(keys.format, Floats(moved));
  std::vector<std::byte> out = keys.bytes;
  const std::size_t head_blocks = rotated.size() / block.channels;
  for (std::size_t i = 0; i < out.size() / block.bytes; ++i) {
    const auto first =
        rotated.begin() +
        static_cast<std::ptrdiff_t>(i % head_blocks) * block.channels;
    if (std::find(first, first + block.channels, true) !=
        first + block.channels) {
      std::copy_n(all.begin() + i * block.bytes, block.bytes,
                  out.begin() + i * block.bytes);
    }
  }
  return out;
}

// Encodings of 24 channels, in heads of kHeadDim.
std::vector<Encodings> PartialEncodings() {
  std::vector<Encodings> all = AllEncodings();
  for (Encodings& encodings : all) {
    for (core::RopeSpec* spec : {&encodings.from, &encodings.to}) {
      if (spec->rotary_dim == 0) spec->rotary_dim = 24;
    }
  }
  return all;
}

Grid RandomPositions(const Encodings& encodings, const Extents& e,
                     std::mt19937_64& random) {
  std::uniform_real_distribution<double> uniform(0, encodings.reach);
  Grid grid{encodings.axes, e.batch, e.tokens, {}};
  for (std::int64_t i = 0; i < grid.axes * grid.batch * grid.tokens; ++i) {
    grid.values.push_back(std::floor(uniform(random)));
  }
  return grid;
}

// Checks that Reposition moves keys as it moves the same keys in float32.
void ExpectMoves(const Encodings& encodings, const Extents& extents,
                 Layout layout, std::mt19937_64& random) {
  for (const BlockFormat format : kFormats) {
    SCOPED_TRACE(absl::StrCat(encodings.name, " layout ",
                              static_cast<int>(layout), " ",
                              core::BlockFormatName(format)));
    Keys keys(format, layout, extents, random);
    const Grid from = RandomPositions(encodings, extents, random);
    const Grid to = RandomPositions(encodings, extents, random);
    core::RepositionArgs args = encodings.Args(layout);
    args.movement.old_positions = from.Ids(layout);
    args.movement.target = core::NewPositions{to.Ids(layout)};
    Tensor floats = keys.floats;
    ASSERT_TRUE(core::Reposition(args, keys.floats.in(), floats.out()).ok());
    const std::vector<std::byte> expected =
        Expected(keys, floats.bytes, Rotated(encodings.to, extents.head_dim));

    args.block_format = format;
    const auto map = core::PrepareReposition(args, keys.in());
    ASSERT_TRUE(map.ok()) << map.status();
    EXPECT_EQ((*map)->in_bytes() * static_cast<std::size_t>((*map)->rows()),
              keys.bytes.size());
    std::vector<std::byte> out(keys.bytes.size(), std::byte{0x5a});
    core::MapAll(**map, keys.bytes.data(), out.data());
    ASSERT_EQ(out, expected);
    if (!(*map)->in_place()) continue;
    core::MapAll(**map, keys.bytes.data(), keys.bytes.data());
    ASSERT_EQ(keys.bytes, expected);
  }
}

TEST(QuantisedRowsTest, KeysMoveAsInFloat32) {
  std::mt19937_64 random(3);
  for (const Encodings& encodings : PartialEncodings()) {
    for (const Layout layout : kLayouts) {
      const Extents extents = layout == Layout::kThd
                                  ? Extents{1, 10, 3, kHeadDim}
                                  : Extents{2, 5, 3, kHeadDim};
      ExpectMoves(encodings, extents, layout, random);
    }
  }
}

// More heads, and wider heads, than are converted at a time.
TEST(QuantisedRowsTest, ManyAndWideHeadsMoveAsInFloat32) {
  std::mt19937_64 random(4);
  Encodings plain = AllEncodings().front();
  for (const auto& [heads, head_dim] : {std::pair{70, 128}, {3, 8192}}) {
    plain.from.rotary_dim = plain.to.rotary_dim = head_dim;
    for (const Layout layout : {Layout::kBshd, Layout::kBhsd}) {
      ExpectMoves(plain, {1, 5, heads, head_dim}, layout, random);
    }
  }
}

TEST(QuantisedRowsTest, CachesMoveAsInFloat32) {
  std::mt19937_64 random(5);
  Encodings plain = AllEncodings().front();
  plain.from.rotary_dim = plain.to.rotary_dim = kHeadDim;
  const std::vector<std::int32_t> table = {2, 0};
  for (const char* dimensions : {"BTHD", "BHTD"}) {
    for (const BlockFormat format : kFormats) {
      SCOPED_TRACE(absl::StrCat(dimensions, core::BlockFormatName(format)));
      // [blocks, tokens of a block, heads, D].
      Keys keys(format, Layout::kBshd, {3, 4, 4, kHeadDim}, random);
      core::RepositionArgs args = plain.Args(Layout::kBshd);
      args.movement.target = core::ShiftAll{-100};
      args.cache.emplace();
      args.cache->dimensions = dimensions;
      args.cache->block_table = {Dtype::kInt32, {2}, table.data()};
      args.cache->lengths = {6};
      Tensor floats = keys.floats;
      ASSERT_TRUE(core::Reposition(args, keys.floats.in(), floats.out()).ok());
      const std::vector<float> before = Floats(keys.floats.bytes);
      const std::vector<float> after = Floats(floats.bytes);
      std::vector<std::byte> expected = keys.bytes;
      const std::vector<std::byte> moved = Quantised(format, after);
      const std::size_t head_bytes = expected.size() / 48;
      for (std::size_t head = 0; head < 48; ++head) {
        if (std::equal(before.begin() + head * kHeadDim,
                       before.begin() + (head + 1) * kHeadDim,
                       after.begin() + head * kHeadDim)) {
          continue;
        }
        std::copy_n(moved.begin() + head * head_bytes, head_bytes,
                    expected.begin() + head * head_bytes);
      }
      args.block_format = format;
      const absl::Status status = core::Reposition(args, keys.in(), keys.out());
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(keys.bytes, expected);
    }
  }
}

}  // namespace
}  // namespace posenc::test
