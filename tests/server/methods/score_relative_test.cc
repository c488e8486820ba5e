// ScoreRelative over a real connection, against slow float64 sums.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/fixtures/server_errors.h"

namespace posenc::server {
namespace {

using testing::ElementsAre;

constexpr int kHeads = 2, kQueries = 3, kKeys = 4, kWidth = 2;

// Small multiples of 1/8: every product and sum below is exact in float32.
std::vector<float> Eighths(int n, int seed) {
  std::vector<float> out(n);
  for (int i = 0; i < n; ++i) {
    out[i] = static_cast<float>((i * 37 + seed * 11) % 17 - 8) / 8;
  }
  return out;
}

v1::ScoreRelativeRequest Content() {
  v1::ScoreRelativeRequest request;
  request.set_query_start(1);
  SetTensor(v1::DTYPE_FLOAT32, {1, kHeads, kQueries, kWidth},
            Eighths(kHeads * kQueries * kWidth, 1), request.mutable_q());
  SetTensor(v1::DTYPE_FLOAT32, {1, kHeads, kKeys, kWidth},
            Eighths(kHeads * kKeys * kWidth, 2), request.mutable_k());
  return request;
}

v1::ScoreRelativeRequest Shaw() {
  v1::ScoreRelativeRequest request = Content();
  SetTensor(v1::DTYPE_FLOAT32, {5, kWidth}, Eighths(5 * kWidth, 3),
            request.mutable_score()->mutable_shaw()->mutable_key_table());
  return request;
}

v1::ScoreRelativeRequest TransformerXl() {
  v1::ScoreRelativeRequest request = Content();
  v1::TransformerXlScore* xl =
      request.mutable_score()->mutable_transformer_xl();
  SetTensor(v1::DTYPE_FLOAT32, {kHeads, kWidth}, Eighths(kHeads * kWidth, 4),
            xl->mutable_u());
  SetTensor(v1::DTYPE_FLOAT32, {kHeads, kWidth}, Eighths(kHeads * kWidth, 5),
            xl->mutable_v());
  SetTensor(v1::DTYPE_FLOAT32, {kHeads, 4, kWidth},
            Eighths(kHeads * 4 * kWidth, 6), xl->mutable_r());
  return request;
}

v1::ScoreRelativeRequest Deberta() {
  v1::ScoreRelativeRequest request = Content();
  v1::DebertaScore* deberta = request.mutable_score()->mutable_deberta();
  deberta->mutable_buckets()->set_max_position(2);
  SetTensor(v1::DTYPE_FLOAT32, {kHeads, 4, kWidth},
            Eighths(kHeads * 4 * kWidth, 7), deberta->mutable_position_keys());
  SetTensor(v1::DTYPE_FLOAT32, {kHeads, 4, kWidth},
            Eighths(kHeads * 4 * kWidth, 8),
            deberta->mutable_position_queries());
  return request;
}

// Row `row` of a tensor whose last extent is kWidth.
struct Rows {
  explicit Rows(const v1::Tensor& tensor) : values(Elements<float>(tensor)) {}
  double at(int row, int d) const { return values[row * kWidth + d]; }
  std::vector<float> values;
};

class ScoreTest : public ServerTest {
 protected:
  // term(h, i, j, d): what channel d adds to the score of query i and key j;
  // i and j count from the start of q and k.
  void ExpectScores(const v1::ScoreRelativeRequest& request,
                    const std::function<double(int, int, int, int)>& term) {
    v1::ScoreRelativeResponse response;
    const grpc::Status status = Call(&Stub::ScoreRelative, request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(response.scores().dtype(), v1::DTYPE_FLOAT32);
    EXPECT_EQ(response.scores().values_size(), 0);
    EXPECT_THAT(response.scores().shape(),
                ElementsAre(1, kHeads, kQueries, kKeys));
    const std::vector<float> scores = Elements<float>(response.scores());
    ASSERT_EQ(scores.size(), std::size_t{kHeads * kQueries * kKeys});
    for (int h = 0; h < kHeads; ++h) {
      for (int i = 0; i < kQueries; ++i) {
        for (int j = 0; j < kKeys; ++j) {
          double sum = 0;
          for (int d = 0; d < kWidth; ++d) sum += term(h, i, j, d);
          EXPECT_EQ(scores[(h * kQueries + i) * kKeys + j], sum)
              << h << ", " << i << ", " << j;
        }
      }
    }
  }
};

TEST_F(ScoreTest, ShawAddsTheTableToTheKeys) {
  const v1::ScoreRelativeRequest request = Shaw();
  const Rows q(request.q()), k(request.k());
  const Rows a(request.score().shaw().key_table());
  ExpectScores(request, [&](int h, int i, int j, int d) {
    const int row = std::clamp(j - (i + 1), -2, 2) + 2;
    return q.at(h * kQueries + i, d) * (k.at(h * kKeys + j, d) + a.at(row, d));
  });
}

TEST_F(ScoreTest, TransformerXlMasksWhatComesAfterTheQuery) {
  const v1::ScoreRelativeRequest request = TransformerXl();
  const v1::TransformerXlScore& xl = request.score().transformer_xl();
  const Rows q(request.q()), k(request.k()), u(xl.u()), v(xl.v()), r(xl.r());
  ExpectScores(request, [&](int h, int i, int j, int d) {
    const int distance = i + 1 - j;
    if (distance < 0) return -static_cast<double>(INFINITY);
    const double query = q.at(h * kQueries + i, d);
    return (query + u.at(h, d)) * k.at(h * kKeys + j, d) +
           (query + v.at(h, d)) * r.at(h * 4 + 3 - distance, d);
  });
}

TEST_F(ScoreTest, DebertaReadsBothTablesAtOneIndex) {
  const v1::ScoreRelativeRequest request = Deberta();
  const v1::DebertaScore& deberta = request.score().deberta();
  const Rows q(request.q()), k(request.k());
  const Rows keys(deberta.position_keys());
  const Rows queries(deberta.position_queries());
  ExpectScores(request, [&](int h, int i, int j, int d) {
    const int x = std::clamp(i + 1 - j + 2, 0, 3);
    const double query = q.at(h * kQueries + i, d);
    const double key = k.at(h * kKeys + j, d);
    return query * key + query * keys.at(h * 4 + x, d) +
           key * queries.at(h * 4 + x, d);
  });
}

// More products than are computed between two checks of the caller.
TEST_F(ScoreTest, ScoresOfManyBlocksAreThoseOfEachQueryAlone) {
  constexpr int kLong = 700, kDim = 16;
  v1::ScoreRelativeRequest request;
  SetTensor(v1::DTYPE_FLOAT32, {5, kDim}, Eighths(5 * kDim, 3),
            request.mutable_score()->mutable_shaw()->mutable_key_table());
  const std::vector<float> q = Eighths(kLong * kDim, 1);
  SetTensor(v1::DTYPE_FLOAT32, {1, 1, kLong, kDim}, q, request.mutable_q());
  SetTensor(v1::DTYPE_FLOAT32, {1, 1, kLong, kDim}, Eighths(kLong * kDim, 2),
            request.mutable_k());
  v1::ScoreRelativeResponse whole;
  ASSERT_TRUE(Call(&Stub::ScoreRelative, request, &whole).ok());
  const std::size_t row_bytes = kLong * sizeof(float);
  for (const int row : {0, 1, 93, 94, 350, 699}) {
    SetTensor(v1::DTYPE_FLOAT32, {1, 1, 1, kDim},
              std::vector<float>(q.begin() + row * kDim,
                                 q.begin() + (row + 1) * kDim),
              request.mutable_q());
    request.set_query_start(row);
    v1::ScoreRelativeResponse alone;
    ASSERT_TRUE(Call(&Stub::ScoreRelative, request, &alone).ok());
    EXPECT_EQ(alone.scores().data(),
              whole.scores().data().substr(row * row_bytes, row_bytes))
        << "row " << row;
  }
}

TEST_F(ScoreTest, ScoresAreOfTheAskedDtypeAndDefaultToFloat64WhereQIs) {
  v1::ScoreRelativeRequest request = Shaw();
  request.set_dtype(v1::DTYPE_BFLOAT16);
  v1::ScoreRelativeResponse response;
  ASSERT_TRUE(Call(&Stub::ScoreRelative, request, &response).ok());
  EXPECT_EQ(response.scores().dtype(), v1::DTYPE_BFLOAT16);
  request.clear_dtype();
  for (v1::Tensor* tensor : {request.mutable_q(), request.mutable_k()}) {
    const std::vector<float> narrow = Elements<float>(*tensor);
    const std::vector<std::int64_t> shape(tensor->shape().begin(),
                                          tensor->shape().end());
    SetTensor(v1::DTYPE_FLOAT64, shape,
              std::vector<double>(narrow.begin(), narrow.end()), tensor);
  }
  ASSERT_TRUE(Call(&Stub::ScoreRelative, request, &response).ok());
  EXPECT_EQ(response.scores().dtype(), v1::DTYPE_FLOAT64);
}

TEST_F(ScoreTest, NoQueriesHaveNoScores) {
  v1::ScoreRelativeRequest request = Shaw();
  SetTensor<float>(v1::DTYPE_FLOAT32, {1, kHeads, 0, kWidth}, {},
                   request.mutable_q());
  v1::ScoreRelativeResponse response;
  const grpc::Status status = Call(&Stub::ScoreRelative, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_THAT(response.scores().shape(), ElementsAre(1, kHeads, 0, kKeys));
}

}  // namespace
}  // namespace posenc::server
