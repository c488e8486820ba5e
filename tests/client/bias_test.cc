// The client's BuildBias against a scripted service: deadlines, connections,
// and the places of its tiles.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "posenc/client.h"
#include "tests/fixtures/client.h"

namespace posenc {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kHeads = 2, kQueries = 5, kKeys = 7;

// An element whose value is its index.
float Element(std::int64_t head, std::int64_t query, std::int64_t key) {
  return static_cast<float>((head * 1000 + query) * 1000 + key);
}

v1::BuildBiasResponse Tile(std::int64_t query, std::int64_t queries,
                           std::int64_t key, std::int64_t keys) {
  v1::BuildBiasResponse response;
  response.set_query_start(query);
  response.set_key_start(key);
  v1::Tensor* const tile = response.mutable_tile();
  tile->set_dtype(v1::DTYPE_FLOAT32);
  for (const std::int64_t extent : {kHeads, queries, keys}) {
    tile->add_shape(extent);
  }
  for (std::int64_t h = 0; h < kHeads; ++h) {
    for (std::int64_t i = query; i < query + queries; ++i) {
      for (std::int64_t j = key; j < key + keys; ++j) {
        const float element = Element(h, i, j);
        tile->mutable_data()->append(reinterpret_cast<const char*>(&element),
                                     sizeof(element));
      }
    }
  }
  return response;
}

// Returns the tiles of a matrix [5, 7], of [2, 4] at most, in row-major order.
std::vector<v1::BuildBiasResponse> AllTiles() {
  return {Tile(0, 2, 0, 4), Tile(0, 2, 4, 3), Tile(2, 2, 0, 4),
          Tile(2, 2, 4, 3), Tile(4, 1, 0, 4), Tile(4, 1, 4, 3)};
}

v1::BuildBiasRequest Request() {
  v1::BuildBiasRequest request;
  request.mutable_bias()->mutable_alibi()->set_heads(kHeads);
  request.set_query_length(kQueries);
  request.set_key_length(kKeys);
  return request;
}

class BiasService : public v1::PositionalEncodingService::Service {
 public:
  grpc::Status GetServerInfo(grpc::ServerContext* context,
                             const v1::GetServerInfoRequest*,
                             v1::GetServerInfoResponse*) override {
    info_peer.Set(context->peer());
    return grpc::Status::OK;
  }

  grpc::Status BuildBias(
      grpc::ServerContext* context, const v1::BuildBiasRequest* request,
      grpc::ServerWriter<v1::BuildBiasResponse>* writer) override {
    std::vector<v1::BuildBiasResponse> tiles = answer.Get();
    bias_peer.Set(context->peer());
    deadline.Set(absl::FromChrono(context->deadline()));
    request_bytes.Set(absl::StrCat(request->ByteSizeLong()));
    announced.Set(MetadataOf(*context, "posenc-message-bytes"));
    if (!tiles.empty()) {
      for (const std::int64_t extent :
           {std::max<std::int64_t>(request->bias().alibi().heads(), 1),
            request->query_length(), request->key_length()}) {
        tiles[0].add_whole_shape(extent);
      }
    }
    for (const v1::BuildBiasResponse& tile : tiles) {
      if (!writer->Write(tile)) break;
    }
    if (hold) release.WaitForNotification();
    return grpc::Status::OK;
  }

  // The tiles of later calls. A call that the client has given up may still
  // write earlier tiles.
  Guarded<std::vector<v1::BuildBiasResponse>> answer{AllTiles()};

  // Set before the calls.
  bool hold = false;  // calls wait after their tiles until `release`
  absl::Notification release;

  // These are from the last call.
  Guarded<std::string> info_peer, bias_peer, announced, request_bytes;
  Guarded<absl::Time> deadline;
};

using BiasTest = ServiceTest<BiasService>;

void ExpectWhole(const absl::StatusOr<TensorResult>& bias) {
  ASSERT_TRUE(bias.ok()) << bias.status();
  EXPECT_EQ(bias->tensor.dtype, v1::DTYPE_FLOAT32);
  EXPECT_EQ(bias->tensor.shape,
            (std::vector<std::int64_t>{kHeads, kQueries, kKeys}));
  EXPECT_EQ(AsString(bias->tensor.bytes),
            Tile(0, kQueries, 0, kKeys).tile().data());
}

TEST_F(BiasTest, TheStreamAsAWholeHasNoDeadlineUnlessTheCallSetsOne) {
  const Client client = Client::Connect(options_);

  ExpectWhole(client.BuildBias(Request()));
  EXPECT_GT(service_.deadline.Get(), absl::Now() + absl::Hours(1));

  CallOptions call;
  call.timeout = absl::Minutes(10);
  ExpectWhole(client.BuildBias(Request(), call));
  EXPECT_LT(service_.deadline.Get(), absl::Now() + absl::Hours(1));
}

TEST_F(BiasTest, ABiasWithoutProgressIsCancelled) {
  service_.hold = true;
  std::vector<v1::BuildBiasResponse> two = AllTiles();
  two.resize(2);
  service_.answer.Set(two);
  // Enough for the first two tiles on a busy machine.
  options_.timeout = absl::Seconds(3);
  const Client client = Client::Connect(options_);
  int tiles = 0;

  const absl::Status status =
      client.BuildBias(Request(), [&](const BiasTile&) { return ++tiles > 0; });
  service_.release.Notify();

  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(
      status.message(),
      options_.target +
          ": the stream stood still for 3s after 2 responses; the timeout is "
          "over: is the server there, or must the timeout be longer?");
  EXPECT_EQ(tiles, 2);
}

TEST_F(BiasTest, TilesComeOverABulkConnection) {
  const Client client = Client::Connect(options_);
  ASSERT_TRUE(client.GetServerInfo().ok());
  ExpectWhole(client.BuildBias(Request()));
  EXPECT_NE(service_.bias_peer.Get(), service_.info_peer.Get());
}

TEST_F(BiasTest, AnnouncesTheExactSizeOfTheRequest) {
  const Client client = Client::Connect(options_);
  ExpectWhole(client.BuildBias(Request()));
  EXPECT_EQ(service_.announced.Get(), service_.request_bytes.Get());
}

TEST_F(BiasTest, TheCollectedTensorLiesAligned) {
  const Client client = Client::Connect(options_);
  std::vector<TensorResult> biases;
  for (int i = 0; i < 8; ++i) {
    absl::StatusOr<TensorResult> bias = client.BuildBias(Request());
    ExpectWhole(bias);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(bias->tensor.bytes.data()) % 64,
              0u);
    biases.push_back(*std::move(bias));
  }
}

// A tile of megabytes arrives in many slices.
TEST_F(BiasTest, LargeTilesAreWholeAndMayBeReadAsTheirElements) {
  constexpr std::int64_t kLong = 700;
  const std::vector<v1::BuildBiasResponse> large = {Tile(0, kLong, 0, kLong),
                                                    Tile(kLong, 1, 0, kLong)};
  service_.answer.Set(large);
  v1::BuildBiasRequest request = Request();
  request.set_query_length(kLong + 1);
  request.set_key_length(kLong);
  const Client client = Client::Connect(options_);

  std::size_t seen = 0;
  const absl::Status status =
      client.BuildBias(request, [&](const BiasTile& tile) {
        const v1::BuildBiasResponse& sent = large[seen++];
        EXPECT_EQ(tile.query_start, sent.query_start());
        EXPECT_EQ(tile.tensor.shape,
                  std::vector<std::int64_t>(sent.tile().shape().begin(),
                                            sent.tile().shape().end()));
        EXPECT_TRUE(AsString(tile.tensor.bytes) == sent.tile().data());
        EXPECT_EQ(
            reinterpret_cast<std::uintptr_t>(tile.tensor.bytes.data()) % 8, 0u);
        return true;
      });
  const absl::StatusOr<TensorResult> bias = client.BuildBias(request);

  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(seen, 2u);
  ASSERT_TRUE(bias.ok()) << bias.status();
  EXPECT_TRUE(AsString(bias->tensor.bytes) ==
              Tile(0, kLong + 1, 0, kLong).tile().data());
}

TEST_F(BiasTest, TilesMissingTwiceOrOutOfOrderAreInternal) {
  const Client client = Client::Connect(options_);
  const auto tiles = AllTiles();
  const std::vector<std::vector<v1::BuildBiasResponse>> wrong = {
      {tiles[0]},
      {tiles[0], tiles[1], tiles[2], tiles[3], tiles[4]},
      // The right number of elements, but not all of them.
      {tiles[0], tiles[0], tiles[1], tiles[1], tiles[4], tiles[5]},
      {tiles[2], tiles[3], tiles[0], tiles[1], tiles[4], tiles[5]},
      {tiles[0], Tile(0, 1, 4, 3), Tile(1, 1, 4, 3), tiles[2], tiles[3],
       tiles[4], tiles[5]},
      {tiles[0], tiles[1], tiles[2], tiles[3], tiles[4], tiles[5], tiles[5]}};
  for (std::size_t i = 0; i < wrong.size(); ++i) {
    service_.answer.Set(wrong[i]);
    EXPECT_EQ(client.BuildBias(Request()).status().code(),
              absl::StatusCode::kInternal)
        << i;
  }
}

v1::BuildBiasResponse TileOf(std::int64_t query, std::int64_t key,
                             const std::vector<std::int64_t>& shape,
                             std::size_t bytes,
                             v1::Dtype dtype = v1::DTYPE_FLOAT32) {
  v1::BuildBiasResponse response;
  response.set_query_start(query);
  response.set_key_start(key);
  response.mutable_tile()->set_dtype(dtype);
  response.mutable_tile()->mutable_shape()->Add(shape.begin(), shape.end());
  response.mutable_tile()->set_data(std::string(bytes, 'x'));
  return response;
}

TEST_F(BiasTest, TilesThatDoNotFitAreErrorsAndNeverWritten) {
  const Client client = Client::Connect(options_);
  v1::BuildBiasRequest request;
  request.set_query_length(2);
  request.set_key_length(3);

  service_.answer.Set({TileOf(0, 0, {1, 2, 3}, 24)});
  EXPECT_TRUE(client.BuildBias(request).ok());
  v1::BuildBiasResponse another = TileOf(1, 0, {1, 1, 3}, 12);
  for (const std::int64_t extent : {1, 2, 3}) another.add_whole_shape(extent);
  const std::vector<std::vector<v1::BuildBiasResponse>> wrong = {
      {TileOf(1, 0, {1, 2, 3}, 24)},   // past the last query
      {TileOf(0, -1, {1, 2, 3}, 24)},  // before the first key
      {TileOf(0, 0, {1, 2, 4}, 32)},   // too wide
      {TileOf(0, 0, {2, 3}, 24)},      // no heads
      {TileOf(0, 0, {1, 2, 3}, 20)},   // bytes missing
      {TileOf(0, 0, {1, 2, 3}, 0)},
      {TileOf(0, 0, {std::int64_t{1} << 62, 2, 3}, 24)},
      {TileOf(0, 0, {0, 2, 3}, 0)},
      {TileOf(0, 0, {1, 1, 3}, 12)},           // the second row missing
      {TileOf(0, 0, {1, 1, 3}, 12), another},  // a second shape of the whole
      // Another head, and another type.
      {TileOf(0, 0, {1, 1, 3}, 12), TileOf(1, 0, {2, 1, 3}, 24)},
      {TileOf(0, 0, {1, 1, 3}, 12),
       TileOf(1, 0, {1, 1, 3}, 6, v1::DTYPE_FLOAT16)}};
  for (std::size_t i = 0; i < wrong.size(); ++i) {
    service_.answer.Set(wrong[i]);
    EXPECT_EQ(client.BuildBias(request).status().code(),
              absl::StatusCode::kInternal)
        << i;
  }
}

}  // namespace
}  // namespace posenc
