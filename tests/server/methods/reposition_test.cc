// Reposition over a real connection; expected values in float64 from the
// formulas.

#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/fixtures/server_errors.h"

namespace posenc::server {
namespace {

using testing::ElementsAreArray;

using RepositionTest = ErrorTest;

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

// Every pair of token t turned by angle(t, pair), half-split.
template <typename Angle>
void ExpectTurned(const v1::Tensor& in, const v1::Tensor& out, Angle angle) {
  ASSERT_EQ(out.dtype(), v1::DTYPE_FLOAT32);
  EXPECT_THAT(out.shape(), ElementsAreArray(in.shape()));
  const std::vector<float> x = Elements<float>(in), y = Elements<float>(out);
  ASSERT_EQ(x.size(), y.size());
  for (int row = 0; row < 6; ++row) {
    for (int i = 0; i < 4; ++i) {
      const double phi = angle(row / 2, i);
      const double a = x[row * 8 + i], b = x[row * 8 + i + 4];
      // The core's bound, and what float64 adds.
      const double bound = (10 * 0x1p-24 + 1e-11) * std::hypot(a, b);
      EXPECT_NEAR(y[row * 8 + i], a * std::cos(phi) - b * std::sin(phi), bound);
      EXPECT_NEAR(y[row * 8 + i + 4], a * std::sin(phi) + b * std::cos(phi),
                  bound);
    }
  }
}

TEST_F(RepositionTest, AShiftTurnsEveryKeyAsFar) {
  const v1::RepositionRequest request = GoodMove();
  v1::RepositionResponse response;
  const grpc::Status status = Call(&Stub::Reposition, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.k().values_size(), 0);
  ExpectTurned(request.k(), response.k(),
               [](int, int i) { return 1000 * Frequency(i, 8); });
}

TEST_F(RepositionTest, TokensMoveEachByTheirOwnShift) {
  v1::RepositionRequest request = GoodMove();
  SetTensor<std::int32_t>(v1::DTYPE_INT32, {3}, {0, -7, 40},
                          request.mutable_movement()->mutable_shifts());
  v1::RepositionResponse response;
  const grpc::Status status = Call(&Stub::Reposition, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  const double shifts[] = {0, -7, 40};
  ExpectTurned(request.k(), response.k(),
               [&shifts](int t, int i) { return shifts[t] * Frequency(i, 8); });
}

TEST_F(RepositionTest, KeysMoveFromOldPositionsToNewOnesOfAnotherRope) {
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
  ExpectTurned(request.k(), response.k(), [&to](int t, int i) {
    return (to[t] / 2 - (10 + t)) * Frequency(i, 8);
  });
}

TEST_F(RepositionTest, RepositionAnswersValuesWithValues) {
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

TEST_F(RepositionTest, RepositionNamesFieldNumbersAndReason) {
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

}  // namespace
}  // namespace posenc::server
