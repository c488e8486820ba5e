// Reposition over a real connection. Expected values come from the formula,
// with frequencies in float64.

#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "client/check/rotated_heads.h"
#include "tests/fixtures/server_errors.h"

namespace posenc::server {
namespace {

using testing::ElementsAreArray;

using RepositionTest = ServerTest;

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

// Keys [1, 3, 2, 8] at 10, 11, 12, shifted by 1000.
v1::RepositionRequest GoodMove() {
  v1::RepositionRequest request;
  request.mutable_old_rope()->mutable_spec()->set_pairing(
      v1::PAIRING_HALF_SPLIT);
  request.mutable_movement()->set_shift(1000);
  request.set_layout(v1::LAYOUT_BSHD);
  SetTensor(v1::DTYPE_FLOAT32, {1, 3, 2, 8}, Samples(48), request.mutable_k());
  return request;
}

// Expects every key of token t to be rotated, half-split, by the angles of
// movement(t).
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
        // Core's bound, and the error of float64 frequencies.
        const double bound =
            (10 * 0x1p-24 + 1e-11) *
            static_cast<double>(std::hypot(element.x, element.y));
        EXPECT_NEAR(element.actual, static_cast<double>(element.exact), bound)
            << "element " << element.index;
        return true;
      });
  EXPECT_EQ(visited, 48);
}

TEST_F(RepositionTest, AShiftTurnsEveryKeyAsFar) {
  const v1::RepositionRequest request = GoodMove();
  v1::RepositionResponse response;
  const grpc::Status status = Call(&Stub::Reposition, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.k().values_size(), 0);
  ExpectTurned(request.k(), response.k(), [](std::int64_t) { return 1000.0L; });
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
               [&shifts](std::int64_t t) -> long double { return shifts[t]; });
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
  ExpectTurned(request.k(), response.k(), [&to](std::int64_t t) -> long double {
    return to[t] / 2 - static_cast<double>(10 + t);
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

}  // namespace
}  // namespace posenc::server
