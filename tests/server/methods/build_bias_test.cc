// BuildBias: tiles, their sizes and order, and streams that end early.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <tuple>
#include <vector>

#include "tests/fixtures/server_errors.h"

namespace posenc::server {
namespace {

using testing::ElementsAre;

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

// The joined tiles of an answer.
struct Matrix {
  std::int64_t heads = 0, queries = 0, keys = 0;
  std::vector<float> elements;  // [heads, queries, keys]
  std::vector<std::int64_t> tile_bytes;
};

class BiasTest : public ServerTest {
 protected:
  std::vector<std::int64_t> TileBytes(const v1::BuildBiasRequest& request) {
    std::vector<std::int64_t> out;
    grpc::ClientContext context;
    context.set_deadline(Deadline());
    const auto reader = stub_->BuildBias(&context, request);
    v1::BuildBiasResponse response;
    while (reader->Read(&response)) {
      out.push_back(response.tile().data().size());
    }
    EXPECT_TRUE(reader->Finish().ok());
    return out;
  }

  // Tiles must come in row-major order and cover the range once.
  Matrix Collect(const v1::BuildBiasRequest& request) {
    Matrix out;
    out.queries = request.query_length();
    out.keys = request.key_length();
    grpc::ClientContext context;
    context.set_deadline(Deadline());
    const auto reader = stub_->BuildBias(&context, request);
    v1::BuildBiasResponse response;
    std::int64_t row = 0, column = 0;
    while (reader->Read(&response)) {
      const v1::Tensor& tile = response.tile();
      EXPECT_EQ(tile.values_size(), 0);
      if (tile.shape_size() != 3) {
        ADD_FAILURE() << "a tile of rank " << tile.shape_size();
        break;
      }
      if (out.heads == 0) {
        out.heads = tile.shape(0);
        out.elements.resize(out.heads * out.queries * out.keys);
      }
      EXPECT_EQ(response.query_start(), request.query_start() + row);
      EXPECT_EQ(response.key_start(), request.key_start() + column);
      Place(tile, row, column, &out);
      out.tile_bytes.push_back(tile.data().size());
      column += tile.shape(2);
      if (column == out.keys) {
        column = 0;
        row += tile.shape(1);
      }
    }
    const grpc::Status status = reader->Finish();
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(row, out.queries);
    EXPECT_EQ(column, 0);
    return out;
  }

 private:
  void Place(const v1::Tensor& tile, std::int64_t row, std::int64_t column,
             Matrix* out) {
    const std::int64_t queries = tile.shape(1), keys = tile.shape(2);
    EXPECT_EQ(tile.dtype(), v1::DTYPE_FLOAT32);
    ASSERT_EQ(tile.shape(0), out->heads);
    ASSERT_LE(row + queries, out->queries);
    ASSERT_LE(column + keys, out->keys);
    const std::vector<float> elements = Elements<float>(tile);
    ASSERT_EQ(elements.size(),
              static_cast<std::size_t>(out->heads * queries * keys));
    auto from = elements.begin();
    for (std::int64_t h = 0; h < out->heads; ++h) {
      for (std::int64_t i = 0; i < queries; ++i) {
        std::copy_n(from, keys,
                    out->elements.begin() +
                        (h * out->queries + row + i) * out->keys + column);
        from += keys;
      }
    }
  }
};

v1::BuildBiasRequest Alibi(std::int32_t heads, std::int64_t queries,
                           std::int64_t keys) {
  v1::BuildBiasRequest request;
  request.mutable_bias()->mutable_alibi()->set_heads(heads);
  request.set_query_length(queries);
  request.set_key_length(keys);
  return request;
}

// -slope |i - j| with the slopes of a power of two heads; each factor is a
// power of two or an integer, so float32 is exact.
void ExpectAlibi(const v1::BuildBiasRequest& request, const Matrix& matrix) {
  const std::int64_t heads = request.bias().alibi().heads();
  ASSERT_EQ(matrix.heads, heads);
  for (std::int64_t h = 0; h < heads; ++h) {
    const double slope = std::exp2(-8.0 * (h + 1) / heads);
    for (std::int64_t i = 0; i < matrix.queries; ++i) {
      for (std::int64_t j = 0; j < matrix.keys; ++j) {
        const std::int64_t distance =
            request.query_start() + i - request.key_start() - j;
        ASSERT_EQ(matrix.elements[(h * matrix.queries + i) * matrix.keys + j],
                  -slope * std::abs(distance))
            << h << ", " << i << ", " << j;
      }
    }
  }
}

TEST_F(BiasTest, TilesOfTheRequestedSizeFormTheMatrix) {
  v1::BuildBiasRequest request = Alibi(4, 10, 13);
  request.set_query_start(500);
  request.set_key_start(493);
  request.set_query_tile(3);
  request.set_key_tile(5);
  const Matrix matrix = Collect(request);
  EXPECT_EQ(matrix.tile_bytes.size(), 12u);
  ExpectAlibi(request, matrix);
}

TEST_F(BiasTest, ATileLargerThanTheRangeIsTheRange) {
  v1::BuildBiasRequest request = Alibi(2, 7, 9);
  request.set_query_tile(std::int64_t{1} << 62);
  request.set_key_tile(std::int64_t{1} << 62);
  const Matrix matrix = Collect(request);
  EXPECT_THAT(matrix.tile_bytes, ElementsAre(2 * 7 * 9 * 4));
  ExpectAlibi(request, matrix);
}

// The tile has more elements than the server computes between two checks
// whether the call has ended.
TEST_F(BiasTest, ALargeTileIsTheSameAsSmallOnes) {
  v1::BuildBiasRequest request = Alibi(8, 150, 201);
  request.set_query_tile(150);
  request.set_key_tile(201);
  const Matrix matrix = Collect(request);
  EXPECT_EQ(matrix.tile_bytes.size(), 1u);
  ExpectAlibi(request, matrix);
}

TEST_F(BiasTest, TilesThatTheServerChoosesAreOneToFourMiB) {
  for (const auto& [heads, queries, keys] :
       std::vector<std::tuple<int, std::int64_t, std::int64_t>>{
           {4, 1025, 1500}, {32, 1, 1 << 18}, {16, 1 << 17, 1}}) {
    const std::vector<std::int64_t> tiles =
        TileBytes(Alibi(heads, queries, keys));
    ASSERT_GT(tiles.size(), 1u);
    std::int64_t total = 0;
    for (const std::int64_t bytes : tiles) {
      EXPECT_GE(bytes, kMiB);
      EXPECT_LE(bytes, 4 * kMiB);
      total += bytes;
    }
    EXPECT_EQ(total, heads * queries * keys * 4);
  }
}

TEST_F(BiasTest, OneTileExtentIsEnough) {
  v1::BuildBiasRequest request = Alibi(1, 50, 60);
  request.set_query_tile(20);
  EXPECT_THAT(Collect(request).tile_bytes,
              ElementsAre(20 * 60 * 4, 20 * 60 * 4, 10 * 60 * 4));
  request.clear_query_tile();
  request.set_key_tile(40);
  EXPECT_THAT(Collect(request).tile_bytes,
              ElementsAre(50 * 40 * 4, 50 * 20 * 4));
}

TEST_F(BiasTest, ChosenTilesKeepToASmallerLimit) {
  Start({.limits = {.max_response_bytes = 65536}});
  const v1::BuildBiasRequest request = Alibi(8, 128, 128);
  const Matrix matrix = Collect(request);
  EXPECT_GT(matrix.tile_bytes.size(), 8 * 128 * 128 * 4 / 65536u);
  ExpectAlibi(request, matrix);
}

// A million queries and keys, 2^42 elements.
v1::BuildBiasRequest Huge() { return Alibi(4, 1 << 20, 1 << 20); }

TEST_F(BiasTest, CancellingAHugeBiasEndsItsCallAndTheServerGoesOn) {
  // Far longer than a test may take, so that a call that continues is noticed.
  Start({.drain_timeout = absl::Hours(1)});
  // Tiles of the server's size, and tiles of several blocks.
  for (const std::int64_t tile : {0, 1000}) {
    v1::BuildBiasRequest request = Huge();
    request.set_query_tile(tile);
    request.set_key_tile(tile);
    grpc::ClientContext context;
    context.set_deadline(Deadline());
    const auto reader = stub_->BuildBias(&context, request);
    v1::BuildBiasResponse response;
    ASSERT_TRUE(reader->Read(&response));
    EXPECT_EQ(response.tile().shape(0), 4);
    context.TryCancel();
    while (reader->Read(&response)) {
    }
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
    ExpectAlibi(Alibi(2, 3, 3), Collect(Alibi(2, 3, 3)));
  }
  server_->Drain();  // waits for calls in progress
}

TEST_F(BiasTest, ADeadlineEndsAHugeBias) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::milliseconds(200));
  const auto reader = stub_->BuildBias(&context, Huge());
  v1::BuildBiasResponse response;
  while (reader->Read(&response)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
}

TEST_F(BiasTest, DrainCutsAHugeBiasThatOutlastsIt) {
  Start({.drain_timeout = absl::Milliseconds(20)});
  grpc::ClientContext context;
  context.set_deadline(Deadline());
  const auto reader = stub_->BuildBias(&context, Huge());
  v1::BuildBiasResponse response;
  ASSERT_TRUE(reader->Read(&response));
  server_->Drain();
  while (reader->Read(&response)) {
  }
  EXPECT_FALSE(reader->Finish().ok());
}

}  // namespace
}  // namespace posenc::server
