// Reposition, ConvertPairing and AnalyzeRope over a real connection. Expected
// values come from the formulas, with frequencies in float64.

#include <cmath>
#include <complex>
#include <cstdint>
#include <numbers>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "client/check/rotated_heads.h"
#include "tests/fixtures/server_errors.h"

namespace posenc::server {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;

using MoveTest = ErrorTest;

double Frequency(int pair, int width) {
  return std::pow(10000.0, -2.0 * pair / width);
}

std::vector<float> Samples(int n) {
  std::vector<float> out(n);
  for (int i = 0; i < n; ++i) {
    out[i] = static_cast<float>((i * 2654435761u) % 65536) / 16384.0f - 2.0f;
  }
  return out;
}

// Keys [1, 3, 2, 8] that stand at 10, 11, 12, shifted by 1000.
v1::RepositionRequest GoodMove() {
  v1::RepositionRequest request;
  request.mutable_old_rope()->mutable_spec()->set_pairing(
      v1::PAIRING_HALF_SPLIT);
  request.mutable_movement()->set_shift(1000);
  request.set_layout(v1::LAYOUT_BSHD);
  SetTensor(v1::DTYPE_FLOAT32, {1, 3, 2, 8}, Samples(48), request.mutable_k());
  return request;
}

// Every key of token t rotated, half-split, by the angles of movement(t).
void ExpectTurned(const v1::Tensor& in, const v1::Tensor& out,
                  absl::FunctionRef<long double(std::int64_t)> movement) {
  ASSERT_EQ(out.dtype(), v1::DTYPE_FLOAT32);
  ASSERT_THAT(out.shape(), ElementsAreArray(in.shape()));
  ASSERT_EQ(out.data().size(), in.data().size());
  check::TokenRotation rotation;
  for (int i = 0; i < 4; ++i) rotation.frequencies.push_back(Frequency(i, 8));
  rotation.before.pairs = rotation.after.pairs = 4;
  const auto before = check::HeadsView::Of(ViewOf(in), v1::LAYOUT_BSHD);
  const auto after = check::HeadsView::Of(ViewOf(out), v1::LAYOUT_BSHD);
  ASSERT_TRUE(before.ok() && after.ok());
  int visited = 0;
  check::VisitRotatedHeads(
      rotation, *before, *after, movement, /*token_step=*/1,
      [&visited](const check::RotatedElement& element) {
        ++visited;
        EXPECT_FALSE(element.passes_through);
        // The core's bound, and what the frequencies' float64 adds.
        const double bound =
            (10 * 0x1p-24 + 1e-11) *
            static_cast<double>(std::hypot(element.x, element.y));
        EXPECT_NEAR(element.actual, static_cast<double>(element.exact), bound)
            << "element " << element.index;
        return true;
      });
  EXPECT_EQ(visited, 48);
}

TEST_F(MoveTest, AShiftTurnsEveryKeyAsFar) {
  const v1::RepositionRequest request = GoodMove();
  v1::RepositionResponse response;
  const grpc::Status status = Call(&Stub::Reposition, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.k().values_size(), 0);
  ExpectTurned(request.k(), response.k(), [](std::int64_t) { return 1000.0L; });
}

TEST_F(MoveTest, TokensMoveEachByTheirOwnShift) {
  v1::RepositionRequest request = GoodMove();
  SetTensor<std::int32_t>(v1::DTYPE_INT32, {3}, {0, -7, 40},
                          request.mutable_movement()->mutable_shifts());
  v1::RepositionResponse response;
  const grpc::Status status = Call(&Stub::Reposition, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  const double shifts[] = {0, -7, 40};
  ExpectTurned(request.k(), response.k(),
               [&shifts](std::int64_t t) -> long double { return shifts[t]; });
}

TEST_F(MoveTest, KeysMoveFromOldPositionsToNewOnesOfAnotherRope) {
  v1::RepositionRequest request = GoodMove();
  *request.mutable_new_rope() = request.old_rope();
  request.mutable_new_rope()->mutable_spec()->mutable_linear()->set_factor(2);
  request.mutable_movement()->mutable_old_positions()->set_start(10);
  SetTensor<std::int32_t>(
      v1::DTYPE_INT32, {3}, {0, 5, 90},
      request.mutable_movement()->mutable_new_positions()->mutable_ids());
  v1::RepositionResponse response;
  const grpc::Status status = Call(&Stub::Reposition, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  const double to[] = {0, 5, 90};
  ExpectTurned(request.k(), response.k(), [&to](std::int64_t t) -> long double {
    return to[t] / 2 - static_cast<double>(10 + t);
  });
}

TEST_F(MoveTest, RepositionAnswersValuesWithValues) {
  v1::RepositionRequest request = GoodMove();
  v1::Tensor* const k = request.mutable_k();
  k->Clear();
  k->set_dtype(v1::DTYPE_FLOAT64);
  for (const int extent : {1, 1, 1, 2}) k->add_shape(extent);
  k->add_values(1);
  k->add_values(0);
  request.mutable_movement()->set_shift(1);
  v1::RepositionResponse response;
  const grpc::Status status = Call(&Stub::Reposition, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_TRUE(response.k().data().empty());
  ASSERT_EQ(response.k().values_size(), 2);
  EXPECT_NEAR(response.k().values(0), std::cos(1.0), 10 * 0x1p-53);
  EXPECT_NEAR(response.k().values(1), std::sin(1.0), 10 * 0x1p-53);
}

TEST_F(MoveTest, RepositionNamesFieldNumbersAndReason) {
  using R = v1::RepositionRequest;
  const auto ids = [](const std::vector<double>& ids, v1::Positions* to) {
    SetTensor(v1::DTYPE_FLOAT64, {static_cast<std::int64_t>(ids.size())}, ids,
              to->mutable_ids());
  };
  ExpectAll<R, v1::RepositionResponse>(
      GoodMove(),
      {
          {"NoOldRope",
           [](R& r) { r.clear_old_rope(); },
           kInvalid,
           "FIELD_REQUIRED",
           "old_rope",
           {}},
          {"OldRopeWithoutSource",
           [](R& r) { r.mutable_old_rope()->Clear(); },
           kInvalid,
           "FIELD_REQUIRED",
           "old_rope",
           {}},
          {"NewRopeWithoutSource",
           [](R& r) { r.mutable_new_rope(); },
           kInvalid,
           "FIELD_REQUIRED",
           "new_rope",
           {}},
          {"UnknownPreset",
           [](R& r) { r.mutable_new_rope()->set_preset("none"); },
           grpc::StatusCode::NOT_FOUND,
           "PRESET_UNKNOWN",
           "new_rope.preset",
           {"none"}},
          {"NoLayout",
           [](R& r) { r.clear_layout(); },
           kInvalid,
           "FIELD_REQUIRED",
           "layout",
           {}},
          {"NoKeys",
           [](R& r) { r.clear_k(); },
           kInvalid,
           "FIELD_REQUIRED",
           "k",
           {}},
          {"KeysWithoutBytes",
           [](R& r) { r.mutable_k()->clear_data(); },
           kInvalid,
           "FIELD_REQUIRED",
           "k.data",
           {}},
          {"NoMovement",
           [](R& r) { r.clear_movement(); },
           kInvalid,
           "FIELD_REQUIRED",
           "movement",
           {}},
          {"ShiftTooFar",
           [](R& r) {
             r.mutable_movement()->set_shift((std::int64_t{1} << 31) + 1);
           },
           kInvalid,
           "POSITION_OUT_OF_RANGE",
           "movement.shift",
           {"2147483649"}},
          {"ShiftsOfOtherTokens",
           [](R& r) {
             SetTensor<std::int32_t>(v1::DTYPE_INT32, {2}, {1, 2},
                                     r.mutable_movement()->mutable_shifts());
           },
           kInvalid,
           "SHAPE_MISMATCH",
           "movement.shifts.shape",
           {}},
          {"ShiftsWithoutDtype",
           [](R& r) { r.mutable_movement()->mutable_shifts(); },
           kInvalid,
           "FIELD_REQUIRED",
           "movement.shifts.dtype",
           {}},
          {"NewPositionsAlone",
           [](R& r) {
             r.mutable_movement()->mutable_new_positions()->set_start(0);
           },
           kInvalid,
           "FIELD_REQUIRED",
           "movement.old_positions",
           {}},
          {"NewPositionNan",
           [ids](R& r) {
             r.mutable_movement()->mutable_old_positions()->set_start(0);
             ids({0, 1, std::nan("")},
                 r.mutable_movement()->mutable_new_positions());
           },
           kInvalid,
           "POSITION_OUT_OF_RANGE",
           "movement.new_positions.ids",
           {"nan"},
           {{"index", "2"}}},
          {"OldPositionsOfOtherTokens",
           [ids](R& r) {
             ids({0, 1}, r.mutable_movement()->mutable_old_positions());
             r.mutable_movement()->mutable_new_positions()->set_start(0);
           },
           kInvalid,
           "SHAPE_MISMATCH",
           "movement.old_positions.ids.shape",
           {}},
          {"ShiftWithAnotherBase",
           [](R& r) {
             *r.mutable_new_rope() = r.old_rope();
             r.mutable_new_rope()->mutable_spec()->set_rope_theta(5e5);
           },
           kInvalid,
           "FIELD_REQUIRED",
           "movement.old_positions",
           {}},
          {"AnotherRotaryDim",
           [](R& r) {
             *r.mutable_new_rope() = r.old_rope();
             r.mutable_new_rope()->mutable_spec()->set_rotary_dim(4);
           },
           kInvalid,
           "NOT_REPOSITIONABLE",
           "new_rope",
           {"4", "8"}},
      },
      &Stub::Reposition);
}

// Two heads of four rows, one column; the row's number is its value.
v1::ConvertPairingRequest GoodConvert() {
  v1::ConvertPairingRequest request;
  request.set_old_pairing(v1::PAIRING_INTERLEAVED);
  request.set_new_pairing(v1::PAIRING_HALF_SPLIT);
  request.set_heads(2);
  SetTensor<double>(v1::DTYPE_FLOAT64, {8, 1}, {0, 1, 2, 3, 4, 5, 6, 7},
                    request.mutable_weight());
  return request;
}

TEST_F(MoveTest, ConvertPairingReordersTheRowsOfEachHead) {
  v1::ConvertPairingRequest request = GoodConvert();
  v1::ConvertPairingResponse response;
  const grpc::Status status = Call(&Stub::ConvertPairing, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_THAT(response.weight().shape(), ElementsAre(8, 1));
  EXPECT_THAT(Elements<double>(response.weight()),
              ElementsAre(0, 2, 1, 3, 4, 6, 5, 7));

  request.set_heads(1);
  request.set_rotary_dim(4);
  request.set_slice(v1::ROTARY_SLICE_TRAILING);
  ASSERT_TRUE(Call(&Stub::ConvertPairing, request, &response).ok());
  EXPECT_THAT(Elements<double>(response.weight()),
              ElementsAre(0, 1, 2, 3, 4, 6, 5, 7));
}

TEST_F(MoveTest, ConvertPairingNamesFieldNumbersAndReason) {
  using C = v1::ConvertPairingRequest;
  ExpectAll<C, v1::ConvertPairingResponse>(
      GoodConvert(),
      {
          {"NoOldPairing",
           [](C& c) { c.clear_old_pairing(); },
           kInvalid,
           "FIELD_REQUIRED",
           "old_pairing",
           {}},
          {"NoNewPairing",
           [](C& c) { c.clear_new_pairing(); },
           kInvalid,
           "FIELD_REQUIRED",
           "new_pairing",
           {}},
          {"PairingOfTomorrow",
           [](C& c) { c.set_new_pairing(static_cast<v1::Pairing>(3)); },
           kUnimplemented,
           "FIELD_UNKNOWN",
           "new_pairing",
           {"3"}},
          {"NoHeads",
           [](C& c) { c.clear_heads(); },
           kInvalid,
           "FIELD_REQUIRED",
           "heads",
           {}},
          {"NegativeHeads",
           [](C& c) { c.set_heads(-2); },
           kInvalid,
           "FIELD_INVALID",
           "heads",
           {"-2"}},
          {"RowsThatDoNotDivide",
           [](C& c) { c.set_heads(3); },
           kInvalid,
           "SHAPE_MISMATCH",
           "weight.shape",
           {"8", "3"}},
          {"OddRotaryDim",
           [](C& c) { c.set_rotary_dim(3); },
           kInvalid,
           "FIELD_INVALID",
           "rotary_dim",
           {"3"}},
          {"RotaryDimOverTheHead",
           [](C& c) { c.set_rotary_dim(6); },
           kInvalid,
           "FIELD_INVALID",
           "rotary_dim",
           {"6", "4"}},
          {"NoWeight",
           [](C& c) { c.clear_weight(); },
           kInvalid,
           "FIELD_REQUIRED",
           "weight",
           {}},
          {"WeightOfTheWrongSize",
           [](C& c) { c.mutable_weight()->set_data("1234"); },
           kInvalid,
           "TENSOR_SIZE_MISMATCH",
           "weight.data",
           {"4", "64"}},
      },
      &Stub::ConvertPairing);
}

v1::AnalyzeRopeRequest GoodAnalyze() {
  v1::AnalyzeRopeRequest request;
  request.mutable_rope()->mutable_spec()->set_pairing(v1::PAIRING_HALF_SPLIT);
  request.set_head_dim(8);
  request.set_max_distance(20);
  request.set_distance_step(5);
  request.set_trained_length(1000);
  return request;
}

TEST_F(MoveTest, AnalyzeRopeTellsWavelengthsDecayAndSimilarity) {
  v1::AnalyzeRopeResponse response;
  const grpc::Status status =
      Call(&Stub::AnalyzeRope, GoodAnalyze(), &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(response.wavelengths_size(), 4);
  int within = 0;
  for (int i = 0; i < 4; ++i) {
    const double wavelength = 2 * std::numbers::pi / Frequency(i, 8);
    EXPECT_NEAR(response.wavelengths(i), wavelength, 1e-14 * wavelength);
    within += wavelength <= 1000;
  }
  EXPECT_EQ(response.pairs_within_trained_length(), within);
  ASSERT_EQ(response.decay_size(), 5);
  ASSERT_EQ(response.similarity_size(), 5);
  for (int s = 0; s < 5; ++s) {
    std::complex<double> sum = 0;
    double decay = 0, similarity = 0;
    for (int i = 0; i < 4; ++i) {
      sum += std::polar(1.0, 5 * s * Frequency(i, 8));
      decay += std::abs(sum) / 4;
      similarity += std::cos(5 * s * Frequency(i, 8)) / 4;
    }
    EXPECT_NEAR(response.decay(s), decay, 1e-13) << s;
    EXPECT_NEAR(response.similarity(s), similarity, 1e-13) << s;
  }
}

TEST_F(MoveTest, AnalyzeRopeNamesFieldNumbersAndReason) {
  using A = v1::AnalyzeRopeRequest;
  ExpectAll<A, v1::AnalyzeRopeResponse>(
      GoodAnalyze(),
      {
          {"NoRope",
           [](A& a) { a.clear_rope(); },
           kInvalid,
           "FIELD_REQUIRED",
           "rope",
           {}},
          {"NegativeHeadDim",
           [](A& a) { a.set_head_dim(-1); },
           kInvalid,
           "FIELD_INVALID",
           "head_dim",
           {"-1"}},
          {"NoWidth",
           [](A& a) { a.clear_head_dim(); },
           kInvalid,
           "FIELD_REQUIRED",
           "rope.spec.rotary_dim",
           {}},
          {"NoPe",
           [](A& a) {
             a.mutable_rope()->mutable_spec()->Clear();
             a.mutable_rope()->mutable_spec()->set_nope(true);
           },
           kInvalid,
           "FIELD_INVALID",
           "rope",
           {}},
          {"TwoAxes",
           [](A& a) {
             v1::RotaryAxes* axes =
                 a.mutable_rope()->mutable_spec()->mutable_axes();
             axes->set_assignment(v1::RotaryAxes::ASSIGNMENT_SECTIONED);
             axes->add_sections(2);
             axes->add_sections(2);
           },
           kInvalid,
           "FIELD_INVALID",
           "rope",
           {"2"}},
          {"NegativeDistance",
           [](A& a) { a.set_max_distance(-1); },
           kInvalid,
           "FIELD_INVALID",
           "max_distance",
           {"-1"}},
          {"NegativeStep",
           [](A& a) { a.set_distance_step(-1); },
           kInvalid,
           "FIELD_INVALID",
           "distance_step",
           {"-1"}},
          {"TooManyDistances",
           [](A& a) {
             a.set_distance_step(1);
             a.set_max_distance(65536);
           },
           kInvalid,
           "FIELD_INVALID",
           "distance_step",
           {"65537", "65536"}},
          {"NegativeTrainedLength",
           [](A& a) { a.set_trained_length(-1); },
           kInvalid,
           "FIELD_INVALID",
           "trained_length",
           {"-1"}},
      },
      &Stub::AnalyzeRope);
}

}  // namespace
}  // namespace posenc::server
