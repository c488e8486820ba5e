// BuildTable of absolute encodings, and AddEncoding; expected values in float64
// from the formulas.

#include <cmath>
#include <cstdint>
#include <numbers>
#include <string>
#include <vector>

#include "tests/fixtures/server_errors.h"

namespace posenc::server {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;

// Half an ulp of a float32 in [0.5, 1], and the error of float64 arithmetic on
// angles below 2^12.
constexpr double kTableError = 0x1p-25 + 1e-12;

class AbsoluteTest : public ServerTest {
 protected:
  std::vector<float> Rows(const v1::BuildTableRequest& request,
                          const std::vector<std::int64_t>& shape) {
    v1::BuildTableResponse response;
    const grpc::Status status = Table(request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_FALSE(response.has_cos());
    EXPECT_FALSE(response.has_sin());
    EXPECT_EQ(response.amplitude(), 0);
    EXPECT_EQ(response.table().dtype(), v1::DTYPE_FLOAT32);
    EXPECT_EQ(response.table().values_size(), 0);
    EXPECT_THAT(response.table().shape(), ElementsAreArray(shape));
    return Elements<float>(response.table());
  }
};

void ExpectNear(const std::vector<float>& actual,
                const std::vector<double>& expected, double error) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    EXPECT_NEAR(actual[i], expected[i], error) << "element " << i;
  }
}

// [4, 3]: row r is (r, r + 0.5, -r).
void SetRows(v1::Tensor* table) {
  std::vector<float> rows;
  for (int r = 0; r < 4; ++r) {
    for (const double x : {r + 0.0, r + 0.5, -r - 0.0}) rows.push_back(x);
  }
  SetTensor(v1::DTYPE_FLOAT32, {4, 3}, rows, table);
}

void SetIds(const std::vector<std::int32_t>& ids, v1::Positions* positions) {
  SetTensor(v1::DTYPE_INT32, {static_cast<std::int64_t>(ids.size())}, ids,
            positions->mutable_ids());
}

v1::BuildTableRequest Learned(const std::vector<std::int32_t>& ids) {
  v1::BuildTableRequest request;
  SetRows(request.mutable_absolute()->mutable_learned()->mutable_table());
  SetIds(ids, request.mutable_positions());
  return request;
}

v1::BuildTableRequest Grid() {
  v1::BuildTableRequest request;
  v1::SincosGrid* grid = request.mutable_absolute()->mutable_sincos_grid();
  grid->set_dim(8);
  grid->add_extents(2);
  grid->add_extents(3);
  return request;
}

TEST_F(AbsoluteTest, LearnedRowsComeInTheOrderOfTheIds) {
  EXPECT_THAT(Rows(Learned({3, 0, 3}), {3, 3}),
              ElementsAre(3, 3.5f, -3, 0, 0.5f, 0, 3, 3.5f, -3));
}

TEST_F(AbsoluteTest, LearnedRowsReachTheirSquareWithAlpha) {
  v1::BuildTableRequest request = Learned({1, 11});
  request.mutable_absolute()->mutable_learned()->set_hierarchical_alpha(0.4);
  // 11 = 2 * 4 + 3; u_i = (row_i - 0.4 row_0) / 0.6.
  std::vector<double> expected = {1, 1.5, -1};
  const double row0[] = {0, 0.5, 0}, row2[] = {2, 2.5, -2},
               row3[] = {3, 3.5, -3};
  for (int c = 0; c < 3; ++c) {
    expected.push_back(0.4 * (row2[c] - 0.4 * row0[c]) / 0.6 +
                       0.6 * (row3[c] - 0.4 * row0[c]) / 0.6);
  }
  // Half an ulp of float32 below 8.
  ExpectNear(Rows(request, {2, 3}), expected, 0x1p-22);
}

TEST_F(AbsoluteTest, AGridHasItsOwnRowsAfterItsClassTokens) {
  v1::BuildTableRequest request = Grid();
  request.mutable_absolute()->mutable_sincos_grid()->set_leading_zero_rows(1);
  std::vector<double> expected(8, 0);
  for (int h = 0; h < 2; ++h) {
    for (int w = 0; w < 3; ++w) {
      for (const double p : {h, w}) {
        for (const double f : {1.0, 0.01}) expected.push_back(std::sin(p * f));
        for (const double f : {1.0, 0.01}) expected.push_back(std::cos(p * f));
      }
    }
  }
  ExpectNear(Rows(request, {7, 8}), expected, kTableError);
  request.set_rows(7);
  ExpectNear(Rows(request, {7, 8}), expected, kTableError);
}

TEST_F(AbsoluteTest, TimestepsMayBeFractions) {
  v1::BuildTableRequest request;
  v1::Timestep* step = request.mutable_absolute()->mutable_timestep();
  step->set_dim(5);
  step->set_cos_first(true);
  step->set_downscale_freq_shift(1);
  step->set_scale(1000);
  SetTensor<double>(v1::DTYPE_FLOAT64, {2}, {0.25, 1},
                    request.mutable_positions()->mutable_ids());
  std::vector<double> expected;
  for (const double p : {250.0, 1000.0}) {
    // n - shift is 1: frequencies 1 and 1/10000.
    for (const double x : {std::cos(p), std::cos(p / 10000), std::sin(p),
                           std::sin(p / 10000), 0.0}) {
      expected.push_back(x);
    }
  }
  ExpectNear(Rows(request, {2, 5}), expected, kTableError);
}

v1::BuildTableRequest Fourier() {
  v1::BuildTableRequest request;
  SetTensor<double>(v1::DTYPE_FLOAT64, {2, 1}, {0.3, -1.1},
                    request.mutable_absolute()
                        ->mutable_fourier_features()
                        ->mutable_frequencies());
  SetTensor<double>(v1::DTYPE_FLOAT64, {2, 3}, {0, 1, 0.5, 2, -1, 0.25},
                    request.mutable_positions()->mutable_ids());
  return request;
}

TEST_F(AbsoluteTest, FourierFeaturesTakeIdsByAxis) {
  std::vector<double> expected;
  for (const auto& [x, y] :
       std::vector<std::pair<double, double>>{{0, 2}, {1, -1}, {0.5, 0.25}}) {
    const double phi = 2 * std::numbers::pi * (0.3 * x - 1.1 * y);
    expected.push_back(std::sin(phi));
    expected.push_back(std::cos(phi));
  }
  ExpectNear(Rows(Fourier(), {3, 2}), expected, kTableError);
}

v1::AddEncodingRequest GoodAdd() {
  v1::AddEncodingRequest request;
  SetRows(request.mutable_encoding()->mutable_learned()->mutable_table());
  request.mutable_positions()->set_start(1);
  SetTensor<float>(v1::DTYPE_FLOAT32, {1, 2, 3}, {10, 20, 30, 40, 50, 60},
                   request.mutable_x());
  return request;
}

TEST_F(AbsoluteTest, AddEncodingAddsToScaledEmbeddings) {
  v1::AddEncodingRequest request = GoodAdd();
  request.set_x_scale(2);
  v1::AddEncodingResponse response;
  const grpc::Status status = Call(&Stub::AddEncoding, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_THAT(response.x().shape(), ElementsAre(1, 2, 3));
  EXPECT_THAT(Elements<float>(response.x()),
              ElementsAre(21, 41.5f, 59, 82, 102.5f, 118));
}

TEST_F(AbsoluteTest, AddEncodingMultipliesByOnePlusTheRows) {
  v1::AddEncodingRequest request = GoodAdd();
  request.set_combination(v1::COMBINATION_MULTIPLY);
  v1::AddEncodingResponse response;
  ASSERT_TRUE(Call(&Stub::AddEncoding, request, &response).ok());
  EXPECT_THAT(Elements<float>(response.x()),
              ElementsAre(20, 50, 0, 120, 175, -60));
}

TEST_F(AbsoluteTest, AddEncodingAnswersValuesWithValues) {
  v1::AddEncodingRequest request = GoodAdd();
  request.set_combination(v1::COMBINATION_CONCATENATE);
  v1::Tensor* const x = request.mutable_x();
  x->Clear();
  x->set_dtype(v1::DTYPE_BFLOAT16);
  x->add_shape(2);
  x->add_shape(3);
  for (const double value : {1, 2, 3, 4, 5, 6}) x->add_values(value);
  v1::AddEncodingResponse response;
  const grpc::Status status = Call(&Stub::AddEncoding, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.x().dtype(), v1::DTYPE_BFLOAT16);
  EXPECT_THAT(response.x().shape(), ElementsAre(2, 6));
  EXPECT_TRUE(response.x().data().empty());
  EXPECT_THAT(response.x().values(),
              ElementsAre(1, 2, 3, 1, 1.5, -1, 4, 5, 6, 2, 2.5, -2));
}

TEST_F(AbsoluteTest, AddEncodingStartsAgainWithEachPackedSequence) {
  v1::AddEncodingRequest request = GoodAdd();
  v1::PackedSequences* packed = request.mutable_positions()->mutable_packed();
  for (const int end : {0, 1, 3}) packed->add_cu_seqlens(end);
  SetTensor<float>(v1::DTYPE_FLOAT32, {3, 3}, std::vector<float>(9, 0),
                   request.mutable_x());
  v1::AddEncodingResponse response;
  const grpc::Status status = Call(&Stub::AddEncoding, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_THAT(Elements<float>(response.x()),
              ElementsAre(0, 0.5f, 0, 0, 0.5f, 0, 1, 1.5f, -1));
}

}  // namespace
}  // namespace posenc::server
