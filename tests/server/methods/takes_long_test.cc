// Handlers report that a small message takes long, because of a wide encoding
// or wide elements, so that no connection thread computes it. They look at the
// call's stop while they work on it.

#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "google/protobuf/message.h"
#include "gtest/gtest.h"
#include "posenc/v1/service.pb.h"
#include "server/methods/methods.h"

namespace posenc::server {
namespace {

constexpr int kWide = 4096, kNarrow = 128;

v1::RopeSource Rope(int rotary_dim) {
  v1::RopeSource rope;
  rope.mutable_spec()->set_pairing(v1::PAIRING_HALF_SPLIT);
  rope.mutable_spec()->set_rotary_dim(rotary_dim);
  rope.mutable_spec()->set_rope_theta(10000);
  return rope;
}

class TakesLongTest : public testing::Test {
 protected:
  static void Receive(const google::protobuf::Message& request,
                      CallHandler* handler) {
    const grpc::Slice slice(request.SerializeAsString());
    const absl::Status received =
        handler->Receive(RequestMessage({slice}, true));
    EXPECT_TRUE(received.ok()) << received;
  }

  // Returns the handler's report after this message.
  bool TakesLong(const char* method, const google::protobuf::Message& request) {
    const auto handler = *FindMethod(method)->start(context_);
    EXPECT_FALSE(handler->TakesLong());  // without a message
    Receive(request, handler.get());
    return handler->TakesLong();
  }

  std::unique_ptr<PendingResponse> Response(
      const char* method, const google::protobuf::Message& request) {
    const auto handler = *FindMethod(method)->start(context_);
    Receive(request, handler.get());
    auto response = handler->Next([] { return absl::OkStatus(); });
    EXPECT_TRUE(response.ok()) << response.status();
    return *std::move(response);
  }

  const Limits limits_ = [] {
    Limits limits;
    limits.max_request_bytes = limits.max_response_bytes = 1 << 20;
    return limits;
  }();
  RopeCache cache_{1 << 20};
  const MethodContext context_{&limits_, &cache_, {}};
};

TEST_F(TakesLongTest, OfOneAnswer) {
  for (const int width : {kNarrow, kWide}) {
    v1::ResolveRopeRequest resolve;
    *resolve.mutable_rope() = Rope(width);
    EXPECT_EQ(TakesLong("ResolveRope", resolve), width == kWide);
    v1::BuildTableRequest table;
    *table.mutable_rope() = Rope(width);
    EXPECT_EQ(TakesLong("BuildTable", table), width == kWide);
    v1::RepositionRequest move;
    *move.mutable_old_rope() = Rope(kNarrow);
    *move.mutable_new_rope() = Rope(width);
    EXPECT_EQ(TakesLong("Reposition", move), width == kWide);
  }
}

TEST_F(TakesLongTest, OfLayersWithTheirOwnEncodings) {
  v1::RepositionRequest move;
  move.mutable_old_rope()->set_preset("gemma-3-1b");
  EXPECT_FALSE(TakesLong("Reposition", move));
  move.mutable_cache()->add_model_layers(0);
  EXPECT_TRUE(TakesLong("Reposition", move));
}

TEST_F(TakesLongTest, OfStreams) {
  for (const int width : {kNarrow, kWide}) {
    // Streams may expand the positions of many tokens.
    v1::ApplyRopeStreamRequest apply;
    *apply.mutable_call()->mutable_rope() = Rope(width);
    EXPECT_TRUE(TakesLong("ApplyRopeStream", apply));
    v1::RepositionStreamRequest move;
    *move.mutable_call()->mutable_old_rope() = Rope(width);
    EXPECT_TRUE(TakesLong("RepositionStream", move));
    v1::BuildTableStreamRequest table;
    *table.mutable_table()->mutable_rope() = Rope(width);
    EXPECT_TRUE(TakesLong("BuildTableStream", table));
  }
}

TEST_F(TakesLongTest, OfPackedTables) {
  v1::BuildTableRequest table;
  *table.mutable_rope() = Rope(kNarrow);
  table.mutable_positions()->mutable_packed()->add_cu_seqlens(0);
  EXPECT_TRUE(TakesLong("BuildTable", table));
}

// Each of these encodings has a frequency for every two channels.
TEST_F(TakesLongTest, OfWideRows) {
  for (const int dim : {1024, 65536}) {
    v1::BuildTableRequest table;
    table.mutable_absolute()->mutable_sinusoidal()->set_dim(dim);
    EXPECT_EQ(TakesLong("BuildTable", table), dim > 1024);
    v1::AddEncodingRequest add;
    add.mutable_encoding()->mutable_timestep()->set_dim(dim);
    EXPECT_EQ(TakesLong("AddEncoding", add), dim > 1024);
    v1::BuildBiasRequest bias;
    bias.mutable_bias()->mutable_sandwich()->set_dim(dim);
    EXPECT_EQ(TakesLong("BuildBias", bias), dim > 1024);
  }
}

TEST_F(TakesLongTest, OfLargeTensorsInSharedMemory) {
  for (const int tokens : {1 << 10, 1 << 20}) {
    v1::BuildTableRequest table;
    *table.mutable_rope() = Rope(kNarrow);
    v1::Tensor* const ids = table.mutable_positions()->mutable_ids();
    ids->set_dtype(v1::DTYPE_INT64);
    ids->add_shape(tokens);
    ids->mutable_shared()->set_name("file");
    EXPECT_EQ(TakesLong("BuildTable", table), tokens == 1 << 20);
  }
}

// The limit is longer than nearly all models' configurations.
TEST_F(TakesLongTest, OfLongConfigurations) {
  for (const int bytes : {10 << 10, 20 << 10}) {
    v1::ResolveRopeRequest request;
    request.mutable_rope()->set_config_json(std::string(bytes, ' '));
    EXPECT_EQ(TakesLong("ResolveRope", request), bytes == 20 << 10);
  }
}

TEST_F(TakesLongTest, AStopEndsTheReadingOfLayers) {
  v1::RepositionRequest request;
  request.mutable_old_rope()->set_config_json(
      R"({"model_type": "llama", "rope_theta": 1e4, "head_dim": 8,)"
      R"( "num_hidden_layers": 9, "hidden_size": 8,)"
      R"( "num_attention_heads": 1})");
  request.mutable_movement()->set_shift(1);
  request.mutable_cache()->set_dimensions("LBHD");
  v1::Tensor* const slots = request.mutable_cache()->mutable_slots();
  slots->set_dtype(v1::DTYPE_INT32);
  slots->add_shape(1);
  slots->set_data(std::string(4, '\0'));
  v1::Tensor* const k = request.mutable_k();
  k->set_dtype(v1::DTYPE_FLOAT32);
  for (const int extent : {9, 1, 1, 8}) k->add_shape(extent);
  k->set_data(std::string(9 * 8 * sizeof(float), '\0'));
  for (int layer = 0; layer < 9; ++layer) {
    request.mutable_cache()->add_model_layers(layer);
  }
  for (const int last : {3, 9}) {
    const auto handler = *FindMethod("Reposition")->start(context_);
    Receive(request, handler.get());
    int looks = 0;
    const absl::Status status =
        handler
            ->Next([&] {
              return ++looks > last ? absl::CancelledError() : absl::OkStatus();
            })
            .status();
    EXPECT_EQ(absl::IsCancelled(status), last == 3) << status;
    EXPECT_EQ(looks, last == 3 ? 4 : 9);
  }
}

// A tile copies at most a MiB, and may begin and end within rows of the weight.
TEST_F(TakesLongTest, TilesOfConvertPairingEndWithinRows) {
  constexpr std::int64_t kRows = 4, kColumns = 5 << 15;  // rows of 640 KiB
  v1::ConvertPairingRequest request;
  request.set_old_pairing(v1::PAIRING_INTERLEAVED);
  request.set_new_pairing(v1::PAIRING_HALF_SPLIT);
  request.set_heads(1);
  request.mutable_weight()->set_dtype(v1::DTYPE_FLOAT32);
  request.mutable_weight()->add_shape(kRows);
  request.mutable_weight()->add_shape(kColumns);
  std::vector<std::int32_t> weight(kRows * kColumns);
  std::iota(weight.begin(), weight.end(), 0);
  request.mutable_weight()->set_data(
      std::string(reinterpret_cast<const char*>(weight.data()),
                  weight.size() * sizeof(weight[0])));
  const auto go_on = [] { return absl::OkStatus(); };
  const absl::StatusOr<TensorAnswer> answer =
      AnswerConvertPairing(request, context_);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->computation->tiles(), 3);
  std::vector<std::int32_t> converted(weight.size());
  const std::vector<OutputBuffer> outputs = {
      {core::Pieces(converted.data(), converted.size() * sizeof(weight[0]))}};
  for (std::int64_t tile = 0; tile < 3; ++tile) {
    EXPECT_TRUE(answer->computation->Compute(tile, outputs, go_on).ok());
  }
  constexpr std::int64_t kOld[kRows] = {0, 2, 1, 3};
  for (std::int64_t i = 0; i < kRows * kColumns; ++i) {
    ASSERT_EQ(converted[i],
              weight[kOld[i / kColumns] * kColumns + i % kColumns])
        << i;
  }
}

// A response of few bytes. Its tiles take a millisecond, so that a stop ends it
// soon.
TEST_F(TakesLongTest, OfWideElements) {
  v1::BuildBiasRequest request;
  request.set_query_length(1);
  request.set_key_length(30);
  v1::Bias* const bias = request.mutable_bias();
  const auto work = [&] {
    return Response("BuildBias", request)->work_bytes();
  };
  const auto tiles = [&] { return Response("BuildBias", request)->tiles(); };
  bias->mutable_sandwich()->set_heads(1);
  for (const int dim : {128, 65536}) {
    bias->mutable_sandwich()->set_dim(dim);
    EXPECT_EQ(work() > 1000000, dim == 65536);
    EXPECT_EQ(tiles() > 3, dim == 65536);
  }
  const auto ones = [](std::vector<std::int64_t> shape, v1::Tensor* tensor) {
    tensor->set_dtype(v1::DTYPE_FLOAT16);
    std::int64_t n = 1;
    for (const std::int64_t extent : shape) {
      tensor->add_shape(extent);
      n *= extent;
    }
    tensor->set_data(std::string(2 * n, '\0'));
  };
  for (const int hidden : {32, 65536}) {
    bias->clear_fire();
    v1::Fire* const fire = bias->mutable_fire();
    fire->set_c(1);
    fire->set_threshold(1);
    ones({hidden, 1}, fire->mutable_w1());
    ones({hidden}, fire->mutable_b1());
    ones({1, hidden}, fire->mutable_w2());
    ones({1}, fire->mutable_b2());
    EXPECT_EQ(work() > 1000000, hidden == 65536);
    EXPECT_EQ(tiles() > 2, hidden == 65536);
  }
  for (const int width : {1, 65536}) {
    v1::UntiedPositions* const untied = bias->mutable_untied_positions();
    untied->Clear();
    ones({1, 30, width}, untied->mutable_position_queries());
    ones({1, 30, width}, untied->mutable_position_keys());
    EXPECT_EQ(work() > 1000000, width == 65536);
    EXPECT_EQ(tiles() > 2, width == 65536);
  }
  for (const int width : {kNarrow, 65536}) {
    v1::AnalyzeRopeRequest analyze;
    *analyze.mutable_rope() = Rope(width);
    analyze.set_max_distance(30);
    const auto response = Response("AnalyzeRope", analyze);
    EXPECT_EQ(response->work_bytes() > 1000000, width == 65536);
    EXPECT_EQ(response->tiles() > 3, width == 65536);
  }
}

}  // namespace
}  // namespace posenc::server
