// Every method of the client that takes or gives more than a message, against
// the server in this process. What the numbers mean is tested in core; here,
// that they arrive, from the formulas of posenc.v1.

#include <sys/mman.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <numbers>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "posenc/client.h"
#include "server/server.h"
#include "tests/fixtures/tensor_bytes.h"

namespace posenc {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

template <typename T>
std::vector<T> Elements(const TensorView& view) {
  std::vector<T> elements(view.bytes.size() / sizeof(T));
  std::memcpy(elements.data(), view.bytes.data(), view.bytes.size());
  return elements;
}

v1::RopeSource Spec(int rotary_dim, double theta) {
  v1::RopeSource source;
  source.mutable_spec()->set_rotary_dim(rotary_dim);
  source.mutable_spec()->set_rope_theta(theta);
  source.mutable_spec()->set_pairing(v1::PAIRING_INTERLEAVED);
  return source;
}

class ClientRpcsTest : public testing::Test {
 protected:
  static absl::StatusOr<std::unique_ptr<server::Server>> Start() {
    return server::Server::Start(server::ServerOptions());
  }

  absl::StatusOr<std::unique_ptr<server::Server>> server_ = Start();
  Client client_{(*server_)->InProcessChannel()};
};

// Two heads: slopes 2^-4 and 2^-8, exact in float32.
v1::BuildBiasRequest AlibiRequest() {
  v1::BuildBiasRequest request;
  request.mutable_bias()->mutable_alibi()->set_heads(2);
  request.set_query_start(3);
  request.set_query_length(5);
  request.set_key_start(1);
  request.set_key_length(7);
  request.set_query_tile(2);
  request.set_key_tile(3);
  return request;
}

float Alibi(int head, std::int64_t i, std::int64_t j) {
  return std::ldexp(-static_cast<float>(std::abs(i - j)), -4 * (head + 1));
}

TEST_F(ClientRpcsTest, BuildBiasCallsBackForEveryTileInRowMajorOrder) {
  std::vector<std::pair<std::int64_t, std::int64_t>> starts;
  const absl::Status status =
      client_.BuildBias(AlibiRequest(), [&](const BiasTile& tile) {
        starts.emplace_back(tile.query_start, tile.key_start);
        const std::int64_t queries = tile.tensor.shape[1];
        const std::int64_t keys = tile.tensor.shape[2];
        const std::vector<float> values = Elements<float>(tile.tensor);
        EXPECT_EQ(values.size(), 2u * queries * keys);
        for (std::size_t n = 0; n < values.size(); ++n) {
          const int h = static_cast<int>(n / (queries * keys));
          const std::int64_t i = tile.query_start + n / keys % queries;
          const std::int64_t j = tile.key_start + n % keys;
          EXPECT_EQ(values[n], Alibi(h, i, j));
        }
        return true;
      });
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(starts,
              ElementsAre(std::pair(3, 1), std::pair(3, 4), std::pair(3, 7),
                          std::pair(5, 1), std::pair(5, 4), std::pair(5, 7),
                          std::pair(7, 1), std::pair(7, 4), std::pair(7, 7)));
}

TEST_F(ClientRpcsTest, BuildBiasCollectsItsTilesIntoOneTensor) {
  const absl::StatusOr<TensorResult> bias = client_.BuildBias(AlibiRequest());
  ASSERT_TRUE(bias.ok()) << bias.status();
  EXPECT_EQ(bias->tensor.dtype, v1::DTYPE_FLOAT32);
  EXPECT_THAT(bias->tensor.shape, ElementsAre(2, 5, 7));
  const std::vector<float> values = Elements<float>(bias->tensor);
  ASSERT_EQ(values.size(), 70u);
  for (int n = 0; n < 70; ++n) {
    EXPECT_EQ(values[n], Alibi(n / 35, 3 + n / 7 % 5, 1 + n % 7)) << n;
  }
}

TEST_F(ClientRpcsTest, BuildBiasEndsWhereTheCallerWantsNoMore) {
  v1::BuildBiasRequest request = AlibiRequest();
  request.set_query_length(1 << 14);
  request.set_key_length(1 << 14);
  request.set_query_tile(64);
  int tiles = 0;
  const absl::Status status =
      client_.BuildBias(request, [&](const BiasTile&) { return ++tiles < 3; });
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(tiles, 3);
}

TEST_F(ClientRpcsTest, BuildBiasPassesTheServersErrorOn) {
  v1::BuildBiasRequest request = AlibiRequest();
  request.mutable_bias()->mutable_alibi()->set_heads(0);
  CallOptions options;
  options.request_id = "the same";
  bool called = false;
  const absl::Status status = client_.BuildBias(
      request, [&](const BiasTile&) { return called = true; }, options);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("bias.alibi.heads"));
  EXPECT_NE(ErrorReason(status), "");
  EXPECT_FALSE(called);
  EXPECT_EQ(client_.BuildBias(request, options).status(), status);
}

TEST_F(ClientRpcsTest, BuildBiasObeysItsDeadline) {
  CallOptions options;
  options.timeout = absl::ZeroDuration();
  EXPECT_EQ(client_.BuildBias(AlibiRequest(), options).status().code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST_F(ClientRpcsTest, BuiltPositionsGoIntoOtherCallsAsTheyAre) {
  v1::BuildPositionsRequest request;
  request.mutable_padded()->add_lengths(3);
  request.mutable_padded()->add_lengths(2);
  request.mutable_padded()->set_padded_length(3);
  request.mutable_padded()->set_left(true);
  const absl::StatusOr<v1::BuildPositionsResponse> built =
      client_.BuildPositions(request);
  ASSERT_TRUE(built.ok()) << built.status();

  // One pair of frequency 1: (1, 0) becomes (cos p, sin p).
  const std::vector<float> q = {1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0};
  ApplyRopeArgs args;
  args.rope = Spec(2, 10000);
  args.positions = built->positions();
  args.layout = v1::LAYOUT_BSHD;
  args.q = View(v1::DTYPE_FLOAT32, {2, 3, 1, 2}, q);
  const absl::StatusOr<ApplyRopeResult> rotated = client_.ApplyRope(args);
  ASSERT_TRUE(rotated.ok()) << rotated.status();
  const std::vector<float> values = Elements<float>(*rotated->q);
  const int positions[] = {0, 1, 2, 0, 0, 1};  // the second row is padded
  for (int t = 0; t < 6; ++t) {
    EXPECT_NEAR(values[2 * t], std::cos(positions[t]), 0x1p-23);
    EXPECT_NEAR(values[2 * t + 1], std::sin(positions[t]), 0x1p-23);
  }
}

TEST_F(ClientRpcsTest, RepositionedKeysStandWhereTheyWereMovedTo) {
  const std::vector<float> k = {0.5f, -1.25f, 3.0f, 0.75f};
  RepositionArgs args;
  args.old_rope = Spec(4, 100);  // frequencies 1 and 0.1
  args.movement.set_shift(-7);
  args.layout = v1::LAYOUT_THD;
  args.k = View(v1::DTYPE_FLOAT32, {1, 1, 4}, k);
  const absl::StatusOr<TensorResult> moved = client_.Reposition(args);
  ASSERT_TRUE(moved.ok()) << moved.status();
  EXPECT_THAT(moved->tensor.shape, ElementsAre(1, 1, 4));
  const std::vector<float> values = Elements<float>(moved->tensor);
  ASSERT_EQ(values.size(), 4u);
  for (int i = 0; i < 2; ++i) {
    const long double angle = -7 * std::pow(100.0L, -i / 2.0L);
    const long double x = k[2 * i], y = k[2 * i + 1];
    // One rotation: 10 roundings of float32 at the pair's length.
    const double bound = 10 * 0x1p-24 * static_cast<double>(std::hypot(x, y));
    EXPECT_NEAR(values[2 * i],
                static_cast<double>(x * std::cos(angle) - y * std::sin(angle)),
                bound);
    EXPECT_NEAR(values[2 * i + 1],
                static_cast<double>(x * std::sin(angle) + y * std::cos(angle)),
                bound);
  }
}

TEST_F(ClientRpcsTest, EncodingsThatNoRotationJoinsSaySo) {
  const std::vector<float> k(4);
  RepositionArgs args;
  args.old_rope = Spec(4, 100);
  args.new_rope = Spec(2, 100);
  args.movement.set_shift(1);
  *args.movement.mutable_old_positions() = StartAt(0);
  args.layout = v1::LAYOUT_THD;
  args.k = View(v1::DTYPE_FLOAT32, {1, 1, 4}, k);
  EXPECT_EQ(ErrorReason(client_.Reposition(args).status()),
            "ERROR_REASON_NOT_REPOSITIONABLE");
}

TEST_F(ClientRpcsTest, EncodingsAreAddedToScaledEmbeddings) {
  const std::vector<double> x = {1, 2, 3, 4};
  AddEncodingArgs args;
  v1::Sinusoidal* const sinusoidal = args.encoding.mutable_sinusoidal();
  sinusoidal->set_dim(2);
  sinusoidal->set_order(v1::SINUSOIDAL_ORDER_COS_SIN);
  args.positions = StartAt(5);
  args.x_scale = 3;
  args.x = View(v1::DTYPE_FLOAT64, {2, 2}, x);
  const absl::StatusOr<TensorResult> added = client_.AddEncoding(args);
  ASSERT_TRUE(added.ok()) << added.status();
  const std::vector<double> values = Elements<double>(added->tensor);
  const double expected[] = {3 + std::cos(5.0), 6 + std::sin(5.0),
                             9 + std::cos(6.0), 12 + std::sin(6.0)};
  ASSERT_EQ(values.size(), 4u);
  // Sine, product and sum: three roundings of at most 16.
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(values[i], expected[i], 48 * 0x1p-53);

  args.combination = v1::COMBINATION_CONCATENATE;
  const absl::StatusOr<TensorResult> joined = client_.AddEncoding(args);
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_THAT(joined->tensor.shape, ElementsAre(2, 4));
}

TEST_F(ClientRpcsTest, ScoresOfShawReadTheDistancesRow) {
  const std::vector<float> q = {1, 2, 3, 4};  // two queries of two channels
  const std::vector<float> k = {5, 6, 7, 8};
  const std::vector<float> a = {1, 0, 0, 0, 0, 1};  // distances -1, 0, 1
  ScoreRelativeArgs args;
  *args.score.mutable_shaw()->mutable_key_table() =
      ToTensor(View(v1::DTYPE_FLOAT32, {3, 2}, a));
  args.q = View(v1::DTYPE_FLOAT32, {1, 1, 2, 2}, q);
  args.k = View(v1::DTYPE_FLOAT32, {1, 1, 2, 2}, k);
  const absl::StatusOr<TensorResult> scores = client_.ScoreRelative(args);
  ASSERT_TRUE(scores.ok()) << scores.status();
  EXPECT_THAT(scores->tensor.shape, ElementsAre(1, 1, 2, 2));
  // q_0.k_0, q_0.(k_1 + a_1), q_1.(k_0 + a_-1), q_1.k_1
  EXPECT_THAT(Elements<float>(scores->tensor),
              ElementsAre(17, 23 + 2, 39 + 3, 53));
}

TEST_F(ClientRpcsTest, TensorsOfTheSameProcessAreNotWrittenTo) {
  std::vector<float> channels(1 << 18);
  for (std::size_t i = 0; i < channels.size(); ++i) {
    channels[i] = static_cast<float>(i % 1000);
  }
  const std::vector<float> before = channels;
  ApplyRopeArgs rotate;
  rotate.rope = Spec(128, 10000);
  rotate.positions = StartAt(1000);
  rotate.layout = v1::LAYOUT_BSHD;
  rotate.q = View(v1::DTYPE_FLOAT32, {1, 256, 8, 128}, channels);
  const absl::StatusOr<ApplyRopeResult> rotated = client_.ApplyRope(rotate);
  ASSERT_TRUE(rotated.ok()) << rotated.status();
  EXPECT_FALSE(rotated->q->bytes == rotate.q->bytes);
  EXPECT_TRUE(channels == before);

  AddEncodingArgs add;
  add.encoding.mutable_sinusoidal()->set_dim(128);
  add.encoding.mutable_sinusoidal()->set_order(
      v1::SINUSOIDAL_ORDER_INTERLEAVED);
  add.positions = StartAt(0);
  add.x = View(v1::DTYPE_FLOAT32, {1, 2048, 128}, channels);
  const absl::StatusOr<TensorResult> added = client_.AddEncoding(add);
  ASSERT_TRUE(added.ok()) << added.status();
  EXPECT_TRUE(channels == before);
}

TEST_F(ClientRpcsTest, Float8IsRotatedAlikeInOneMessageAndInAStream) {
  // Every byte is a number of FP8, infinity or NaN; larger than a chunk.
  std::vector<std::uint8_t> bits(5 << 20);
  for (std::size_t i = 0; i < bits.size(); ++i) {
    bits[i] = static_cast<std::uint8_t>(i * 2654435761u >> 13);
  }
  ApplyRopeArgs args;
  args.rope.mutable_spec()->set_pairing(v1::PAIRING_HALF_SPLIT);
  args.positions = StartAt(1000);
  args.layout = v1::LAYOUT_BSHD;
  args.q = View(v1::DTYPE_FLOAT8_E4M3FN, {1, 5120, 8, 128}, bits);
  args.k = View(v1::DTYPE_FLOAT8_E5M2, {1, 5120, 8, 128}, bits);
  EXPECT_EQ(ErrorFact(client_.ApplyRope(args).status(), "field"), "saturation");
  args.saturation = v1::SATURATION_NONE;
  const absl::StatusOr<ApplyRopeResult> whole = client_.ApplyRope(args);
  const absl::StatusOr<ApplyRopeResult> cut = client_.ApplyRopeStream(args);
  ASSERT_TRUE(whole.ok() && cut.ok()) << whole.status() << cut.status();
  EXPECT_TRUE(whole->q->bytes == cut->q->bytes);
  EXPECT_TRUE(whole->k->bytes == cut->k->bytes);
  EXPECT_FALSE(whole->k->bytes == args.k->bytes);

  RepositionArgs move;
  move.old_rope = args.rope;
  move.movement.set_shift(-700);
  move.layout = args.layout;
  move.k = whole->k;
  move.saturation = v1::SATURATION_FINITE;
  const absl::StatusOr<TensorResult> moved = client_.Reposition(move);
  const absl::StatusOr<TensorResult> parts = client_.RepositionStream(move);
  ASSERT_TRUE(moved.ok() && parts.ok()) << moved.status() << parts.status();
  EXPECT_TRUE(moved->tensor.bytes == parts->tensor.bytes);
}

TEST_F(ClientRpcsTest, ConvertedRowsAreMovedBitForBit) {
  // Two heads of four rows, one column, bfloat16 bits.
  const std::vector<std::uint16_t> w = {10, 11, 12, 13, 20, 21, 22, 23};
  ConvertPairingArgs args;
  args.old_pairing = v1::PAIRING_INTERLEAVED;
  args.new_pairing = v1::PAIRING_HALF_SPLIT;
  args.heads = 2;
  args.weight = View(v1::DTYPE_BFLOAT16, {8, 1}, w);
  const absl::StatusOr<TensorResult> converted = client_.ConvertPairing(args);
  ASSERT_TRUE(converted.ok()) << converted.status();
  EXPECT_EQ(converted->tensor.dtype, v1::DTYPE_BFLOAT16);
  EXPECT_THAT(converted->tensor.shape, ElementsAre(8, 1));
  EXPECT_THAT(Elements<std::uint16_t>(converted->tensor),
              ElementsAre(10, 12, 11, 13, 20, 22, 21, 23));
}

TEST_F(ClientRpcsTest, AnalysisTellsWavelengthsAndSimilarity) {
  v1::AnalyzeRopeRequest request;
  *request.mutable_rope() = Spec(4, 100);
  request.set_head_dim(4);
  request.set_max_distance(3);
  request.set_trained_length(10);
  const absl::StatusOr<v1::AnalyzeRopeResponse> analysis =
      client_.AnalyzeRope(request);
  ASSERT_TRUE(analysis.ok()) << analysis.status();
  ASSERT_EQ(analysis->wavelengths_size(), 2);
  const double turn = 2 * std::numbers::pi;
  EXPECT_DOUBLE_EQ(analysis->wavelengths(0), turn);
  EXPECT_DOUBLE_EQ(analysis->wavelengths(1), 10 * turn);
  ASSERT_EQ(analysis->similarity_size(), 4);
  EXPECT_NEAR(analysis->similarity(3), (std::cos(3.0) + std::cos(0.3)) / 2,
              0x1p-50);
  EXPECT_EQ(analysis->pairs_within_trained_length(), 1);
}

// A client sends what is there; the server asks for what is missing.
TEST_F(ClientRpcsTest, NothingGivenIsTheServersErrorNotTheClients) {
  for (const absl::Status& status :
       {client_.Reposition({}).status(), client_.AddEncoding({}).status(),
        client_.ScoreRelative({}).status(), client_.ConvertPairing({}).status(),
        client_.BuildBias({}).status(), client_.BuildPositions({}).status(),
        client_.AnalyzeRope({}).status(), client_.DiagnoseRope({}).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_NE(ErrorReason(status), "") << status;
  }
}

// The tensors lie on pages that cannot be read: refused without a copy.
TEST_F(ClientRpcsTest, TensorsBeyondProtobufsTwoGibibytesAreRefusedUnread) {
  const std::size_t size = std::size_t{1} << 31;
  void* pages = mmap(nullptr, size, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  const TensorView huge{
      v1::DTYPE_FLOAT32, {1 << 29}, {static_cast<const char*>(pages), size}};
  AddEncodingArgs add;
  add.x = huge;
  ScoreRelativeArgs score;
  score.q = huge;
  ConvertPairingArgs convert;
  convert.weight = huge;
  for (const absl::Status& status :
       {client_.AddEncoding(add).status(),
        client_.ScoreRelative(score).status(),
        client_.ConvertPairing(convert).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  }
  munmap(pages, size);
}

struct Tile {
  std::int64_t query_start;
  std::int64_t key_start;
  std::vector<std::int64_t> shape;
  std::size_t bytes;
  v1::Dtype dtype = v1::DTYPE_FLOAT32;
};

// Answers with tiles as they are written down.
class TileService : public v1::PositionalEncodingService::Service {
 public:
  grpc::Status BuildBias(
      grpc::ServerContext*, const v1::BuildBiasRequest*,
      grpc::ServerWriter<v1::BuildBiasResponse>* writer) override {
    for (const Tile& tile : tiles) {
      v1::BuildBiasResponse response;
      response.set_query_start(tile.query_start);
      response.set_key_start(tile.key_start);
      response.mutable_tile()->set_dtype(tile.dtype);
      response.mutable_tile()->mutable_shape()->Add(tile.shape.begin(),
                                                    tile.shape.end());
      response.mutable_tile()->set_data(std::string(tile.bytes, 'x'));
      if (!writer->Write(response)) break;
    }
    return grpc::Status::OK;
  }

  std::vector<Tile> tiles;
};

TEST(ClientBiasTest, TilesThatDoNotFitAreErrorsAndNeverWritten) {
  TileService service;
  grpc::ServerBuilder builder;
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  const Client client(server->InProcessChannel(grpc::ChannelArguments()));
  v1::BuildBiasRequest request;
  request.set_query_length(2);
  request.set_key_length(3);

  service.tiles = {{0, 0, {1, 2, 3}, 24}};
  EXPECT_TRUE(client.BuildBias(request).ok());
  const std::vector<std::vector<Tile>> wrong = {
      {{1, 0, {1, 2, 3}, 24}},                         // past the last query
      {{0, -1, {1, 2, 3}, 24}},                        // before the first key
      {{0, 0, {1, 2, 4}, 32}},                         // too wide
      {{0, 0, {2, 3}, 24}},                            // no heads
      {{0, 0, {1, 2, 3}, 20}},                         // bytes missing
      {{0, 0, {1, 2, 3}, 0}},                          //
      {{0, 0, {std::int64_t{1} << 62, 2, 3}, 24}},     //
      {{0, 0, {0, 2, 3}, 0}},                          //
      {{0, 0, {1, 1, 3}, 12}},                         // the second row missing
      {{0, 0, {1, 1, 3}, 12}, {1, 0, {2, 1, 3}, 24}},  // another head
      {{0, 0, {1, 1, 3}, 12}, {1, 0, {1, 1, 3}, 6, v1::DTYPE_FLOAT16}},
  };
  for (std::size_t i = 0; i < wrong.size(); ++i) {
    service.tiles = wrong[i];
    EXPECT_EQ(client.BuildBias(request).status().code(),
              absl::StatusCode::kInternal)
        << i;
  }
}

}  // namespace
}  // namespace posenc
