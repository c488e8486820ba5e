// Paged caches: the keys that are gathered, repositioned as a dense tensor, and
// scattered back have the bytes that Reposition() gives in place.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "core/interpretation/source.h"
#include "core/rotation/reposition.h"
#include "gtest/gtest.h"
#include "tests/reference/reposition_reference.h"

namespace posenc::test {
namespace {

using core::Dtype;
using core::Layout;

constexpr std::int64_t kHeads = 3, kHeadDim = 24, kLayers = 3;
constexpr std::int64_t kSequences = 2, kLength = 10;

struct Case {
  std::string dimensions;  // of CacheLayout: letters, or an engine's name
  std::string letters;     // the same, always as letters
  std::vector<std::int64_t> layers = {};
  std::int64_t block_size = 4;
};

const std::vector<Case>& Cases() {
  static const auto* const cases = new std::vector<Case>{
      {"BTHD", "BTHD"},
      {"BHTD", "BHTD"},
      {"BTHKD", "BTHKD"},
      {"KBTHD", "KBTHD"},
      {"BKTHD", "BKTHD"},
      {"BHTKD", "BHTKD"},
      {"BTD", "BTD"},
      {"HBTKD", "HBTKD"},
      {"LBTHD", "LBTHD"},
      {"LBTHD", "LBTHD", {2, 0}},
      {"BLTHD", "BLTHD", {1}},
      {"BTLHD", "BTLHD", {1, 1}},
      {"KLBHTD", "KLBHTD", {0, 2}},
      {"LHBTKD", "LHBTKD"},
      {"BLKHTD", "BLKHTD"},
      {"BHTD", "BHTD", {}, 1},
      {"BHD", "BHD", {}, 1},
      {"vllm_split", "KBTHD"},
      {"vllm_packed", "BTHKD"},
      {"sglang_hnd", "BHTD"},
      {"sglang_nhd", "BHD", {}, 1},
      {"lmcache", "KLBHD", {}, 1},
      {"llama_cpp", "BHD", {}, 1},
  };
  return *cases;
}

// A cache with two sequences of 10 and 5 tokens. It has 28 slots: 7 blocks of 4
// tokens, or 28 blocks of 1 token. Layout() says where the tokens are, by slots
// or by a block table.
class Cache {
 public:
  Cache(const Case& c, Dtype dtype, std::mt19937_64& random)
      : case_(c), tensor_(dtype, Layout::kThd, {1, 1, 1, Elements(c)}) {
    tensor_.Fill(random);
    std::vector<std::int64_t> order = {5, 0, 3, 2, 6};
    for (const std::int64_t length : {10, 5}) {
      for (std::int64_t t = 0; t < kLength; ++t) {
        slots_.push_back(t < length ? order[t / 4] * 4 + t % 4 : -1);
      }
      const auto used = (length + 3) / 4;
      order.erase(order.begin(), order.begin() + used);
    }
    const std::int64_t size = c.block_size;
    const std::int64_t width = (kLength + size - 1) / size;
    for (std::int64_t s = 0; s < kSequences; ++s) {
      for (std::int64_t i = 0; i < width; ++i) {
        const std::int64_t slot = slots_[s * kLength + i * size];
        table_.push_back(slot < 0 ? -7 : static_cast<int>(slot / size));
      }
    }
  }

  core::ConstTensorView view(bool packed) const {
    core::Shape shape;
    for (const char letter : case_.letters) shape.push_back(Extent(letter));
    if (packed) {
      const std::int64_t width = shape.back();
      shape.pop_back();
      shape.back() *= width;
    }
    return {tensor_.dtype, shape, tensor_.bytes.data()};
  }
  Tensor& tensor() { return tensor_; }

  core::CacheLayout Layout(bool by_slots) const {
    core::CacheLayout layout;
    layout.dimensions = case_.dimensions;
    layout.layers = case_.layers;
    if (by_slots) {
      layout.slots = {Dtype::kInt64, {kSequences, kLength}, slots_.data()};
    } else {
      const auto width = static_cast<std::int64_t>(table_.size()) / kSequences;
      layout.block_table = {Dtype::kInt32, {kSequences, width}, table_.data()};
      layout.lengths = {10, 5};
    }
    return layout;
  }

  // Calls f(layer, sequence, token, head, first byte) for each key that moves.
  template <typename F>
  void ForEachKey(F f) const {
    const std::int64_t layers = Extent('L');
    for (std::int64_t l = 0; l < layers; ++l) {
      const auto& moved = case_.layers;
      if (!moved.empty() &&
          std::find(moved.begin(), moved.end(), l) == moved.end()) {
        continue;
      }
      for (std::int64_t i = 0; i < kSequences * kLength; ++i) {
        if (slots_[i] < 0) continue;
        for (std::int64_t h = 0; h < Extent('H'); ++h) {
          f(l, i / kLength, i % kLength, h, Offset(l, slots_[i], h));
        }
      }
    }
  }

  std::int64_t Extent(char letter) const {
    if (case_.letters.find(letter) == std::string::npos) return 1;
    return letter == 'B'   ? 28 / case_.block_size
           : letter == 'T' ? case_.block_size
           : letter == 'H' ? kHeads
           : letter == 'K' ? 2
           : letter == 'L' ? kLayers
                           : kHeadDim;
  }

 private:
  static std::int64_t Elements(const Case& c) {
    std::int64_t count = 28 * kHeadDim;
    for (const char letter : c.letters) {
      count *= letter == 'H'   ? kHeads
               : letter == 'K' ? 2
               : letter == 'L' ? kLayers
                               : 1;
    }
    return count;
  }

  std::size_t Offset(std::int64_t layer, std::int64_t slot,
                     std::int64_t head) const {
    const std::map<char, std::int64_t> at = {{'L', layer},
                                             {'B', slot / case_.block_size},
                                             {'T', slot % case_.block_size},
                                             {'H', head},
                                             {'K', 0},
                                             {'D', 0}};
    std::int64_t offset = 0;
    for (const char letter : case_.letters) {
      offset = offset * Extent(letter) + at.at(letter);
    }
    return static_cast<std::size_t>(offset) * core::DtypeSize(tensor_.dtype);
  }

  const Case case_;
  Tensor tensor_;
  std::vector<std::int64_t> slots_;
  std::vector<std::int32_t> table_;
};

bool IsByHead(const Encodings& encodings) {
  for (const core::RopeSpec* spec : {&encodings.from, &encodings.to}) {
    const auto* values = std::get_if<core::ExplicitFrequencies>(&spec->scaling);
    if (values != nullptr && values->heads > 0) return true;
  }
  return false;
}

// Gathers, repositions and scatters the keys of each layer.
std::vector<std::byte> Expected(const core::RepositionArgs& args,
                                Cache& cache) {
  const Dtype dtype = cache.tensor().dtype;
  const std::size_t head = kHeadDim * core::DtypeSize(dtype);
  std::vector<std::byte> bytes = cache.tensor().bytes;
  for (std::int64_t layer = 0; layer < kLayers; ++layer) {
    Tensor keys(dtype, Layout::kBshd,
                {kSequences, kLength, cache.Extent('H'), kHeadDim});
    Tensor moved = keys;
    const auto visit = [&](auto copy) {
      cache.ForEachKey([&](std::int64_t l, std::int64_t s, std::int64_t t,
                           std::int64_t h, std::size_t offset) {
        if (l == layer) copy(keys.Offset(s, t, h, 0), offset);
      });
    };
    visit([&](std::size_t dense, std::size_t paged) {
      std::memcpy(&keys.bytes[dense], &bytes[paged], head);
    });
    const absl::Status status = core::Reposition(args, keys.in(), moved.out());
    EXPECT_TRUE(status.ok()) << status;
    visit([&](std::size_t dense, std::size_t paged) {
      std::memcpy(&bytes[paged], &moved.bytes[dense], head);
    });
  }
  return bytes;
}

// Repositions tiles of three rows, over memory in pieces.
std::vector<std::byte> InTiles(const core::RowMap& map, const Tensor& from) {
  std::vector<std::byte> out(from.bytes.size());
  core::ConstPieces::List in_list;
  core::Pieces::List out_list;
  for (std::size_t at = 0; at < out.size(); at += 1000) {
    const std::size_t n = std::min<std::size_t>(1000, out.size() - at);
    in_list.emplace_back(reinterpret_cast<const char*>(&from.bytes[at]), n);
    out_list.emplace_back(reinterpret_cast<char*>(&out[at]), n);
  }
  const core::ConstPieces in(std::move(in_list));
  const core::Pieces to(std::move(out_list));
  for (std::int64_t row = 0; row < map.rows(); row += 3) {
    core::MapRows(map, in, to, row,
                  std::min<std::int64_t>(3, map.rows() - row));
  }
  return out;
}

TEST(RepositionCacheTest, MovesWhatGatheringAndScatteringMoves) {
  std::mt19937_64 random(11);
  for (const Encodings& encodings : AllEncodings()) {
    for (const Case& c : Cases()) {
      if (c.letters.find('H') == std::string::npos && IsByHead(encodings)) {
        continue;  // its frequencies are for three heads
      }
      for (const Dtype dtype : kDtypes) {
        SCOPED_TRACE(absl::StrCat(encodings.name, " ", c.dimensions, " ",
                                  core::DtypeName(dtype)));
        Cache cache(c, dtype, random);
        std::uniform_real_distribution<double> uniform(0, encodings.reach);
        Grid from = {encodings.axes, kSequences, kLength, {}}, to = from;
        for (std::int64_t i = 0; i < encodings.axes * kSequences * kLength;
             ++i) {
          from.values.push_back(std::floor(uniform(random)));
          to.values.push_back(std::floor(uniform(random)));
        }
        core::RepositionArgs args = encodings.Args();
        args.movement.old_positions = from.Ids(Layout::kBshd);
        args.movement.target = core::NewPositions{to.Ids(Layout::kBshd)};
        const std::vector<std::byte> expected = Expected(args, cache);
        const bool packed = c.letters.substr(c.letters.size() - 2) == "KD";
        for (const bool by_slots : {false, true}) {
          args.cache = cache.Layout(by_slots);
          const core::ConstTensorView k = cache.view(packed && by_slots);
          const auto map = core::PrepareReposition(args, k);
          ASSERT_TRUE(map.ok()) << map.status();
          ASSERT_EQ(InTiles(**map, cache.tensor()), expected);
          if (!(*map)->in_place()) continue;
          Tensor moved = cache.tensor();
          core::MapAll(**map, moved.bytes.data(), moved.bytes.data());
          ASSERT_EQ(moved.bytes, expected);
        }
      }
    }
  }
}

// Returns arguments for a cache [layers, 1, heads, head_dim] in which each
// layer is the same layer of the model.
core::RepositionArgs OfLayers(const std::vector<std::int32_t>& slots,
                              std::size_t layers) {
  core::RepositionArgs args = AllEncodings().front().Args();
  args.movement.target = core::ShiftAll{1};
  args.old_layers = [rope = args.old_rope(24)](std::int64_t layer,
                                               std::int64_t /*width*/) {
    return layer == 7 ? core::FieldInvalid("config_json", "bad") : rope;
  };
  args.old_rope = nullptr;
  args.cache.emplace();
  args.cache->dimensions = "LBHD";
  args.cache->slots = {Dtype::kInt32, {1}, slots.data()};
  args.cache->model_layers.assign(layers, 1);
  return args;
}

TEST(RepositionCacheTest, RejectsMoreThan256LayersWithTheirOwnEncodings) {
  const std::vector<std::int32_t> slots = {0};
  const auto status = [&slots](std::int64_t layers) {
    return core::PrepareReposition(
               OfLayers(slots, layers),
               {Dtype::kFloat32, {layers, 1, 3, 24}, nullptr})
        .status();
  };
  EXPECT_TRUE(status(256).ok()) << status(256);
  const auto details = core::GetErrorDetails(status(257));
  ASSERT_TRUE(details.has_value());
  EXPECT_EQ(details->field, "cache.model_layers");
}

TEST(RepositionCacheTest, RejectsMoreThanEightEncodingsOfLayers) {
  const std::vector<std::int32_t> slots = {0};
  for (const std::size_t layers : {8, 9}) {
    core::RepositionArgs args = OfLayers(slots, layers);
    // Each call of this lookup returns a new object.
    args.old_layers = [rope = AllEncodings().front().Args().old_rope](
                          std::int64_t, std::int64_t width) {
      return rope(width);
    };
    const core::Shape shape = {static_cast<std::int64_t>(layers), 1, 3, 24};
    const absl::Status status =
        core::PrepareReposition(args, {Dtype::kFloat32, shape, nullptr})
            .status();
    EXPECT_EQ(status.ok(), layers == 8) << status;
  }
}

// Expects an error that names a field and a layer.
void ExpectLayersFault(const core::RepositionArgs& args,
                       const std::string& field, const std::string& layer) {
  const auto details = core::GetErrorDetails(
      core::PrepareReposition(args, {Dtype::kFloat32, {3, 1, 3, 24}, nullptr})
          .status());
  ASSERT_TRUE(details.has_value());
  EXPECT_EQ(details->field, field);
  EXPECT_EQ(details->metadata, core::ErrorMetadata({{"layer", layer}}));
}

TEST(RepositionCacheTest, NamesTheLayerWhoseEncodingFails) {
  const std::vector<std::int32_t> slots = {0};
  core::RepositionArgs args = OfLayers(slots, 3);
  args.cache->model_layers[2] = 7;
  ExpectLayersFault(args, "old_rope.config_json", "2");
}

TEST(RepositionCacheTest, NamesTheLayerThatNeedsOldPositions) {
  const std::vector<std::int32_t> slots = {0};
  core::RepositionArgs args = OfLayers(slots, 3);
  core::RopeSpec slower;
  slower.rotary_dim = 24;
  slower.pairing = core::Pairing::kHalfSplit;
  slower.rope_theta = 1e6;
  args.new_layers = [old = args.old_layers,
                     other = core::interpretation::LookupOf(slower)](
                        std::int64_t layer, std::int64_t width) {
    return layer == 2 ? other(width) : old(layer, width);
  };
  args.cache->model_layers[1] = 2;
  ExpectLayersFault(args, "movement.old_positions", "1");
}

TEST(RepositionCacheTest, AnErrorOfBlocksHasTheShapeOfTheCache) {
  const std::vector<std::int32_t> slots = {0};
  for (const bool by_layer : {false, true}) {
    core::RepositionArgs args = OfLayers(slots, by_layer ? 3 : 0);
    if (!by_layer) args.old_rope = AllEncodings().front().Args().old_rope;
    args.block_format = core::BlockFormat::kQ8_0;
    const absl::Status status =
        core::PrepareReposition(args, {Dtype::kInt8, {3, 1, 3, 35}, nullptr})
            .status();
    EXPECT_NE(status.message().find("k.shape: [3, 1, 3, 35] has heads of 35"),
              std::string::npos)
        << status;
  }
}

// A cache without elements may have extents of any size.
TEST(RepositionCacheTest, AnEmptyCacheIsNoError) {
  core::RepositionArgs args = AllEncodings().front().Args();
  args.movement.target = core::ShiftAll{1};
  args.cache.emplace();
  args.cache->dimensions = "LBTHD";
  args.cache->slots = {Dtype::kInt32, {0}, nullptr};
  for (const core::Shape& shape : std::vector<core::Shape>{
           {2, 0, 16, 3, 24}, {std::int64_t{1} << 50, 1, 0, 3, 24}}) {
    const auto map =
        core::PrepareReposition(args, {Dtype::kFloat32, shape, nullptr});
    ASSERT_TRUE(map.ok()) << map.status();
    EXPECT_EQ((*map)->rows(), 0);
  }
}

}  // namespace
}  // namespace posenc::test
