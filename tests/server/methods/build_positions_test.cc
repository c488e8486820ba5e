// BuildPositions over a real connection. The schemes themselves:
// tests/core/position_schemes_test.cc.

#include <cstdint>
#include <string>
#include <vector>

#include "tests/fixtures/server_errors.h"

namespace posenc::server {
namespace {

using testing::ElementsAre;

class PositionsTest : public ServerTest {
 protected:
  v1::BuildPositionsResponse Build(const v1::BuildPositionsRequest& request) {
    v1::BuildPositionsResponse response;
    const grpc::Status status = Call(&Stub::BuildPositions, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_TRUE(response.positions().has_ids());
    EXPECT_EQ(response.positions().ids().values_size(), 0);
    return response;
  }
};

template <typename T>
std::vector<T> Ids(const v1::BuildPositionsResponse& response) {
  return Elements<T>(response.positions().ids());
}

TEST_F(PositionsTest, PackedPaddedAndSplit) {
  v1::BuildPositionsRequest request;
  request.mutable_packed()->add_lengths(2);
  request.mutable_packed()->add_lengths(3);
  v1::BuildPositionsResponse response = Build(request);
  EXPECT_EQ(response.positions().ids().dtype(), v1::DTYPE_INT32);
  EXPECT_THAT(response.positions().ids().shape(), ElementsAre(5));
  EXPECT_THAT(Ids<std::int32_t>(response), ElementsAre(0, 1, 0, 1, 2));

  v1::PaddedPositions* padded = request.mutable_padded();
  padded->add_lengths(1);
  padded->set_padded_length(3);
  padded->set_left(true);
  padded->set_padding_position(9);
  response = Build(request);
  EXPECT_THAT(response.positions().ids().shape(), ElementsAre(1, 3));
  EXPECT_THAT(Ids<std::int32_t>(response), ElementsAre(9, 9, 0));

  v1::ContextParallelPositions* split = request.mutable_context_parallel();
  split->add_lengths(8);
  split->set_size(2);
  split->set_rank(1);
  EXPECT_THAT(Ids<std::int32_t>(Build(request)), ElementsAre(2, 3, 4, 5));
}

TEST_F(PositionsTest, Grids) {
  v1::BuildPositionsRequest request;
  v1::GridPositions* grid = request.mutable_grid();
  grid->add_extents(2);
  grid->add_extents(4);
  grid->set_merge_size(2);
  v1::BuildPositionsResponse response = Build(request);
  EXPECT_THAT(response.positions().ids().shape(), ElementsAre(2, 8));
  EXPECT_THAT(Ids<std::int32_t>(response),
              ElementsAre(0, 0, 1, 1, 0, 0, 1, 1,  //
                          0, 1, 0, 1, 2, 3, 2, 3));
  grid->Clear();
  grid->add_extents(3);
  grid->add_offsets(0.5);
  grid->add_steps(-2);
  response = Build(request);
  EXPECT_EQ(response.positions().ids().dtype(), v1::DTYPE_FLOAT64);
  EXPECT_THAT(Ids<double>(response), ElementsAre(0.5, -1.5, -3.5));
}

TEST_F(PositionsTest, PatchesOfAVisionTower) {
  v1::BuildPositionsRequest request;
  v1::VisionPositions* vision = request.mutable_vision();
  vision->mutable_rope()->set_config_json(
      R"({"model_type":"qwen2_vl","vision_config":{}})");
  vision->mutable_rope()->set_part(v1::MODEL_PART_VISION);
  v1::VisionPositions::Grid* grid = vision->add_grids();
  grid->set_height(2);
  grid->set_width(4);
  v1::BuildPositionsResponse response = Build(request);
  EXPECT_EQ(response.positions().ids().dtype(), v1::DTYPE_INT32);
  EXPECT_THAT(response.positions().ids().shape(), ElementsAre(2, 8));
  EXPECT_THAT(Ids<std::int32_t>(response),
              ElementsAre(0, 0, 1, 1, 0, 0, 1, 1,  //
                          0, 1, 0, 1, 2, 3, 2, 3));
  vision->mutable_rope()->set_config_json(R"({"model_type":"dinov3_vit"})");
  vision->mutable_rope()->set_part(v1::MODEL_PART_UNSPECIFIED);
  grid->set_height(1);
  grid->set_width(2);
  response = Build(request);
  EXPECT_EQ(response.positions().ids().dtype(), v1::DTYPE_FLOAT32);
  // 2 pi times the centers 0 and 0, -0.5 and 0.5.
  constexpr float kPi = 3.14159274F;
  EXPECT_THAT(Ids<float>(response), ElementsAre(0, 0, -kPi, kPi));
}

TEST_F(PositionsTest, MultimodalSpansAndSinksSayWhereDecodingGoesOn) {
  v1::BuildPositionsRequest request;
  v1::MultimodalPositions* spans = request.mutable_multimodal();
  spans->add_spans()->set_text_tokens(1);
  v1::MultimodalPositions::VisionGrid* vision =
      spans->add_spans()->mutable_vision();
  vision->set_time(2);
  vision->set_height(2);
  vision->set_width(4);
  vision->set_spatial_merge_size(2);
  vision->set_time_step(2.5);
  spans->add_spans()->set_text_tokens(1);
  v1::BuildPositionsResponse response = Build(request);
  EXPECT_THAT(response.positions().ids().shape(), ElementsAre(3, 6));
  EXPECT_THAT(Ids<std::int32_t>(response), ElementsAre(0, 1, 1, 3, 3, 4,  //
                                                       0, 1, 1, 1, 1, 4,  //
                                                       0, 1, 2, 1, 2, 4));
  EXPECT_EQ(response.next_position(), 5);
  EXPECT_EQ(response.delta(), -1);

  v1::AttentionSinkPositions* sinks = request.mutable_attention_sinks();
  sinks->set_sinks(1);
  sinks->set_window(2);
  sinks->set_length(10);
  response = Build(request);
  EXPECT_THAT(Ids<std::int32_t>(response), ElementsAre(0, 8, 9));
  EXPECT_EQ(response.next_position(), 3);
  EXPECT_EQ(response.delta(), 0);
}

// The ids are valid positions: for a rotation of tokens on three axes.
TEST_F(PositionsTest, ApplyRopeTakesWhatComesBack) {
  v1::BuildPositionsRequest request;
  request.mutable_multimodal()->add_spans()->set_text_tokens(2);
  v1::ApplyRopeRequest apply = GoodApply();
  v1::RotaryAxes* axes = apply.mutable_rope()->mutable_spec()->mutable_axes();
  axes->set_assignment(v1::RotaryAxes::ASSIGNMENT_SECTIONED);
  for (const int section : {1, 1, 2}) axes->add_sections(section);
  *apply.mutable_positions() = Build(request).positions();
  v1::ApplyRopeResponse rotated, text;
  const grpc::Status status = Apply(apply, &rotated);
  ASSERT_TRUE(status.ok()) << status.error_message();
  apply.mutable_positions()->set_start(0);
  ASSERT_TRUE(Apply(apply, &text).ok());
  EXPECT_EQ(rotated.q().data(), text.q().data());
}

}  // namespace
}  // namespace posenc::server
