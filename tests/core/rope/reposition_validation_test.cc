// Movements that must be refused, each with its code, reason, field and text.

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/model/source.h"
#include "core/rope/reposition.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fixtures/bad_input.h"

namespace posenc::core {
namespace {

constexpr std::int64_t kEnd = std::int64_t{1} << 31;

// A good request, which each case spoils in one place.
struct Request {
  Request() {
    RopeSpec spec;
    spec.pairing = Pairing::kHalfSplit;
    old_rope.source = new_rope.source = spec;
    args.movement.old_positions = StartPosition{0};
    args.movement.target = ShiftAll{7};
  }
  RopeSpec& from() { return std::get<RopeSpec>(old_rope.source); }
  RopeSpec& to() { return std::get<RopeSpec>(new_rope.source); }
  // float64 ids of this shape, all `value`.
  ConstTensorView Ids(Shape shape, double value) {
    ids.assign(64, value);
    return {Dtype::kFloat64, shape, ids.data()};
  }
  absl::Status Reposition() {
    args.old_rope = LookupOf(old_rope);
    args.new_rope = LookupOf(new_rope);
    return core::Reposition(args, {dtype, shape, data}, {dtype, shape, out});
  }

  RopeSource old_rope, new_rope;
  RepositionArgs args;  // all but the encodings
  Dtype dtype = Dtype::kFloat32;
  Shape shape = {2, 4, 2, 8};
  std::byte data[1024] = {};
  std::byte out[1024] = {};
  std::vector<double> ids;
};

RotaryAxes Axes(AxisAssignment assignment, std::vector<std::int32_t> sections,
                bool halves = false) {
  return {assignment, std::move(sections), {}, halves};
}

// Leaves out the positions of a shift that needs them.
std::function<void(Request&)> Unplaced(std::function<void(Request&)> change) {
  return [change](Request& r) {
    r.args.movement.old_positions = Positions();
    change(r);
  };
}

std::vector<BadInput<Request>> Cases() {
  constexpr ErrorReason kRequired = ErrorReason::kFieldRequired;
  constexpr ErrorReason kInvalid = ErrorReason::kFieldInvalid;
  constexpr ErrorReason kMismatch = ErrorReason::kShapeMismatch;
  constexpr ErrorReason kRange = ErrorReason::kPositionOutOfRange;
  constexpr ErrorReason kApart = ErrorReason::kNotRepositionable;
  return {
      {"NoTarget",
       [](Request& r) { r.args.movement.target = {}; },
       kRequired,
       "movement",
       {"new_positions", "shift"}},
      {"NoLayout",
       [](Request& r) { r.args.layout = Layout{}; },
       kInvalid,
       "layout",
       {"0", "BSHD"}},
      {"WrongRank",
       [](Request& r) {
         r.shape = {4, 2, 8};
       },
       kInvalid,
       "k.shape",
       {"[4, 2, 8]", "rank 3", "BSHD", "4"}},
      {"IntegerKeys",
       [](Request& r) { r.dtype = Dtype::kInt32; },
       kInvalid,
       "k.dtype",
       {"int32", "float32", "float8_e4m3fn"}},
      {"Float8WithoutSaturation",
       [](Request& r) { r.dtype = Dtype::kFloat8E5m2; },
       kRequired,
       "saturation",
       {"unset", "k is float8_e5m2", "finite"}},
      {"NoOldRope",
       [](Request& r) { r.old_rope.source = {}; },
       kRequired,
       "old_rope",
       {}},
      {"OddOldWidth",
       [](Request& r) { r.from().rotary_dim = 5; },
       kInvalid,
       "old_rope.spec.rotary_dim",
       {"5", "even"}},
      {"NewWidthBeyondTheHead",
       [](Request& r) { r.to().rotary_dim = 10; },
       kInvalid,
       "new_rope.spec.rotary_dim",
       {"10", "8"}},
      {"NoNewPairing",
       [](Request& r) { r.to().pairing = Pairing::kUnspecified; },
       kRequired,
       "new_rope.spec.pairing",
       {}},
      {"NoNewLength",
       [](Request& r) {
         r.to().scaling = DynamicNtkScaling{2, 4096};
       },
       kRequired,
       "new_rope.sequence_length",
       {}},
      {"HeadsOfTheFrequencies",
       [](Request& r) {
         r.to().scaling =
             ExplicitFrequencies{std::vector<double>(12, 0.5), 3, 1};
       },
       kMismatch,
       "k.shape",
       {"2 heads", "3"}},
      {"OtherWidth",
       [](Request& r) { r.to().rotary_dim = 4; },
       kApart,
       "new_rope",
       {"rotary_dim 4", "old_rope 8"}},
      {"OtherSlice",
       [](Request& r) {
         r.from().rotary_dim = 4;
         r.to().rotary_dim = 4;
         r.to().slice = RotarySlice::kTrailing;
       },
       kApart,
       "new_rope",
       {"trailing 4 of 8", "old_rope the leading"}},
      {"MoreAxes",
       [](Request& r) {
         r.to().axes = Axes(AxisAssignment::kSectioned, {2, 1, 1});
       },
       kApart,
       "new_rope",
       {"3 position axes", "old_rope 1"}},
      {"NopeToRope",
       [](Request& r) {
         r.from() = RopeSpec();
         r.from().nope = true;
       },
       kApart,
       "new_rope",
       {"has a rotation", "old_rope none"}},
      {"RopeToNope",
       [](Request& r) {
         r.to() = RopeSpec();
         r.to().nope = true;
       },
       kApart,
       "new_rope",
       {"has no rotation", "old_rope one"}},
      {"OtherHalves",
       [](Request& r) {
         r.from().axes = Axes(AxisAssignment::kPerAxis, {2, 2}, true);
         r.to().axes = Axes(AxisAssignment::kPerAxis, {2, 2});
       },
       kApart,
       "new_rope",
       {"[4]", "[2, 2]", "halves"}},
      {"OtherHalvesPerAxis",
       [](Request& r) {
         r.from().axes = Axes(AxisAssignment::kPerAxis, {2, 2}, true);
         r.to().axes = Axes(AxisAssignment::kPerAxis, {3, 1}, true);
       },
       kApart,
       "new_rope",
       {"[3, 1]", "[2, 2]", "halves"}},
      {"NewPositionsWithoutOld",
       Unplaced([](Request& r) {
         r.args.movement.target = NewPositions{StartPosition{5}};
       }),
       kRequired,
       "movement.old_positions",
       {"new_positions", "how far"}},
      {"ShiftWithOtherFrequencies",
       Unplaced([](Request& r) { r.to().rope_theta = 500000; }),
       kRequired,
       "movement.old_positions",
       {"frequencies", "pair 1", "0.1 ", "0.0376", "depends on where"}},
      {"ShiftWithOtherLength",
       Unplaced([](Request& r) {
         r.from().scaling = DynamicNtkScaling{2, 4096};
         r.to().scaling = DynamicNtkScaling{2, 4096};
         r.old_rope.sequence_length = 4096;
         r.new_rope.sequence_length = 8192;
       }),
       kRequired,
       "movement.old_positions",
       {"frequencies", "pair 1"}},
      {"ShiftWithOtherSign",
       Unplaced([](Request& r) { r.to().reverse = true; }),
       kRequired,
       "movement.old_positions",
       {"reverse"}},
      {"ShiftWithOtherPrecision",
       Unplaced([](Request& r) {
         r.to().angle_precision = AnglePrecision::kFloat32;
       }),
       kRequired,
       "movement.old_positions",
       {"angle_precision"}},
      {"ShiftWithOtherDecay",
       Unplaced([](Request& r) {
         r.from().xpos.emplace();
         r.to().xpos.emplace().scale_base = 1024;
       }),
       kRequired,
       "movement.old_positions",
       {"xpos"}},
      {"ShiftOutOfDecay",
       Unplaced([](Request& r) { r.to().xpos.emplace(); }),
       kRequired,
       "movement.old_positions",
       {"xpos"}},
      {"TokenShiftsWithOtherFrequencies",
       Unplaced([](Request& r) {
         r.to().rope_theta = 500000;
         r.args.movement.target = TokenShifts{r.Ids({4}, 1)};
       }),
       kRequired,
       "movement.old_positions",
       {"frequencies"}},
      {"NoNewPositions",
       [](Request& r) { r.args.movement.target = NewPositions{}; },
       kRequired,
       "movement.new_positions",
       {"4 tokens"}},
      {"OldPositionsOfAnotherBatch",
       [](Request& r) {
         r.args.movement.old_positions = SequenceStarts{{1, 2, 3}};
       },
       kMismatch,
       "movement.old_positions.starts.values",
       {"[3]", "[2]"}},
      {"NewPositionsBeyondTheEnd",
       [](Request& r) {
         r.args.movement.target = NewPositions{StartPosition{kEnd - 2}};
       },
       kRange,
       "movement.new_positions.start",
       {"2147483646", "2^31"}},
      {"OnePositionForAGrid",
       [](Request& r) {
         r.from().axes = Axes(AxisAssignment::kPerAxis, {2, 2});
         r.to() = r.from();
       },
       kInvalid,
       "movement.old_positions.start",
       {"2 axes", "ids"}},
      {"ShiftBeyondEveryPosition",
       Unplaced(
           [](Request& r) { r.args.movement.target = ShiftAll{kEnd + 1}; }),
       kRange,
       "movement.shift",
       {"2147483649", "2^31"}},
      {"ShiftBelowEveryPosition",
       [](Request& r) { r.args.movement.target = ShiftAll{INT64_MIN}; },
       kRange,
       "movement.shift",
       {"-9223372036854775808", "2^31"}},
      {"ShiftPastTheEnd",
       [](Request& r) {
         r.args.movement.old_positions = SequenceStarts{{0, kEnd - 8}};
       },
       kRange,
       "movement.shift",
       {"token 2 of sequence 1", "2147483642", "2147483649", "2^31"}},
      {"TokenShiftsPastTheEnd",
       [](Request& r) {
         r.args.movement.old_positions = StartPosition{-kEnd};
         r.args.movement.target = TokenShifts{r.Ids({2, 4}, -2.5)};
       },
       kRange,
       "movement.shifts",
       {"token 0 of sequence 0", "-2147483648", "-2147483650.5"}},
      {"TokenShiftsOfAnotherShape",
       [](Request& r) { r.args.movement.target = TokenShifts{r.Ids({5}, 1)}; },
       kMismatch,
       "movement.shifts.shape",
       {"[5]", "[4]", "[2, 4]"}},
      {"TokenShiftsOfOneAxis",
       [](Request& r) {
         r.from().axes = Axes(AxisAssignment::kSectioned, {2, 2});
         r.to() = r.from();
         r.args.movement.target = TokenShifts{r.Ids({4}, 1)};
       },
       kMismatch,
       "movement.shifts.shape",
       {"[4]", "[2, 4]"}},
      {"TokenShiftsOfFloat16",
       [](Request& r) {
         ConstTensorView shifts = r.Ids({4}, 1);
         shifts.dtype = Dtype::kFloat16;
         r.args.movement.target = TokenShifts{shifts};
       },
       kInvalid,
       "movement.shifts.dtype",
       {"float16", "float64"}},
      {"TokenShiftsOfNan",
       [](Request& r) {
         r.args.movement.target = TokenShifts{r.Ids({4}, NAN)};
       },
       kRange,
       "movement.shifts",
       {"element 0", "nan"}},
      {"XPosShiftBeyondFloat32",
       Unplaced([](Request& r) {
         r.from().xpos.emplace();
         r.to().xpos.emplace();
         r.args.movement.target = ShiftAll{40000};
       }),
       kRange,
       "movement.shift",
       {"40000", "pair 0", "e^97.9", "e^87"},
       absl::StatusCode::kOutOfRange},
      {"XPosMoveBeyondFloat32",
       [](Request& r) {
         r.from().xpos.emplace();
         r.to().xpos.emplace().center = 5000;
         r.args.movement.target = NewPositions{StartPosition{-35000}};
       },
       kRange,
       "movement.new_positions",
       {"token 0", "-35000", "e^-97.9"},
       absl::StatusCode::kOutOfRange},
      {"XPosWhereThereWasNone",
       [](Request& r) {
         r.to().xpos.emplace();
         r.args.movement.target = TokenShifts{r.Ids({4}, 1e6)};
       },
       kRange,
       "movement.shifts",
       {"token 0", "1000000", "e^87"},
       absl::StatusCode::kOutOfRange},
  };
}

class RepositionValidation : public testing::TestWithParam<BadInput<Request>> {
};
INSTANTIATE_TEST_SUITE_P(Core, RepositionValidation, testing::ValuesIn(Cases()),
                         NameOf<Request>);

TEST_P(RepositionValidation, SaysWhatIsWrong) {
  Request request;
  GetParam().spoil(request);
  ExpectRefused(GetParam(), request.Reposition());
  // Nothing is written for a request that fails.
  for (const std::byte byte : request.out) ASSERT_EQ(byte, std::byte{0});
}

TEST(RepositionValidation, PassesTheRequestThatTheCasesSpoil) {
  Request request;
  EXPECT_TRUE(request.Reposition().ok()) << request.Reposition();
}

TEST(RepositionValidation, PositionsNameTheirIndex) {
  Request request;
  request.args.movement.old_positions = SequenceStarts{{0, kEnd - 8}};
  const std::optional<ErrorDetails> details =
      GetErrorDetails(request.Reposition());
  ASSERT_TRUE(details.has_value());
  EXPECT_THAT(details->metadata,
              testing::ElementsAre(testing::Pair("index", "6")));
}

// The slices of whole heads are the same.
TEST(RepositionValidation, EitherSliceOfAWholeHeadWillDo) {
  Request request;
  request.to().slice = RotarySlice::kTrailing;
  EXPECT_TRUE(request.Reposition().ok()) << request.Reposition();
}

TEST(RepositionValidation, ShiftsReachTheEnds) {
  Request request;
  request.args.movement.old_positions = StartPosition{0};
  request.args.movement.target = ShiftAll{kEnd - 3};
  EXPECT_TRUE(request.Reposition().ok()) << request.Reposition();
  request.args.movement.target = ShiftAll{-kEnd};
  EXPECT_TRUE(request.Reposition().ok()) << request.Reposition();
}

}  // namespace
}  // namespace posenc::core
