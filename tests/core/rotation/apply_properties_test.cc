// Properties of every rotation, for any numbers.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "core/interpretation/source.h"
#include "core/rotation/apply.h"
#include "core/rotation/rotation_map.h"
#include "gtest/gtest.h"
#include "tests/reference/apply_reference.h"

namespace posenc::test {
namespace {

using core::Dtype;
using core::Layout;
using core::Pairing;

// Arguments with a spec that the test can still change.
struct Request : core::ApplyRopeArgs {
  core::ApplyRopeArgs WithRope() const {
    core::ApplyRopeArgs args = *this;
    args.rope = core::interpretation::LookupOf(spec);
    return args;
  }

  core::RopeSpec spec;
};

Request Args(const core::Positions& positions, Layout layout = Layout::kBshd,
             Pairing pairing = Pairing::kHalfSplit) {
  Request args;
  args.spec.pairing = pairing;
  args.layout = layout;
  args.positions = positions;
  args.saturation = core::Saturation::kFinite;
  return args;
}

Tensor Rotate(const Request& request, const Tensor& in) {
  const core::ApplyRopeArgs args = request.WithRope();
  Tensor out = in;
  const core::ConstTensorView from = in.in();
  const core::TensorView to = out.out();
  const absl::Status status =
      core::ApplyRope(args, nullptr, nullptr, &from, &to);
  EXPECT_TRUE(status.ok()) << status;
  return out;
}

Tensor Seeded(Dtype dtype, Layout layout, const Extents& extents, int seed) {
  std::mt19937_64 random(seed);
  Tensor tensor(dtype, layout, extents);
  tensor.Fill(random);
  return tensor;
}

// Decode steps must agree with the prefill, and a single request with a batch
// that contains it.
TEST(ApplyProperties, BytesDoNotDependOnThePlaceInTheBatch) {
  for (const Dtype dtype : kDtypes)
    for (const Layout layout : {Layout::kBshd, Layout::kBhsd, Layout::kSbhd}) {
      const Tensor x = Seeded(dtype, layout, {3, 70, 5, 48}, 7);
      const Tensor all = Rotate(Args(core::StartPosition{9000}, layout), x);
      for (const int b : {0, 2})
        for (const int t : {0, 63, 69})
          for (const int h : {0, 4}) {
            Tensor one(dtype, layout, {1, 1, 1, 48});
            std::memcpy(one.bytes.data(), x.bytes.data() + x.Offset(b, t, h, 0),
                        one.bytes.size());
            const Tensor alone =
                Rotate(Args(core::StartPosition{9000 + t}, layout), one);
            EXPECT_EQ(std::memcmp(alone.bytes.data(),
                                  all.bytes.data() + all.Offset(b, t, h, 0),
                                  one.bytes.size()),
                      0)
                << core::DtypeName(dtype) << " " << b << " " << t << " " << h;
          }
    }
}

// Workers get whole sequences, parts of sequences, or both.
TEST(ApplyProperties, WorkersOfAnyRowsOfHeadMajorTensorsGiveTheSameBytes) {
  constexpr Extents kExtents = {3, 600, 4, 64};
  constexpr std::int64_t kSequence = kExtents.heads * kExtents.tokens;
  for (const bool shared : {false, true}) {
    Request request = Args(core::StartPosition{7}, Layout::kBhsd);
    if (!shared) request.positions = core::SequenceStarts{{7, 5000, -3}};
    for (const Dtype dtype : {Dtype::kFloat32, Dtype::kFloat64}) {
      const Tensor x = Seeded(dtype, Layout::kBhsd, kExtents, 21);
      const Tensor whole = Rotate(request, x);
      const core::ConstTensorView in = x.in();
      const auto rotations =
          core::PrepareApplyRope(request.WithRope(), &in, nullptr);
      ASSERT_TRUE(rotations.ok()) << rotations.status();
      const core::RowMap& map = *rotations->q;
      for (const std::int64_t rows :
           {kSequence, 2 * kSequence, kSequence + 700, std::int64_t{1000}}) {
        Tensor cut = x;
        for (std::int64_t first = 0; first < map.rows(); first += rows) {
          const std::int64_t n = std::min(rows, map.rows() - first);
          const auto worker = map.StartWorker(first, n);
          // Calls Run() several times, as for a tensor in pieces of memory.
          for (std::int64_t done = 0; done < n;) {
            const std::int64_t run =
                std::min(n - done, first == 0 ? n : kSequence + 100);
            const std::size_t at = (first + done) * map.in_bytes();
            worker->Run(first + done, run, cut.bytes.data() + at,
                        cut.bytes.data() + at);
            done += run;
          }
        }
        EXPECT_EQ(cut.bytes, whole.bytes)
            << core::DtypeName(dtype) << " " << shared << " " << rows;
      }
    }
  }
}

// The cosines and sines of 300 tokens need more than one block
// (kHeadMajorBlockBytes). The cosines and sines of 4200 tokens need more bytes
// than a call keeps (kMaxBytesOfAll).
TEST(ApplyProperties, HeadsOfLongSequencesHaveTheBytesOfEachAlone) {
  for (const std::int64_t tokens : {300, 4200}) {
    const Tensor x =
        Seeded(Dtype::kFloat16, Layout::kBhsd, {1, tokens, 3, 512}, 15);
    const Request args = Args(core::StartPosition{5}, Layout::kBhsd);
    const Tensor all = Rotate(args, x);
    for (std::int64_t h = 0; h < 3; ++h) {
      Tensor one(Dtype::kFloat16, Layout::kBshd, {1, tokens, 1, 512});
      const std::size_t first = x.Offset(0, 0, h, 0);
      std::memcpy(one.bytes.data(), x.bytes.data() + first, one.bytes.size());
      const Tensor alone = Rotate(Args(core::StartPosition{5}), one);
      EXPECT_EQ(std::memcmp(alone.bytes.data(), all.bytes.data() + first,
                            one.bytes.size()),
                0)
          << tokens << " " << h;
    }
    Tensor in_place = x;
    const core::ConstTensorView in = in_place.in();
    const core::TensorView out = in_place.out();
    ASSERT_TRUE(
        core::ApplyRope(args.WithRope(), &in, &out, nullptr, nullptr).ok());
    EXPECT_EQ(in_place.bytes, all.bytes) << tokens;
  }
}

// Returns some tokens of a BSHD tensor of one sequence.
Tensor TokensOf(const Tensor& x, std::int64_t first, std::int64_t n) {
  const Extents& e = x.extents;
  Tensor some(x.dtype, Layout::kBshd, {1, n, e.heads, e.head_dim});
  std::memcpy(some.bytes.data(), x.bytes.data() + x.Offset(0, first, 0, 0),
              some.bytes.size());
  return some;
}

// Tensors of 1 MiB or more are read from memory, and tensors of 24 MiB or more
// are also written by non-temporal stores. Some positions are consecutive;
// other positions jump and have fractions.
TEST(ApplyProperties, LargeTensorsHaveTheBytesOfTheirTokens) {
  for (const Dtype dtype :
       {Dtype::kFloat32, Dtype::kFloat16, Dtype::kFloat64}) {
    for (const std::int64_t megabytes : {2, 25}) {
      const std::int64_t tokens =
          (megabytes << 20) / (8 * 80) /
          static_cast<std::int64_t>(core::DtypeSize(dtype));
      std::vector<double> ids(tokens);
      for (std::int64_t t = 0; t < tokens; ++t) {
        const bool steady = t % 1000 < 700;
        ids[t] = steady ? 40000.0 + static_cast<double>(t)
                        : std::fmod(static_cast<double>(t) * 77.25, 5000.0);
      }
      const auto args_of = [&](std::int64_t first, std::int64_t n) {
        return Args(
            core::PositionIds{{Dtype::kFloat64, {n}, ids.data() + first}});
      };
      const Tensor x = Seeded(dtype, Layout::kBshd, {1, tokens, 8, 80}, 16);
      const Tensor all = Rotate(args_of(0, tokens), x);
      constexpr std::int64_t kSome = 97;
      for (std::int64_t t = 0; t < tokens; t += kSome) {
        const std::int64_t n = std::min(kSome, tokens - t);
        ASSERT_EQ(Rotate(args_of(t, n), TokensOf(x, t, n)).bytes,
                  TokensOf(all, t, n).bytes)
            << core::DtypeName(dtype) << " " << megabytes << " " << t;
      }
      Tensor in_place = x;
      const core::ConstTensorView in = in_place.in();
      const core::TensorView out = in_place.out();
      ASSERT_TRUE(core::ApplyRope(args_of(0, tokens).WithRope(), &in, &out,
                                  nullptr, nullptr)
                      .ok());
      EXPECT_EQ(in_place.bytes, all.bytes) << core::DtypeName(dtype);
    }
  }
}

// Sums of angles from these anchors round a value the wrong way 6, 28 and 8
// positions later, with every instruction set. Pairs (1, 0) become the cosines
// and sines.
TEST(ApplyProperties, ValuesThatSumsRoundWronglyAreEvaluatedAnew) {
  for (const std::int64_t anchor : {13805792, 4524480, 16602432}) {
    constexpr std::int64_t kTokens = 96, kHeads = 32, kHeadDim = 128;
    Tensor x(Dtype::kFloat32, Layout::kBshd, {1, kTokens, kHeads, kHeadDim});
    for (std::int64_t t = 0; t < kTokens; ++t) {
      for (std::int64_t h = 0; h < kHeads; ++h) {
        for (std::int64_t d = 0; d < kHeadDim; ++d) {
          x.Set(0, t, h, d, d < kHeadDim / 2 ? 1 : 0);
        }
      }
    }
    // The anchor begins the second 32 tokens.
    const std::int64_t start = anchor - 32;
    const Tensor all = Rotate(Args(core::StartPosition{start}), x);
    for (std::int64_t t = 0; t < kTokens; ++t) {
      EXPECT_EQ(
          TokensOf(all, t, 1).bytes,
          Rotate(Args(core::StartPosition{start + t}), TokensOf(x, t, 1)).bytes)
          << anchor << " " << t;
    }
  }
}

TEST(ApplyProperties, KindsOfPositionsAgree) {
  const Tensor x = Seeded(Dtype::kBfloat16, Layout::kBshd, {2, 6, 2, 16}, 8);
  const Tensor expected = Rotate(Args(core::StartPosition{-3}), x);
  EXPECT_EQ(Rotate(Args(core::SequenceStarts{{-3, -3}}), x).bytes,
            expected.bytes);
  const std::vector<std::int32_t> row = {-3, -2, -1, 0, 1, 2};
  EXPECT_EQ(Rotate(Args(core::PositionIds{{Dtype::kInt32, {6}, row.data()}}), x)
                .bytes,
            expected.bytes);
  const std::vector<float> rows = {-3, -2, -1, 0, 1, 2, -3, -2, -1, 0, 1, 2};
  EXPECT_EQ(
      Rotate(Args(core::PositionIds{{Dtype::kFloat32, {2, 6}, rows.data()}}), x)
          .bytes,
      expected.bytes);
}

TEST(ApplyProperties, StartsMoveEachSequenceAlone) {
  const Tensor x = Seeded(Dtype::kFloat32, Layout::kBshd, {2, 6, 2, 16}, 9);
  const Tensor both = Rotate(Args(core::SequenceStarts{{5, 1000}}), x);
  const Tensor first = Rotate(Args(core::StartPosition{5}), x);
  const Tensor second = Rotate(Args(core::StartPosition{1000}), x);
  const std::size_t half = x.bytes.size() / 2;
  EXPECT_EQ(std::memcmp(both.bytes.data(), first.bytes.data(), half), 0);
  EXPECT_EQ(
      std::memcmp(both.bytes.data() + half, second.bytes.data() + half, half),
      0);
}

TEST(ApplyProperties, PackedSequencesStartAgain) {
  const Tensor x = Seeded(Dtype::kFloat32, Layout::kThd, {1, 9, 2, 16}, 10);
  const Tensor packed = Rotate(
      Args(core::PackedSequences{{0, 4, 4, 9}, {0, 77, 500}}, Layout::kThd), x);
  const std::vector<std::int64_t> ids = {0, 1, 2, 3, 500, 501, 502, 503, 504};
  EXPECT_EQ(packed.bytes,
            Rotate(Args(core::PositionIds{{Dtype::kInt64, {9}, ids.data()}},
                        Layout::kThd),
                   x)
                .bytes);
}

TEST(ApplyProperties, EmptyExtentsGiveAnEmptyResult) {
  for (const Layout layout :
       {Layout::kBshd, Layout::kBhsd, Layout::kSbhd, Layout::kThd})
    for (const Extents& extents :
         {Extents{0, 4, 2, 8}, Extents{1, 0, 2, 8}, Extents{1, 4, 0, 8}}) {
      if (layout == Layout::kThd && extents.batch == 0) continue;
      const Tensor x(Dtype::kFloat32, layout, extents);
      EXPECT_TRUE(
          Rotate(Args(core::StartPosition{0}, layout), x).bytes.empty());
    }
  // An empty q beside a k with elements.
  const Tensor k = Seeded(Dtype::kFloat32, Layout::kBshd, {1, 4, 1, 8}, 11);
  Tensor q(Dtype::kFloat32, Layout::kBshd, {1, 4, 0, 8}), k_out = k;
  const core::ConstTensorView q_in = q.in(), k_in = k.in();
  const core::TensorView q_view = q.out(), k_view = k_out.out();
  const Request args = Args(core::StartPosition{7});
  ASSERT_TRUE(
      core::ApplyRope(args.WithRope(), &q_in, &q_view, &k_in, &k_view).ok());
  EXPECT_EQ(k_out.bytes, Rotate(args, k).bytes);
}

TEST(ApplyProperties, NoTokensNeedNoPositions) {
  const Tensor x(Dtype::kFloat32, Layout::kBshd, {1, 0, 2, 8});
  EXPECT_TRUE(Rotate(Args(core::Positions{}), x).bytes.empty());
}

// The positions of these tokens would take 16 GiB.
TEST(ApplyProperties, ManyTokensOfNoHeadNeedNoPositions) {
  core::ConstTensorView q;
  q.shape = {1, std::int64_t{1} << 31, 0, 8};
  core::TensorView out;
  out.shape = q.shape;
  EXPECT_TRUE(core::ApplyRope(Args(core::StartPosition{0}).WithRope(), &q, &out,
                              nullptr, nullptr)
                  .ok());
}

TEST(ApplyProperties, KeepsNanAndInfinity) {
  for (const Dtype dtype : kDtypes) {
    Tensor x = Seeded(dtype, Layout::kBshd, {1, 2, 1, 16}, 12);
    const double infinity = std::numeric_limits<double>::infinity();
    x.Set(0, 0, 0, 0, std::nan(""));
    x.Set(0, 0, 0, 1, infinity);
    x.Set(0, 1, 0, 2, -infinity);
    // Channels 2 and 10 are a pair, and one of its results becomes NaN.
    x.Set(0, 1, 0, 10, infinity);
    const Grid grid{1, 1, 2, {1, 2}};
    Request args = Args(grid.Ids(Layout::kBshd));
    args.saturation = core::Saturation::kNone;
    EXPECT_EQ(FindError(args.spec, args, grid, core::TensorRole::kKey, x,
                        Rotate(args, x)),
              "")
        << core::DtypeName(dtype);
  }
}

// Tests every pattern of 16 and of 8 bits, and as many seeded patterns of the
// wider dtypes, including signalling NaNs.
TEST(ApplyProperties, PassThroughChannelsKeepEveryBit) {
  std::mt19937_64 random(13);
  for (const bool nope : {false, true})
    for (const Dtype dtype : kDtypes) {
      const std::int64_t width = 4, head_dim = 65536 + (nope ? 0 : width);
      Tensor x(dtype, Layout::kBshd, {1, 1, 1, head_dim});
      for (std::byte& byte : x.bytes) byte = static_cast<std::byte>(random());
      const std::size_t size = core::DtypeSize(dtype);
      for (std::int64_t i = 0; size == 2 && i < 65536; ++i) {
        const auto bits = static_cast<std::uint16_t>(i);
        std::memcpy(x.bytes.data() + (head_dim - 65536 + i) * 2, &bits, 2);
      }
      for (std::int64_t i = 0; size == 1 && i < 65536; ++i) {
        x.bytes[head_dim - 65536 + i] = static_cast<std::byte>(i);
      }
      Request args = Args(core::StartPosition{3});
      if (nope) {
        args.spec = core::RopeSpec();
        args.spec.nope = true;
      } else {
        args.spec.rotary_dim = width;
      }
      const Tensor y = Rotate(args, x);
      const std::size_t skip = (head_dim - 65536) * size;
      EXPECT_EQ(std::memcmp(y.bytes.data() + skip, x.bytes.data() + skip,
                            x.bytes.size() - skip),
                0)
          << core::DtypeName(dtype);
    }
}

// A source that changes no head, and counts its calls.
class CountingSource : public core::CosSinSource {
 public:
  explicit CountingSource(int* count) : count_(count) {}

  std::unique_ptr<core::CosSinSource> Clone() const override {
    return std::make_unique<CountingSource>(count_);
  }
  std::size_t pairs() const override { return 1; }
  std::size_t heads() const override { return 1; }
  void Fill(std::int64_t, std::int64_t, float* row) override {
    row[0] = 1;
    row[1] = 0;
    ++*count_;
  }
  void Fill(std::int64_t, std::int64_t, double*) override { FAIL(); }

 private:
  int* const count_;
};

TEST(ApplyProperties, EveryTokenIsEvaluatedOnceInEveryLayout) {
  core::RopeSpec spec;
  spec.rotary_dim = 2;
  const core::HeadLayout extents = {3, 50, 4, 2};
  for (const Layout layout : {Layout::kBshd, Layout::kBhsd, Layout::kSbhd}) {
    for (const bool shared : {false, true}) {
      int count = 0;
      const core::RotationMap map(
          core::MakeHeadRotation(Dtype::kFloat32, core::Saturation::kNone,
                                 core::BlockFormat::kNone, 2, spec,
                                 core::SegmentsOf(spec, 2), Pairing::kHalfSplit,
                                 Pairing::kHalfSplit),
          layout, extents, shared, std::make_unique<CountingSource>(&count));
      std::vector<float> x(3 * 50 * 4 * 2, 1);
      core::MapAll(map, x.data(), x.data());
      EXPECT_EQ(count, shared ? 50 : 150)
          << static_cast<int>(layout) << " " << shared;
    }
  }
}

TEST(ApplyProperties, AcceptsAnyAlignment) {
  for (const Dtype dtype : kDtypes) {
    const Tensor x = Seeded(dtype, Layout::kBhsd, {1, 5, 3, 34}, 14);
    const Request args =
        Args(core::StartPosition{11}, Layout::kBhsd, Pairing::kInterleaved);
    const Tensor expected = Rotate(args, x);
    const std::size_t size = x.bytes.size();
    for (const std::size_t shift : {1, 3}) {
      const auto from = std::make_unique<std::byte[]>(size + shift);
      const auto to = std::make_unique<std::byte[]>(size + shift);
      std::memcpy(from.get() + shift, x.bytes.data(), size);
      const core::ConstTensorView in{dtype, x.shape, from.get() + shift};
      const core::TensorView out{dtype, x.shape, to.get() + shift};
      ASSERT_TRUE(
          core::ApplyRope(args.WithRope(), &in, &out, nullptr, nullptr).ok());
      EXPECT_EQ(std::memcmp(to.get() + shift, expected.bytes.data(), size), 0);
    }
  }
}

}  // namespace
}  // namespace posenc::test
