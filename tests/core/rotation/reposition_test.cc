// Re-positioning against tests/reference/reposition_reference.h, and against
// applying the encoding at the new position.

#include "core/rotation/reposition.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/interpretation/source.h"
#include "gtest/gtest.h"
#include "tests/fixtures/core/instruction_sets.h"
#include "tests/reference/reposition_reference.h"

namespace posenc::test {
namespace {

using core::Dtype;
using core::Layout;

Extents E(Layout layout, std::int64_t tokens = 5) {
  return layout == Layout::kThd ? Extents{1, 2 * tokens, 3, 24}
                                : Extents{2, tokens, 3, 24};
}

// Whole and fractional positions in [0, reach].
Grid Positions(const Encodings& encodings, const Extents& e,
               std::mt19937_64& random) {
  std::uniform_real_distribution<double> uniform(0, encodings.reach);
  Grid grid{encodings.axes, e.batch, e.tokens, {}};
  for (std::int64_t i = 0; i < grid.axes * grid.batch * grid.tokens; ++i) {
    const double p = uniform(random);
    grid.values.push_back(i % 3 == 0 ? p : std::floor(p));
  }
  return grid;
}

Tensor Reposition(const core::RepositionArgs& args, const Tensor& k) {
  Tensor out = k;
  for (std::byte& byte : out.bytes) byte = std::byte{0x5a};
  const absl::Status status = core::Reposition(args, k.in(), out.out());
  EXPECT_TRUE(status.ok()) << status;
  return out;
}

Tensor Apply(const core::RopeLookup& rope, Layout layout,
             const core::Positions& positions, const Tensor& k) {
  core::ApplyRopeArgs args;
  args.rope = rope;
  args.layout = layout;
  args.positions = positions;
  args.saturation = core::Saturation::kFinite;
  Tensor out = k;
  const core::ConstTensorView from = k.in();
  const core::TensorView to = out.out();
  const absl::Status status =
      core::ApplyRope(args, nullptr, nullptr, &from, &to);
  EXPECT_TRUE(status.ok()) << status;
  return out;
}

core::Pairing Written(const core::RopeSpec& spec) {
  return spec.output_pairing == core::Pairing::kUnspecified
             ? spec.pairing
             : spec.output_pairing;
}

class EachEncoding : public testing::TestWithParam<Encodings> {
 protected:
  std::mt19937_64 random_{20240914};
};
INSTANTIATE_TEST_SUITE_P(Core, EachEncoding, testing::ValuesIn(AllEncodings()),
                         [](const testing::TestParamInfo<Encodings>& info) {
                           std::string name = info.param.name;
                           std::erase_if(name, [](char c) {
                             return c == ' ' || c == ',' || c == '-';
                           });
                           return name;
                         });

TEST_P(EachEncoding, FollowsTheFormulaToNewPositions) {
  for (const Layout layout : kLayouts)
    for (const Dtype dtype : kDtypes) {
      SCOPED_TRACE(absl::StrCat("layout ", static_cast<int>(layout), " ",
                                core::DtypeName(dtype)));
      Tensor k(dtype, layout, E(layout));
      k.Fill(random_);
      const Move move = {Positions(GetParam(), k.extents, random_),
                         Positions(GetParam(), k.extents, random_)};
      core::RepositionArgs args = GetParam().Args(layout);
      args.movement.old_positions = move.from.Ids(layout);
      args.movement.target = core::NewPositions{move.to.Ids(layout)};
      ASSERT_EQ(FindMoveError(GetParam(), move, k, Reposition(args, k)), "");
    }
}

// Shifts by an integer. The largest one is so large that float64 cannot hold
// the sum of a fractional position and the shift.
TEST_P(EachEncoding, FollowsTheFormulaByShifts) {
  const bool far =
      GetParam().reach > 10000 &&
      GetParam().from.angle_precision == core::AnglePrecision::kExact;
  for (const Layout layout : kLayouts)
    for (const Dtype dtype : kDtypes)
      for (const double shift : {-70.0, far ? 0x1p30 + 1 : 333.0}) {
        SCOPED_TRACE(absl::StrCat("layout ", static_cast<int>(layout), " ",
                                  core::DtypeName(dtype), " shift ", shift));
        Tensor k(dtype, layout, E(layout));
        k.Fill(random_);
        const Grid from = Positions(GetParam(), k.extents, random_);
        const Move move = {from, from, shift};
        core::RepositionArgs args = GetParam().Args(layout);
        args.movement.old_positions = from.Ids(layout);
        args.movement.target = core::ShiftAll{static_cast<std::int64_t>(shift)};
        const Tensor all = Reposition(args, k);
        ASSERT_EQ(FindMoveError(GetParam(), move, k, all), "");
        const Grid shifts{from.axes, from.batch, from.tokens,
                          std::vector<double>(from.values.size(), shift)};
        args.movement.target = core::TokenShifts{
            std::get<core::PositionIds>(shifts.Ids(layout)).ids};
        EXPECT_EQ(Reposition(args, k).bytes, all.bytes);
      }
}

// Returns half-split heads with their channels in interleaved order, as in a
// converted checkpoint.
Tensor Interleaved(const Tensor& x) {
  Tensor out = x;
  const Extents& e = x.extents;
  for (std::int64_t b = 0; b < e.batch; ++b)
    for (std::int64_t s = 0; s < e.tokens; ++s)
      for (std::int64_t h = 0; h < e.heads; ++h)
        for (std::int64_t i = 0; i < 12; ++i) {
          out.Set(b, s, h, 2 * i, x.At(b, s, h, i));
          out.Set(b, s, h, 2 * i + 1, x.At(b, s, h, i + 12));
        }
  return out;
}

// The main promise: a repositioned key does not depend on its history.
//
// The bound of an element, for keys of length L after the factors: applying at
// p is off by PairBound; the move rotates this error, but does not change its
// size. The move and applying at p' are each off by ElementBound. The sum is
// 3.83u + 3u + 3u < 10u. For float64 it is 9.49u + 7u + 7u < 24u. Dtypes of 16
// and 8 bits round after each of the three steps: by the unit roundoff times L,
// and for subnormal numbers together by (1 + 1 + sqrt(2)) times half of the
// least positive number.
TEST_P(EachEncoding, ApplyThenRepositionIsApplyAtTheNewPosition) {
  const core::RopeSpec& from = GetParam().from;
  const core::RopeSpec& to = GetParam().to;
  for (const Layout layout : kLayouts)
    for (const Dtype dtype : kDtypes) {
      SCOPED_TRACE(absl::StrCat("layout ", static_cast<int>(layout), " ",
                                core::DtypeName(dtype)));
      Tensor x(dtype, layout, E(layout));
      x.Fill(random_);
      const Grid p = Positions(GetParam(), x.extents, random_);
      const Grid q = Positions(GetParam(), x.extents, random_);
      core::RepositionArgs args = GetParam().Args(layout);
      args.movement.old_positions = p.Ids(layout);
      args.movement.target = core::NewPositions{q.Ids(layout)};
      const Tensor k = Apply(args.old_rope, layout, p.Ids(layout), x);
      const Tensor moved = Reposition(args, k);
      const Tensor direct =
          Apply(args.new_rope, layout, q.Ids(layout),
                from.pairing == to.pairing ? x : Interleaved(x));

      const bool wide = core::DtypeSize(dtype) > 2;
      // The factors of xPos in Apply are off by 3 * 2^-53 of their exponent.
      const double decay =
          from.xpos.has_value() || to.xpos.has_value() ? 3 * 8 * 0x1p-53 : 0;
      const double relative =
          (dtype == Dtype::kFloat64 ? 24 * 0x1p-53 + decay : 10 * 0x1p-24) +
          (wide ? 0 : 3 * UnitRoundoff(dtype) * 1.01);
      const std::int64_t width = to.rotary_dim == 0 ? 24 : to.rotary_dim;
      const std::int64_t start =
          to.slice == core::RotarySlice::kTrailing ? 24 - width : 0;
      const Extents& e = x.extents;
      for (std::int64_t b = 0; b < e.batch; ++b)
        for (std::int64_t s = 0; s < e.tokens; ++s)
          for (std::int64_t h = 0; h < e.heads; ++h)
            for (std::int64_t d = start; d < start + width; ++d) {
              const bool halves =
                  to.axes.has_value() && to.axes->halves_per_axis;
              std::int64_t other =
                  d < start + width / 2 ? d + width / 2 : d - width / 2;
              if (halves) other = d < 14 ? (d + 7) % 14 : 14 + (d - 9) % 10;
              if (Written(to) == core::Pairing::kInterleaved) {
                other = start + ((d - start) ^ 1);
              }
              const double length =
                  std::hypot(direct.At(b, s, h, d), direct.At(b, s, h, other));
              ASSERT_NEAR(moved.At(b, s, h, d), direct.At(b, s, h, d),
                          relative * length * (1 + relative) +
                              (wide ? 0 : 4 * HalfSubnormal(dtype)))
                  << "[b=" << b << " s=" << s << " h=" << h << " d=" << d
                  << "]";
            }
    }
}

TEST(RepositionTest, WorksInPlaceWherePairingsAgree) {
  std::mt19937_64 random(6);
  for (const Encodings& encodings : AllEncodings()) {
    if (Written(encodings.from) != Written(encodings.to)) continue;
    for (const Layout layout : kLayouts)
      for (const Dtype dtype : kDtypes) {
        Tensor k(dtype, layout, E(layout));
        k.Fill(random);
        const Grid p = Positions(encodings, k.extents, random);
        core::RepositionArgs args = encodings.Args(layout);
        args.movement.old_positions = p.Ids(layout);
        args.movement.target = core::ShiftAll{-41};
        const Tensor elsewhere = Reposition(args, k);
        ASSERT_TRUE(core::Reposition(args, k.in(), k.out()).ok());
        EXPECT_EQ(k.bytes, elsewhere.bytes) << encodings.name;
      }
  }
}

Encodings Find(const std::string& name) {
  for (const Encodings& encodings : AllEncodings()) {
    if (encodings.name == name) return encodings;
  }
  ADD_FAILURE() << name;
  return {};
}

Tensor Seeded(Dtype dtype, Layout layout, const Extents& extents) {
  std::mt19937_64 random(7);
  Tensor tensor(dtype, layout, extents);
  tensor.Fill(random);
  return tensor;
}

// Only the distance matters, for all positions.
TEST(RepositionTest, ShiftsNeedNoPositionsWhereFrequenciesAgree) {
  for (const char* name : {"plain", "partial", "trailing slice", "yarn",
                           "change of amplitude", "reverse", "mrope", "grid",
                           "two axes summed", "xpos", "xpos recentred"}) {
    SCOPED_TRACE(name);
    const Encodings encodings = Find(name);
    const Tensor k = Seeded(Dtype::kFloat32, Layout::kBshd, {2, 300, 3, 24});
    std::mt19937_64 random(8);
    const Grid p = Positions(encodings, k.extents, random);
    core::RepositionArgs args = encodings.Args(Layout::kBshd);
    args.movement.target = core::ShiftAll{-250};
    const Tensor moved = Reposition(args, k);
    EXPECT_EQ(FindMoveError(encodings, {p, p, -250}, k, moved), "");
    args.movement.old_positions = p.Ids(Layout::kBshd);
    EXPECT_EQ(Reposition(args, k).bytes, moved.bytes);
  }
}

// A call without positions rotates by the float32 angle of the shift, as in a
// framework's table; a call with positions rotates by the difference of their
// float32 angles.
TEST(RepositionTest, Float32AnglesOfAShiftAloneAreTheShifts) {
  const Encodings encodings = Find("float32 angles");
  const Tensor k = Seeded(Dtype::kFloat32, Layout::kBshd, {1, 3, 3, 24});
  core::RepositionArgs args = encodings.Args(Layout::kBshd);
  args.movement.target = core::ShiftAll{54321};
  const Grid zero{1, 1, 3, {0, 0, 0}};
  EXPECT_EQ(
      FindMoveError(encodings, {zero, zero, 54321}, k, Reposition(args, k)),
      "");
}

// Shifts single tokens on single axes.
TEST(RepositionTest, TokensShiftAlone) {
  for (const char* name : {"plain", "yarn", "mrope", "grid", "xpos",
                           "change of base", "mrope to interleaved"}) {
    SCOPED_TRACE(name);
    const Encodings encodings = Find(name);
    for (const Layout layout : kLayouts) {
      const Tensor k = Seeded(Dtype::kFloat32, layout, E(layout));
      std::mt19937_64 random(9);
      Grid from = Positions(encodings, k.extents, random);
      Grid to = from, shifts = from;
      for (std::size_t i = 0; i < from.values.size(); ++i) {
        shifts.values[i] = std::floor(from.values[i] / 7) - 20;
        // Fractions of 30 bits: sums are exact.
        to.values[i] = from.values[i] =
            std::ldexp(std::floor(std::ldexp(from.values[i], 30)), -30);
        to.values[i] += shifts.values[i];
      }
      core::RepositionArgs args = encodings.Args(layout);
      args.movement.old_positions = from.Ids(layout);
      args.movement.target = core::TokenShifts{
          std::get<core::PositionIds>(shifts.Ids(layout)).ids};
      EXPECT_EQ(FindMoveError(encodings, {from, to}, k, Reposition(args, k)),
                "");
    }
  }
}

TEST(RepositionTest, EveryKindOfPositionsIsTaken) {
  const Encodings encodings = Find("change of base");
  const Tensor k = Seeded(Dtype::kFloat32, Layout::kBshd, {2, 4, 3, 24});
  core::RepositionArgs args = encodings.Args(Layout::kBshd);
  args.movement.old_positions = core::SequenceStarts{{-3, 5000}};
  args.movement.target = core::NewPositions{core::StartPosition{100}};
  const Grid from{1, 2, 4, {-3, -2, -1, 0, 5000, 5001, 5002, 5003}};
  const Grid to{1, 2, 4, {100, 101, 102, 103, 100, 101, 102, 103}};
  EXPECT_EQ(FindMoveError(encodings, {from, to}, k, Reposition(args, k)), "");

  const Tensor packed = Seeded(Dtype::kFloat32, Layout::kThd, {1, 5, 3, 24});
  args.layout = Layout::kThd;
  args.movement.old_positions = core::PackedSequences{{0, 2, 5}, {7, 1000}};
  args.movement.target =
      core::NewPositions{core::PackedSequences{{0, 2, 5}, {}}};
  EXPECT_EQ(FindMoveError(encodings,
                          {{1, 1, 5, {7, 8, 1000, 1001, 1002}},
                           {1, 1, 5, {0, 1, 0, 1, 2}}},
                          packed, Reposition(args, packed)),
            "");
}

// Keys move from one end of the positions to the other: by 2^32, with a
// fraction.
TEST(RepositionTest, TheFarthestMoveIsExact) {
  for (const char* name : {"plain", "yarn", "by head"}) {
    const Encodings encodings = Find(name);
    for (const Dtype dtype : kDtypes) {
      const Tensor k = Seeded(dtype, Layout::kBshd, {1, 3, 3, 24});
      Move move = {{encodings.axes, 1, 3, {}}, {encodings.axes, 1, 3, {}}};
      for (std::int64_t a = 0; a < encodings.axes; ++a) {
        for (const double p : {-0x1p31, 0.1, 0x1p31}) {
          move.from.values.push_back(p);
        }
        for (const double p : {0x1p31, 0x1p31 - 1 / 3.0, -0x1p31 + 0.7}) {
          move.to.values.push_back(p);
        }
      }
      core::RepositionArgs args = encodings.Args(Layout::kBshd);
      args.movement.old_positions = move.from.Ids(Layout::kBshd);
      args.movement.target = core::NewPositions{move.to.Ids(Layout::kBshd)};
      EXPECT_EQ(FindMoveError(encodings, move, k, Reposition(args, k)), "")
          << name << " " << core::DtypeName(dtype);
    }
  }
}

// At the greatest valid frequency, distance times frequency exceeds the
// kernel's reduction. Only float32 is tested, because 2^51 quarter turns are
// exact only to 2^-43 of a quarter turn.
TEST(RepositionTest, TheFastestFrequencyMovesFarthest) {
  core::ExplicitFrequencies fastest;
  for (int i = 0; i < 12; ++i) fastest.values.push_back(0x1p20 - 0.37 * i);
  Encodings encodings = Find("plain");
  encodings.from.scaling = fastest;
  encodings.to.scaling = fastest;
  const Tensor k = Seeded(Dtype::kFloat32, Layout::kBshd, {1, 2, 3, 24});
  const Move move = {{1, 1, 2, {-0x1p31, 0x1p31}},
                     {1, 1, 2, {0x1p31, -0x1p31 + 5}}};
  core::RepositionArgs args = encodings.Args(Layout::kBshd);
  args.movement.old_positions = move.from.Ids(Layout::kBshd);
  args.movement.target = core::NewPositions{move.to.Ids(Layout::kBshd)};
  EXPECT_EQ(FindMoveError(encodings, move, k, Reposition(args, k)), "");
}

// The xPos factors far from the center exceed e^87, but the factor of the
// distance does not.
TEST(RepositionTest, XPosShiftsFarFromItsCenter) {
  const Encodings encodings = Find("xpos");
  const Tensor k = Seeded(Dtype::kFloat32, Layout::kBshd, {1, 2, 3, 24});
  const Grid p{1, 1, 2, {1e9, -2e9}};
  core::RepositionArgs args = encodings.Args(Layout::kBshd);
  args.movement.old_positions = p.Ids(Layout::kBshd);
  for (const std::int64_t shift : {35000, -35000}) {
    args.movement.target = core::ShiftAll{shift};
    EXPECT_EQ(FindMoveError(encodings, {p, p, static_cast<double>(shift)}, k,
                            Reposition(args, k)),
              "");
  }
}

TEST(RepositionTest, AShiftOfZeroKeepsEveryValue) {
  for (const Dtype dtype : kDtypes) {
    const Tensor k = Seeded(dtype, Layout::kBhsd, {2, 5, 3, 24});
    core::RepositionArgs args = Find("yarn").Args(Layout::kBhsd);
    args.movement.target = core::ShiftAll{0};
    const Tensor moved = Reposition(args, k);
    args.new_rope = nullptr;
    EXPECT_EQ(Reposition(args, k).bytes, moved.bytes);
    // Compares values and not bytes, because -0 * 1 - y * 0 is +0 if y is
    // negative, and FP8 rounds some of the seeded numbers to -0.
    for (std::int64_t b = 0; b < 2; ++b)
      for (std::int64_t s = 0; s < 5; ++s)
        for (std::int64_t h = 0; h < 3; ++h)
          for (std::int64_t d = 0; d < 24; ++d) {
            EXPECT_EQ(moved.At(b, s, h, d), k.At(b, s, h, d));
          }
  }
}

TEST(RepositionTest, AnAbsentNewEncodingIsTheOldOne) {
  const Tensor k = Seeded(Dtype::kFloat32, Layout::kBshd, {1, 5, 3, 24});
  core::RepositionArgs args = Find("yarn").Args(Layout::kBshd);
  args.movement.target = core::ShiftAll{12};
  const Tensor moved = Reposition(args, k);
  args.new_rope = nullptr;
  EXPECT_EQ(Reposition(args, k).bytes, moved.bytes);
}

// NaNs keep their payloads, too, because nothing is computed.
TEST(RepositionTest, NopeToNopeIsTheIdentity) {
  core::RopeSpec spec;
  spec.nope = true;
  const Encodings encodings{"nope", spec, spec};
  for (const Dtype dtype : kDtypes) {
    std::mt19937_64 random(10);
    Tensor k(dtype, Layout::kBshd, {1, 4, 3, 24});
    for (std::byte& byte : k.bytes) byte = static_cast<std::byte>(random());
    core::RepositionArgs args = encodings.Args(Layout::kBshd);
    args.movement.target = core::ShiftAll{5};
    EXPECT_EQ(Reposition(args, k).bytes, k.bytes);
    args.movement.old_positions = core::StartPosition{9};
    args.movement.target = core::NewPositions{core::StartPosition{1}};
    EXPECT_EQ(Reposition(args, k).bytes, k.bytes);
  }
}

TEST(RepositionTest, EmptyTensorsNeedNoPositions) {
  for (const Extents& extents :
       {Extents{0, 4, 2, 8}, Extents{1, 0, 2, 8}, Extents{1, 4, 0, 8}}) {
    const Tensor k(Dtype::kFloat32, Layout::kBshd, extents);
    core::RepositionArgs args = Find("change of base").Args(Layout::kBshd);
    args.movement.target = core::NewPositions{};
    EXPECT_TRUE(Reposition(args, k).bytes.empty());
  }
}

// A key that is moved alone gets the bytes that it gets in its batch, which has
// several blocks of rows.
TEST(RepositionTest, BytesDoNotDependOnThePlaceInTheBatch) {
  const Encodings encodings = Find("none to yarn");
  const Tensor k = Seeded(Dtype::kFloat32, Layout::kBshd, {2, 500, 3, 24});
  std::mt19937_64 random(11);
  const Grid from = Positions(encodings, k.extents, random);
  const Grid to = Positions(encodings, k.extents, random);
  core::RepositionArgs args = encodings.Args(Layout::kBshd);
  args.movement.old_positions = from.Ids(Layout::kBshd);
  args.movement.target = core::NewPositions{to.Ids(Layout::kBshd)};
  const Tensor all = Reposition(args, k);
  for (const std::int64_t b : {0, 1})
    for (const std::int64_t t : {0, 169, 170, 171, 499}) {
      Tensor one(Dtype::kFloat32, Layout::kBshd, {1, 1, 3, 24});
      const auto begin = k.bytes.begin() + k.Offset(b, t, 0, 0);
      std::copy_n(begin, one.bytes.size(), one.bytes.begin());
      const Grid p{1, 1, 1, {from.at(0, b, t)}}, q{1, 1, 1, {to.at(0, b, t)}};
      args.movement.old_positions = p.Ids(Layout::kBshd);
      args.movement.target = core::NewPositions{q.Ids(Layout::kBshd)};
      const Tensor alone = Reposition(args, one);
      EXPECT_TRUE(std::equal(alone.bytes.begin(), alone.bytes.end(),
                             all.bytes.begin() + all.Offset(b, t, 0, 0)));
    }
}

// Returns FNV-1a of all encodings' keys, in every dtype and layout.
std::string Digest() {
  std::uint64_t hash = 14695981039346656037u;
  for (const Encodings& encodings : AllEncodings())
    for (const Layout layout : kLayouts)
      for (const Dtype dtype : kDtypes) {
        const Tensor k = Seeded(dtype, layout, E(layout));
        std::mt19937_64 random(12);
        const Grid from = Positions(encodings, k.extents, random);
        const Grid to = Positions(encodings, k.extents, random);
        core::RepositionArgs args = encodings.Args(layout);
        args.movement.old_positions = from.Ids(layout);
        for (const bool shift : {false, true}) {
          args.movement.target = core::NewPositions{to.Ids(layout)};
          if (shift) args.movement.target = core::ShiftAll{-99};
          for (const std::byte byte : Reposition(args, k).bytes) {
            hash = (hash ^ static_cast<std::uint64_t>(byte)) * 1099511628211u;
          }
        }
      }
  return absl::StrCat("digest ", absl::Hex(hash, absl::kZeroPad16));
}

// A process chooses its instruction set once, so this test starts itself for
// each set.
TEST(RepositionTest, BytesAreTheSameOnEveryInstructionSet) {
  if (std::getenv("POSENC_PRINT_DIGEST") != nullptr) {
    std::printf("%s\n", Digest().c_str());
    return;
  }
  if (std::size(reference::kInstructionSets) == 1) {
    GTEST_SKIP() << "there is one instruction set: nothing to compare";
  }
  char path[4096] = {};
  ASSERT_GT(readlink("/proc/self/exe", path, sizeof(path) - 1), 0);
  const std::string expected = Digest();
  int sets = 0;
  for (const char* name : reference::kInstructionSets) {
    if (reference::FindKernels(name) == nullptr) continue;
    const std::string command = absl::StrCat(
        "POSENC_PRINT_DIGEST=1 POSENC_FORCE_ISA=", name, " '", path,
        "' --gtest_filter=RepositionTest.BytesAreTheSameOnEveryInstructionSet");
    const std::unique_ptr<FILE, int (*)(FILE*)> child(
        popen(command.c_str(), "r"), pclose);
    ASSERT_NE(child, nullptr);
    std::string output;
    char piece[256];
    while (std::fgets(piece, sizeof(piece), child.get()) != nullptr) {
      output += piece;
    }
    EXPECT_NE(output.find(expected), std::string::npos)
        << name << " gave, instead of " << expected << ":\n"
        << output;
    ++sets;
  }
  EXPECT_GE(sets, 1);
}

}  // namespace
}  // namespace posenc::test
