// Properties of answers that the conformance vectors (e2e/conformance_test) do
// not show: form, extents of 0, settings that are filled in, and many blocks.

#include <cmath>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "server/base/version.h"
#include "tests/fixtures/core/instruction_sets.h"
#include "tests/fixtures/server.h"

namespace posenc::server {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::MatchesRegex;

using AnswersTest = ServerTest;

using Shape = std::vector<std::int64_t>;

// Returns a tensor with its elements in `values`.
v1::Tensor Written(v1::Dtype dtype, const Shape& shape,
                   const std::vector<double>& values) {
  v1::Tensor tensor;
  tensor.set_dtype(dtype);
  tensor.mutable_shape()->Add(shape.begin(), shape.end());
  tensor.mutable_values()->Add(values.begin(), values.end());
  return tensor;
}

// Small multiples of 1/8.
std::vector<float> Eighths(int n, int seed) {
  std::vector<float> out(n);
  for (int i = 0; i < n; ++i) {
    out[i] = static_cast<float>((i * 37 + seed * 11) % 17 - 8) / 8;
  }
  return out;
}

v1::RopeSource Rope(v1::Pairing pairing, int rotary_dim = 0) {
  v1::RopeSource rope;
  rope.mutable_spec()->set_pairing(pairing);
  rope.mutable_spec()->set_rotary_dim(rotary_dim);
  return rope;
}

// The rows are computed in several tiles.
TEST_F(AnswersTest, ATableOfHeadsHasTheRowsOfEachHeadAlone) {
  constexpr int kHeads = 3, kPairs = 40, kRows = 2000;
  const auto table = [this](int heads, int first_head) {
    v1::BuildTableRequest request;
    *request.mutable_rope() = Rope(v1::PAIRING_HALF_SPLIT, 2 * kPairs);
    v1::ExplicitFrequencies* const frequencies =
        request.mutable_rope()->mutable_spec()->mutable_explicit_frequencies();
    if (heads > 1) frequencies->set_heads(heads);
    for (int i = 0; i < heads * kPairs; ++i) {
      frequencies->add_values(1.0 / (1 + i + first_head * kPairs));
    }
    request.set_rows(kRows);
    request.mutable_positions()->set_start(5);
    v1::BuildTableResponse response;
    const grpc::Status status = Call(&Stub::BuildTable, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  };
  const v1::BuildTableResponse all = table(kHeads, 0);
  EXPECT_THAT(all.cos().shape(), ElementsAre(kHeads, kRows, kPairs));
  const std::size_t bytes = all.cos().data().size() / kHeads;
  for (int head = 0; head < kHeads; ++head) {
    const v1::BuildTableResponse one = table(1, head);
    EXPECT_TRUE(all.cos().data().substr(head * bytes, bytes) ==
                one.cos().data());
    EXPECT_TRUE(all.sin().data().substr(head * bytes, bytes) ==
                one.sin().data());
  }
}

TEST_F(AnswersTest, ManyPositionsAreThoseOfOneRun) {
  v1::BuildPositionsRequest request;
  request.mutable_packed()->add_lengths(123456);
  request.mutable_packed()->add_lengths(100000);
  v1::BuildPositionsResponse response;
  ASSERT_TRUE(Call(&Stub::BuildPositions, request, &response).ok());
  const auto ids = Elements<std::int32_t>(response.positions().ids());
  ASSERT_EQ(ids.size(), 223456u);
  for (int i = 0; i < 223456; ++i) {
    ASSERT_EQ(ids[i], i < 123456 ? i : i - 123456) << i;
  }
}

TEST_F(AnswersTest, GetServerInfoTellsLimitsPresetsAndDtypes) {
  v1::GetServerInfoResponse response;
  ASSERT_TRUE(
      Call(&Stub::GetServerInfo, v1::GetServerInfoRequest(), &response).ok());
  EXPECT_EQ(response.version(), kVersion);
  EXPECT_THAT(response.instruction_set(),
              testing::AnyOfArray(reference::kInstructionSets));
  EXPECT_EQ(response.limits().max_request_bytes(), 512 << 20);
  EXPECT_EQ(response.limits().max_response_bytes(), 512 << 20);
  EXPECT_GE(response.limits().max_rotary_dim(), 4096);
  EXPECT_GT(response.limits().stream_chunk_bytes(), 0);
  EXPECT_THAT(response.presets(), Contains("llama-3.1-8b"));
  EXPECT_THAT(
      response.tensor_dtypes(),
      ElementsAre(v1::DTYPE_FLOAT32, v1::DTYPE_FLOAT16, v1::DTYPE_BFLOAT16,
                  v1::DTYPE_FLOAT64, v1::DTYPE_FLOAT8_E4M3FN,
                  v1::DTYPE_FLOAT8_E5M2, v1::DTYPE_INT8));
}

void ExpectWritten(const v1::Tensor& tensor, v1::Dtype dtype,
                   const std::vector<double>& values, double bound) {
  EXPECT_EQ(tensor.dtype(), dtype);
  EXPECT_TRUE(tensor.data().empty());
  ASSERT_EQ(tensor.values_size(), static_cast<int>(values.size()));
  for (int i = 0; i < tensor.values_size(); ++i) {
    EXPECT_NEAR(tensor.values(i), values[i], bound) << i;
  }
}

TEST_F(AnswersTest, ValuesComeBackAsValuesRoundedToTheirDtype) {
  v1::ApplyRopeRequest apply;
  *apply.mutable_rope() = Rope(v1::PAIRING_INTERLEAVED);
  apply.mutable_positions()->set_start(0);
  apply.set_layout(v1::LAYOUT_BSHD);
  // Token 0 is at 0 and does not rotate: 1 + 2^-8 is halfway between two
  // bfloat16 numbers and rounds to the even one. Token 1 rotates by one radian.
  *apply.mutable_k() =
      Written(v1::DTYPE_BFLOAT16, {1, 2, 1, 2}, {1 + 0x1p-8, 3, 1, 0});
  v1::ApplyRopeResponse rotated;
  ASSERT_TRUE(Apply(apply, &rotated).ok());
  EXPECT_FALSE(rotated.has_q());
  // Half an ulp of bfloat16 in [0.5, 1) is 2^-9.
  ExpectWritten(rotated.k(), v1::DTYPE_BFLOAT16,
                {1, 3, std::cos(1.0), std::sin(1.0)}, 0x1p-9 + 1e-6);

  v1::RepositionRequest move;
  *move.mutable_old_rope() = Rope(v1::PAIRING_HALF_SPLIT);
  move.mutable_movement()->set_shift(1);
  move.set_layout(v1::LAYOUT_BSHD);
  *move.mutable_k() = Written(v1::DTYPE_FLOAT64, {1, 1, 1, 2}, {1, 0});
  v1::RepositionResponse moved;
  ASSERT_TRUE(Call(&Stub::Reposition, move, &moved).ok());
  ExpectWritten(moved.k(), v1::DTYPE_FLOAT64, {std::cos(1.0), std::sin(1.0)},
                10 * 0x1p-53);

  // The pair (x, x) moves by 0.785 radians, to about (x / 1776, 1.414 x).
  move.mutable_old_rope()
      ->mutable_spec()
      ->mutable_explicit_frequencies()
      ->add_values(0.785);
  move.set_saturation(v1::SATURATION_FINITE);
  for (const auto& [dtype, x, moved_to] :
       {std::tuple{v1::DTYPE_FLOAT8_E4M3FN, 448.0, std::pair{0.25, 448.0}},
        {v1::DTYPE_FLOAT8_E5M2, 57344.0, {32.0, 57344.0}},
        {v1::DTYPE_INT8, 20.0, {0.0, 28.0}},
        {v1::DTYPE_INT8, -127.0, {0.0, -128.0}}}) {
    *move.mutable_k() = Written(dtype, {1, 1, 1, 2}, {x, x});
    ASSERT_TRUE(Call(&Stub::Reposition, move, &moved).ok());
    ExpectWritten(moved.k(), dtype, {moved_to.first, moved_to.second}, 0);
  }

  v1::AddEncodingRequest add;
  SetTensor<float>(v1::DTYPE_FLOAT32, {2, 2}, {0, 1, 2, 3},
                   add.mutable_encoding()->mutable_learned()->mutable_table());
  add.mutable_positions()->set_start(0);
  add.set_combination(v1::COMBINATION_CONCATENATE);
  *add.mutable_x() = Written(v1::DTYPE_BFLOAT16, {2, 2}, {4, 5, 6, 7});
  v1::AddEncodingResponse added;
  ASSERT_TRUE(Call(&Stub::AddEncoding, add, &added).ok());
  EXPECT_THAT(added.x().shape(), ElementsAre(2, 4));
  ExpectWritten(added.x(), v1::DTYPE_BFLOAT16, {4, 5, 0, 1, 6, 7, 2, 3}, 0);
}

TEST_F(AnswersTest, ComputedTensorsComeAsData) {
  v1::BuildTableRequest table;
  *table.mutable_rope() = Rope(v1::PAIRING_HALF_SPLIT, 8);
  table.mutable_positions()->set_start(-2);
  table.set_rows(3);
  v1::BuildTableResponse rows;
  ASSERT_TRUE(Table(table, &rows).ok());
  EXPECT_FALSE(rows.has_table());
  EXPECT_EQ(rows.cos().data().size(), 3 * 4 * sizeof(float));
  EXPECT_EQ(rows.sin().data().size(), 3 * 4 * sizeof(float));
  table.set_layout(v1::TABLE_LAYOUT_COMPLEX);
  ASSERT_TRUE(Table(table, &rows).ok());
  EXPECT_FALSE(rows.has_cos() || rows.has_sin());
  EXPECT_EQ(rows.table().data().size(), 3 * 8 * sizeof(float));

  v1::BuildTableRequest grid;
  grid.mutable_absolute()->mutable_sincos_grid()->set_dim(8);
  for (const int extent : {2, 3}) {
    grid.mutable_absolute()->mutable_sincos_grid()->add_extents(extent);
  }
  for (const int asked : {0, 6}) {
    grid.set_rows(asked);
    ASSERT_TRUE(Table(grid, &rows).ok());
    EXPECT_FALSE(rows.has_cos() || rows.has_sin());
    EXPECT_EQ(rows.amplitude(), 0);
    EXPECT_EQ(rows.table().data().size(), 6 * 8 * sizeof(float));
  }

  v1::BuildPositionsRequest scheme;
  scheme.mutable_packed()->add_lengths(2);
  v1::BuildPositionsResponse positions;
  ASSERT_TRUE(Call(&Stub::BuildPositions, scheme, &positions).ok());
  EXPECT_EQ(positions.positions().ids().data().size(), 8u);
}

TEST_F(AnswersTest, EmptyTensorsComeBackEmpty) {
  v1::ApplyRopeRequest request;
  *request.mutable_rope() = Rope(v1::PAIRING_HALF_SPLIT);
  request.mutable_positions()->set_start(0);
  request.set_layout(v1::LAYOUT_BSHD);
  for (const Shape& shape :
       {Shape{0, 4, 2, 8}, Shape{2, 0, 2, 8}, Shape{2, 4, 0, 8}}) {
    SetTensor<float>(v1::DTYPE_FLOAT32, shape, {}, request.mutable_q());
    v1::ApplyRopeResponse response;
    const grpc::Status status = Apply(request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_THAT(response.q().shape(), testing::ElementsAreArray(shape));
    EXPECT_TRUE(response.q().data().empty());
  }
}

TEST_F(AnswersTest, ResolveRopeCompletesTheSpecAndSaysWhatItAssumed) {
  v1::ResolveRopeRequest request;
  *request.mutable_rope() = Rope(v1::PAIRING_INTERLEAVED);
  v1::RopeSpec* const spec = request.mutable_rope()->mutable_spec();
  spec->mutable_dynamic_ntk()->set_factor(2);
  spec->mutable_dynamic_ntk()->set_max_position_embeddings(2048);
  request.set_head_dim(16);
  *request.mutable_compare_with() = Rope(v1::PAIRING_INTERLEAVED);
  request.mutable_compare_with()->mutable_spec()->mutable_linear()->set_factor(
      4);
  v1::ResolveRopeResponse response;
  const grpc::Status status = Resolve(request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.head_dim(), 16);
  EXPECT_EQ(response.spec().slice(), v1::ROTARY_SLICE_LEADING);
  EXPECT_EQ(response.spec().rope_theta(), 10000);
  EXPECT_EQ(response.spec().angle_precision(), v1::ANGLE_PRECISION_EXACT);
  EXPECT_EQ(response.spec().dynamic_ntk().factor(), 2);
  EXPECT_EQ(response.inv_freq_size(), 8);
  EXPECT_THAT(response.content_hash(), MatchesRegex("[0-9a-f]{64}"));
  std::vector<std::string> assumed;
  for (const v1::Assumption& one : response.assumptions()) {
    assumed.push_back(one.field() + "=" + one.value());
  }
  EXPECT_THAT(assumed, Contains(MatchesRegex(".*sequence_length=2048")));
  // Angles of pair 0 differ by 3/4 rad at position 1.
  ASSERT_TRUE(response.has_difference());
  EXPECT_FALSE(response.difference().equal());
  EXPECT_EQ(response.difference().first_diverging_position(), 1);

  request.mutable_rope()->set_preset("gpt-oss-20b");
  request.clear_head_dim();
  *request.mutable_compare_with() = request.rope();
  ASSERT_TRUE(Resolve(request, &response).ok());
  EXPECT_TRUE(response.difference().equal());
  EXPECT_EQ(response.difference().length(), 131072);  // the preset's

  v1::ResolveRopeRequest preset;
  preset.mutable_rope()->set_preset("llama-3.1-8b");
  ASSERT_TRUE(Resolve(preset, &response).ok());
  EXPECT_EQ(response.head_dim(), 128);
  EXPECT_EQ(response.spec().rope_theta(), 500000);
  EXPECT_EQ(response.spec().llama3().factor(), 8);
  EXPECT_FALSE(response.has_difference());

  v1::AnalyzeRopeRequest alone;
  *alone.mutable_rope() = preset.rope();
  v1::AnalyzeRopeResponse analysis;
  ASSERT_TRUE(Call(&Stub::AnalyzeRope, alone, &analysis).ok());
  EXPECT_EQ(analysis.kept_size(), 0);
}

TEST_F(AnswersTest, InProcessChannelCarriesMoreThanGrpcsOwnLimit) {
  v1::BuildTableRequest request;
  *request.mutable_rope() = Rope(v1::PAIRING_HALF_SPLIT, 128);
  request.mutable_positions()->set_start(0);
  request.set_rows(20000);  // 2 x 5 MB; gRPC's clients accept 4 MiB unless told
  stub_ = v1::PositionalEncodingService::NewStub(server_->InProcessChannel());
  v1::BuildTableResponse response;
  const grpc::Status status = Table(request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.cos().data().size(), 20000u * 64 * 4);
}

// There are more products than the server computes between two checks whether
// the call has ended.
TEST_F(AnswersTest, ScoresOfManyBlocksAreThoseOfEachQueryAlone) {
  constexpr int kLong = 700, kDim = 16;
  v1::ScoreRelativeRequest request;
  SetTensor(v1::DTYPE_FLOAT32, {5, kDim}, Eighths(5 * kDim, 3),
            request.mutable_score()->mutable_shaw()->mutable_key_table());
  const std::vector<float> q = Eighths(kLong * kDim, 1);
  SetTensor(v1::DTYPE_FLOAT32, {1, 1, kLong, kDim}, q, request.mutable_q());
  SetTensor(v1::DTYPE_FLOAT32, {1, 1, kLong, kDim}, Eighths(kLong * kDim, 2),
            request.mutable_k());
  v1::ScoreRelativeResponse whole, alone;
  ASSERT_TRUE(Call(&Stub::ScoreRelative, request, &whole).ok());
  EXPECT_EQ(whole.scores().values_size(), 0);
  const std::size_t row_bytes = kLong * sizeof(float);
  for (const int row : {0, 1, 93, 94, 350, 699}) {
    SetTensor(v1::DTYPE_FLOAT32, {1, 1, 1, kDim},
              std::vector<float>(q.begin() + row * kDim,
                                 q.begin() + (row + 1) * kDim),
              request.mutable_q());
    request.set_query_start(row);
    ASSERT_TRUE(Call(&Stub::ScoreRelative, request, &alone).ok());
    EXPECT_EQ(alone.scores().data(),
              whole.scores().data().substr(row * row_bytes, row_bytes))
        << "row " << row;
  }
  SetTensor<float>(v1::DTYPE_FLOAT32, {1, 1, 0, kDim}, {}, request.mutable_q());
  ASSERT_TRUE(Call(&Stub::ScoreRelative, request, &alone).ok());
  EXPECT_THAT(alone.scores().shape(), ElementsAre(1, 1, 0, kLong));
}

}  // namespace
}  // namespace posenc::server
