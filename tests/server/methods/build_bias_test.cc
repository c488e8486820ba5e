// BuildBias: tiles, their sizes and order, and streams that end early.

#include <chrono>
#include <cmath>
#include <cstdint>
#include <string>
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
  std::vector<std::string> elements;  // bytes of each, [heads, queries, keys]
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
    const std::size_t size = tile.dtype() == v1::DTYPE_FLOAT64    ? 8
                             : tile.dtype() == v1::DTYPE_BFLOAT16 ? 2
                                                                  : 4;
    ASSERT_EQ(tile.shape(0), out->heads);
    ASSERT_LE(row + queries, out->queries);
    ASSERT_LE(column + keys, out->keys);
    ASSERT_EQ(tile.data().size(), out->heads * queries * keys * size);
    const char* from = tile.data().data();
    for (std::int64_t h = 0; h < out->heads; ++h) {
      for (std::int64_t i = 0; i < queries; ++i) {
        for (std::int64_t j = 0; j < keys; ++j, from += size) {
          out->elements[(h * out->queries + row + i) * out->keys + column + j]
              .assign(from, size);
        }
      }
    }
  }
};

template <typename T>
T As(const std::string& bytes) {
  T value{};
  EXPECT_EQ(bytes.size(), sizeof(T));
  if (bytes.size() == sizeof(T)) std::memcpy(&value, bytes.data(), sizeof(T));
  return value;
}

v1::BuildBiasRequest Range(std::int64_t queries, std::int64_t keys) {
  v1::BuildBiasRequest request;
  request.set_query_length(queries);
  request.set_key_length(keys);
  return request;
}

v1::BuildBiasRequest Alibi(std::int32_t heads, std::int64_t queries,
                           std::int64_t keys) {
  v1::BuildBiasRequest request = Range(queries, keys);
  request.mutable_bias()->mutable_alibi()->set_heads(heads);
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
        ASSERT_EQ(
            As<float>(
                matrix.elements[(h * matrix.queries + i) * matrix.keys + j]),
            -slope * std::abs(distance))
            << h << ", " << i << ", " << j;
      }
    }
  }
}

TEST_F(BiasTest, TilesOfTheAskedSizeMakeUpTheMatrix) {
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

// More than is computed between two checks of the caller.
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
  ServerOptions options;
  options.listen = {"127.0.0.1:0"};
  options.limits.max_response_bytes = 65536;
  Start(options);
  const v1::BuildBiasRequest request = Alibi(8, 128, 128);
  const Matrix matrix = Collect(request);
  EXPECT_GT(matrix.tile_bytes.size(), 8 * 128 * 128 * 4 / 65536u);
  ExpectAlibi(request, matrix);
}

// One request of each bias, [8, 11] and dtypes of several kinds.
std::vector<v1::BuildBiasRequest> OneOfEach() {
  std::vector<v1::BuildBiasRequest> out;
  const auto add = [&out]() -> v1::Bias* {
    out.push_back(Range(8, 11));
    out.back().set_query_start(3);
    return out.back().mutable_bias();
  };
  const auto ramp = [](std::vector<std::int64_t> shape, v1::Tensor* tensor) {
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count *= extent;
    std::vector<float> values(count);
    for (std::int64_t i = 0; i < count; ++i) {
      values[i] = 0.25f * static_cast<float>(i % 7) - 0.5f;
    }
    SetTensor(v1::DTYPE_FLOAT32, shape, values, tensor);
  };
  add()->mutable_alibi()->set_heads(3);
  out.back().set_causal(true);
  add()->mutable_t5();
  ramp({32, 2}, add()->mutable_t5()->mutable_weights());
  out.back().set_dtype(v1::DTYPE_BFLOAT16);
  v1::Kerple* kerple = add()->mutable_kerple();
  kerple->set_kernel(v1::Kerple::KERNEL_LOGARITHMIC);
  for (const double r : {0.5, 1.5}) {
    kerple->add_r1(r);
    kerple->add_r2(r + 1);
  }
  out.back().set_dtype(v1::DTYPE_FLOAT64);
  v1::Fire* fire = add()->mutable_fire();
  fire->set_c(0.1);
  fire->set_threshold(4);
  ramp({5, 1}, fire->mutable_w1());
  ramp({5}, fire->mutable_b1());
  ramp({2, 5}, fire->mutable_w2());
  ramp({2}, fire->mutable_b2());
  v1::Sandwich* sandwich = add()->mutable_sandwich();
  sandwich->set_heads(2);
  sandwich->set_dim(16);
  v1::ClippedDistance* clip = add()->mutable_relative_index()->mutable_clip();
  clip->set_left(3);
  clip->set_right(2);
  add()->mutable_relative_index()->mutable_deberta()->set_max_position(4);
  v1::GridIndex* grid = add()->mutable_relative_index()->mutable_grid();
  grid->add_extents(3);
  grid->add_extents(4);
  v1::UntiedPositions* untied = add()->mutable_untied_positions();
  untied->set_scale(0.125);
  ramp({2, 11, 3}, untied->mutable_position_queries());
  ramp({2, 11, 3}, untied->mutable_position_keys());
  return out;
}

TEST_F(BiasTest, EveryBiasIsTheSameInTilesAsInOne) {
  for (v1::BuildBiasRequest& request : OneOfEach()) {
    SCOPED_TRACE(request.bias().ShortDebugString());
    const Matrix whole = Collect(request);
    EXPECT_EQ(whole.tile_bytes.size(), 1u);
    request.set_query_tile(3);
    request.set_key_tile(4);
    const Matrix tiles = Collect(request);
    EXPECT_EQ(tiles.tile_bytes.size(), 9u);
    EXPECT_EQ(tiles.elements, whole.elements);
  }
}

TEST_F(BiasTest, IndicesAreInt32AndCausalBiasesMask) {
  v1::BuildBiasRequest request = Range(2, 3);
  v1::ClippedDistance* clip =
      request.mutable_bias()->mutable_relative_index()->mutable_clip();
  clip->set_left(1);
  clip->set_right(1);
  const Matrix indices = Collect(request);
  std::vector<std::int32_t> numbers;
  for (const std::string& bytes : indices.elements) {
    numbers.push_back(As<std::int32_t>(bytes));
  }
  EXPECT_THAT(numbers, ElementsAre(1, 2, 2, 0, 1, 2));  // clip(j - i) + 1

  request = Alibi(1, 2, 2);
  request.set_causal(true);
  const Matrix causal = Collect(request);
  EXPECT_EQ(As<float>(causal.elements[0]), 0);
  EXPECT_EQ(As<float>(causal.elements[1]), -INFINITY);
  EXPECT_EQ(As<float>(causal.elements[2]), -0x1p-8f);
  EXPECT_EQ(As<float>(causal.elements[3]), 0);
}

TEST_F(BiasTest, T5ReadsItsWeightsByBucket) {
  v1::BuildBiasRequest request = Range(1, 40);
  request.set_query_start(39);
  v1::T5Buckets* t5 = request.mutable_bias()->mutable_t5();
  std::vector<float> weights;
  for (int bucket = 0; bucket < 32; ++bucket) weights.push_back(bucket);
  SetTensor(v1::DTYPE_FLOAT32, {32, 1}, weights, t5->mutable_weights());
  const Matrix matrix = Collect(request);
  for (int j = 0; j < 40; ++j) {
    const int n = 39 - j;
    // No value of the logarithm is near an integer below 40.
    const int bucket =
        n < 16 ? n
               : 16 + static_cast<int>(std::log(n / 16.0) / std::log(8.0) * 16);
    EXPECT_EQ(As<float>(matrix.elements[j]), bucket) << "distance " << n;
  }
}

// A million queries and keys, 2^42 elements.
v1::BuildBiasRequest Huge() { return Alibi(4, 1 << 20, 1 << 20); }

TEST_F(BiasTest, CancellingAHugeBiasEndsItsCallAndTheServerGoesOn) {
  ServerOptions options;
  options.listen = {"127.0.0.1:0"};
  // Far longer than a test may take, so that a call that continues is noticed.
  options.drain_timeout = absl::Hours(1);
  Start(options);
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
  ServerOptions options;
  options.listen = {"127.0.0.1:0"};
  options.drain_timeout = absl::Milliseconds(20);
  Start(options);
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
