// The RPCs over a real connection; numbers against the formulas in float64.

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "server/version.h"
#include "tests/fixtures/instruction_sets.h"
#include "tests/fixtures/server.h"

namespace posenc::server {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::MatchesRegex;

using RpcTest = ServerTest;

// Half an ulp of a float32 in [0.5, 1], and the error of double arithmetic.
constexpr double kTableError = 0x1p-25 + 1e-12;

double Frequency(int pair, int width) {
  return std::pow(10000.0, -2.0 * pair / width);
}

// A float32 in [-2, 2), different for each i.
float Sample(int i) {
  return static_cast<float>((i * 2654435761u) % 65536) / 16384.0f - 2.0f;
}

std::vector<float> Samples(int n) {
  std::vector<float> out(n);
  for (int i = 0; i < n; ++i) out[i] = Sample(i);
  return out;
}

TEST_F(RpcTest, GetServerInfoTellsLimitsPresetsAndDtypes) {
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
  EXPECT_THAT(response.tensor_dtypes(),
              ElementsAre(v1::DTYPE_FLOAT32, v1::DTYPE_FLOAT16,
                          v1::DTYPE_BFLOAT16, v1::DTYPE_FLOAT64,
                          v1::DTYPE_FLOAT8_E4M3FN, v1::DTYPE_FLOAT8_E5M2));
}

TEST_F(RpcTest, ApplyRopeRotatesQueriesAndKeysOfDifferentHeads) {
  constexpr int kTokens = 5, kDim = 8;
  v1::ApplyRopeRequest request;
  request.mutable_rope()->mutable_spec()->set_pairing(v1::PAIRING_HALF_SPLIT);
  request.mutable_positions()->set_start(1000);
  request.set_layout(v1::LAYOUT_BSHD);
  const auto check = [&](int heads, const v1::Tensor& in,
                         const v1::Tensor& out) {
    ASSERT_EQ(out.dtype(), v1::DTYPE_FLOAT32);
    EXPECT_THAT(out.shape(), ElementsAre(1, kTokens, heads, kDim));
    EXPECT_EQ(out.values_size(), 0);
    const std::vector<float> x = Elements<float>(in);
    const std::vector<float> y = Elements<float>(out);
    ASSERT_EQ(x.size(), y.size());
    for (int row = 0; row < kTokens * heads; ++row) {
      const double position = 1000 + row / heads;
      for (int i = 0; i < kDim / 2; ++i) {
        const double phi = position * Frequency(i, kDim);
        const double a = x[row * kDim + i], b = x[row * kDim + i + kDim / 2];
        const double bound = 0x1p-22 * std::hypot(a, b);
        EXPECT_NEAR(y[row * kDim + i], a * std::cos(phi) - b * std::sin(phi),
                    bound);
        EXPECT_NEAR(y[row * kDim + i + kDim / 2],
                    a * std::sin(phi) + b * std::cos(phi), bound);
      }
    }
  };
  SetTensor(v1::DTYPE_FLOAT32, {1, kTokens, 4, kDim},
            Samples(kTokens * 4 * kDim), request.mutable_q());
  SetTensor(v1::DTYPE_FLOAT32, {1, kTokens, 2, kDim},
            Samples(kTokens * 2 * kDim), request.mutable_k());
  v1::ApplyRopeResponse response;
  const grpc::Status status = Apply(request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  check(4, request.q(), response.q());
  check(2, request.k(), response.k());
}

TEST_F(RpcTest, ValuesComeBackAsValuesRoundedToTheirDtype) {
  v1::ApplyRopeRequest request;
  request.mutable_rope()->mutable_spec()->set_pairing(v1::PAIRING_INTERLEAVED);
  request.mutable_positions()->set_start(0);
  request.set_layout(v1::LAYOUT_BSHD);
  v1::Tensor* const k = request.mutable_k();
  k->set_dtype(v1::DTYPE_BFLOAT16);
  for (const int extent : {1, 2, 1, 2}) k->add_shape(extent);
  // Token 0 is at 0 and does not rotate: 1 + 2^-8 is halfway between two
  // bfloat16 numbers and rounds to the even one. Token 1 rotates by one radian.
  for (const double value : {1 + 0x1p-8, 3.0, 1.0, 0.0}) k->add_values(value);
  v1::ApplyRopeResponse response;
  const grpc::Status status = Apply(request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_FALSE(response.has_q());
  EXPECT_EQ(response.k().dtype(), v1::DTYPE_BFLOAT16);
  EXPECT_TRUE(response.k().data().empty());
  ASSERT_EQ(response.k().values_size(), 4);
  EXPECT_EQ(response.k().values(0), 1.0);
  EXPECT_EQ(response.k().values(1), 3.0);
  // Half an ulp of bfloat16 in [0.5, 1) is 2^-9.
  EXPECT_NEAR(response.k().values(2), std::cos(1.0), 0x1p-9 + 1e-6);
  EXPECT_NEAR(response.k().values(3), std::sin(1.0), 0x1p-9 + 1e-6);
}

// One pair (value, value) of FP8 keys, rotated by 0.785 radians: the second
// element becomes 1.4 times the value.
v1::ApplyRopeRequest Float8Request(v1::Dtype dtype, double value) {
  v1::ApplyRopeRequest request;
  v1::RopeSpec* const spec = request.mutable_rope()->mutable_spec();
  spec->set_pairing(v1::PAIRING_HALF_SPLIT);
  spec->mutable_explicit_frequencies()->add_values(0.785);
  request.mutable_positions()->set_start(1);
  request.set_layout(v1::LAYOUT_BSHD);
  v1::Tensor* const k = request.mutable_k();
  k->set_dtype(dtype);
  for (const int extent : {1, 1, 1, 2}) k->add_shape(extent);
  for (int i = 0; i < 2; ++i) k->add_values(value);
  return request;
}

TEST_F(RpcTest, Float8SaturatesAsTheRequestSays) {
  struct Case {
    v1::Dtype dtype;
    double largest, past;
  };
  for (const Case& c : {Case{v1::DTYPE_FLOAT8_E4M3FN, 448, std::nan("")},
                        Case{v1::DTYPE_FLOAT8_E5M2, 57344,
                             std::numeric_limits<double>::infinity()}}) {
    v1::ApplyRopeRequest request = Float8Request(c.dtype, c.largest);
    request.set_saturation(v1::SATURATION_FINITE);
    v1::ApplyRopeResponse response;
    ASSERT_TRUE(Apply(request, &response).ok());
    EXPECT_EQ(response.k().dtype(), c.dtype);
    EXPECT_EQ(response.k().values(1), c.largest);
    request.set_saturation(v1::SATURATION_NONE);
    ASSERT_TRUE(Apply(request, &response).ok());
    const double past = response.k().values(1);
    EXPECT_TRUE(std::isnan(c.past) ? std::isnan(past) : past == c.past) << past;
  }
}

TEST_F(RpcTest, Float8ValuesMustHaveNumbers) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto apply = [&](v1::Dtype dtype, double value) {
    v1::ApplyRopeRequest request = Float8Request(dtype, value);
    request.set_saturation(v1::SATURATION_NONE);
    v1::ApplyRopeResponse response;
    return Apply(request, &response);
  };
  // 464 and 61440 are halfway to the next numbers, which do not exist.
  EXPECT_TRUE(apply(v1::DTYPE_FLOAT8_E4M3FN, 464).ok());
  EXPECT_TRUE(apply(v1::DTYPE_FLOAT8_E4M3FN, std::nan("")).ok());
  EXPECT_TRUE(apply(v1::DTYPE_FLOAT8_E5M2, kInfinity).ok());
  for (const auto& [dtype, value] :
       {std::pair{v1::DTYPE_FLOAT8_E4M3FN, 464.1},
        std::pair{v1::DTYPE_FLOAT8_E4M3FN, -kInfinity},
        std::pair{v1::DTYPE_FLOAT8_E5M2, 61440.0}}) {
    const grpc::Status status = apply(dtype, value);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(),
                testing::AllOf(testing::StartsWith("k.values[0]: "),
                               testing::HasSubstr("does not fit float8_e")));
  }
}

TEST_F(RpcTest, PackedSequencesStartAgain) {
  v1::ApplyRopeRequest request;
  request.mutable_rope()->mutable_spec()->set_pairing(v1::PAIRING_INTERLEAVED);
  for (const int end : {0, 2, 3}) {
    request.mutable_positions()->mutable_packed()->add_cu_seqlens(end);
  }
  request.set_layout(v1::LAYOUT_THD);
  SetTensor<double>(v1::DTYPE_FLOAT64, {3, 1, 2}, {1, 0, 1, 0, 1, 0},
                    request.mutable_q());
  v1::ApplyRopeResponse response;
  const grpc::Status status = Apply(request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  const std::vector<double> y = Elements<double>(response.q());
  ASSERT_EQ(y.size(), 6u);
  EXPECT_EQ(y[0], 1);
  EXPECT_NEAR(y[2], std::cos(1.0), 1e-15);
  EXPECT_NEAR(y[3], std::sin(1.0), 1e-15);
  EXPECT_EQ(y[4], 1);
  EXPECT_EQ(y[5], 0);
}

TEST_F(RpcTest, InverseUndoesForward) {
  v1::ApplyRopeRequest request;
  request.mutable_rope()->set_preset("llama-3.1-8b");
  request.mutable_positions()->set_start(7);
  request.set_layout(v1::LAYOUT_BHSD);
  SetTensor<double>(v1::DTYPE_FLOAT64, {1, 1, 2, 128},
                    std::vector<double>(256, 0.5), request.mutable_q());
  v1::ApplyRopeResponse response;
  ASSERT_TRUE(Apply(request, &response).ok());
  EXPECT_NE(response.q().data(), request.q().data());
  *request.mutable_q() = response.q();
  request.set_direction(v1::DIRECTION_INVERSE);
  ASSERT_TRUE(Apply(request, &response).ok());
  for (const double x : Elements<double>(response.q())) {
    EXPECT_NEAR(x, 0.5, 1e-14);
  }
}

TEST_F(RpcTest, EmptyTensorsComeBackEmpty) {
  v1::ApplyRopeRequest request;
  request.mutable_rope()->mutable_spec()->set_pairing(v1::PAIRING_HALF_SPLIT);
  request.mutable_positions()->set_start(0);
  request.set_layout(v1::LAYOUT_BSHD);
  for (const std::vector<std::int64_t>& shape :
       {std::vector<std::int64_t>{0, 4, 2, 8}, {2, 0, 2, 8}, {2, 4, 0, 8}}) {
    SetTensor<float>(v1::DTYPE_FLOAT32, shape, {}, request.mutable_q());
    v1::ApplyRopeResponse response;
    const grpc::Status status = Apply(request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_THAT(response.q().shape(), testing::ElementsAreArray(shape));
    EXPECT_TRUE(response.q().data().empty());
  }
}

v1::BuildTableRequest RotaryTable(int width) {
  v1::BuildTableRequest request;
  v1::RopeSpec* const spec = request.mutable_rope()->mutable_spec();
  spec->set_pairing(v1::PAIRING_HALF_SPLIT);
  spec->set_rotary_dim(width);
  return request;
}

TEST_F(RpcTest, BuildTableDefaultsToHalfCosinesAndSines) {
  v1::BuildTableRequest request = RotaryTable(8);
  request.mutable_positions()->set_start(-2);
  request.set_rows(100);
  v1::BuildTableResponse response;
  const grpc::Status status = Table(request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.amplitude(), 1);
  EXPECT_FALSE(response.has_table());
  EXPECT_THAT(response.cos().shape(), ElementsAre(100, 4));
  EXPECT_THAT(response.sin().shape(), ElementsAre(100, 4));
  const std::vector<float> cos = Elements<float>(response.cos());
  const std::vector<float> sin = Elements<float>(response.sin());
  ASSERT_EQ(cos.size(), 400u);
  ASSERT_EQ(sin.size(), 400u);
  for (int row = 0; row < 100; ++row) {
    for (int i = 0; i < 4; ++i) {
      const double phi = (row - 2) * Frequency(i, 8);
      EXPECT_NEAR(cos[row * 4 + i], std::cos(phi), kTableError);
      EXPECT_NEAR(sin[row * 4 + i], std::sin(phi), kTableError);
    }
  }
}

TEST_F(RpcTest, BuildTableArrangesComplexRowsOfFractionalIds) {
  v1::BuildTableRequest request = RotaryTable(4);
  SetTensor<double>(v1::DTYPE_FLOAT64, {2}, {0.5, 3.25},
                    request.mutable_positions()->mutable_ids());
  request.set_layout(v1::TABLE_LAYOUT_COMPLEX);
  request.set_dtype(v1::DTYPE_FLOAT64);
  v1::BuildTableResponse response;
  const grpc::Status status = Table(request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_FALSE(response.has_cos());
  EXPECT_THAT(response.table().shape(), ElementsAre(2, 2, 2));
  const std::vector<double> table = Elements<double>(response.table());
  ASSERT_EQ(table.size(), 8u);
  const double positions[] = {0.5, 3.25};
  for (int i = 0; i < 4; ++i) {
    const double phi = positions[i / 2] * Frequency(i % 2, 4);
    EXPECT_NEAR(table[2 * i], std::cos(phi), 1e-15);
    EXPECT_NEAR(table[2 * i + 1], std::sin(phi), 1e-15);
  }
}

TEST_F(RpcTest, BuildTableTakesItsRowsFromPackedPositions) {
  v1::BuildTableRequest request = RotaryTable(2);
  for (const int end : {0, 3, 5}) {
    request.mutable_positions()->mutable_packed()->add_cu_seqlens(end);
  }
  request.set_layout(v1::TABLE_LAYOUT_DUPLICATED);
  v1::BuildTableResponse response;
  const grpc::Status status = Table(request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_THAT(response.sin().shape(), ElementsAre(5, 2));
  const std::vector<float> sin = Elements<float>(response.sin());
  ASSERT_EQ(sin.size(), 10u);
  const int positions[] = {0, 1, 2, 0, 1};
  for (int i = 0; i < 10; ++i) {
    EXPECT_NEAR(sin[i], std::sin(positions[i / 2]), kTableError);
  }
}

TEST_F(RpcTest, BuildTableBuildsSinusoidalRows) {
  v1::BuildTableRequest request;
  v1::Sinusoidal* const encoding =
      request.mutable_absolute()->mutable_sinusoidal();
  encoding->set_dim(6);
  encoding->set_order(v1::SINUSOIDAL_ORDER_INTERLEAVED);
  request.mutable_positions()->set_start(0);
  request.set_rows(50);
  v1::BuildTableResponse response;
  const grpc::Status status = Table(request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_THAT(response.table().shape(), ElementsAre(50, 6));
  const std::vector<float> table = Elements<float>(response.table());
  ASSERT_EQ(table.size(), 300u);
  for (int row = 0; row < 50; ++row) {
    for (int c = 0; c < 6; ++c) {
      const double phi = row * Frequency(c / 2, 6);
      EXPECT_NEAR(table[row * 6 + c], c % 2 ? std::cos(phi) : std::sin(phi),
                  kTableError);
    }
  }
}

TEST_F(RpcTest, BuildTableOfNoPositionIdsIsEmpty) {
  v1::BuildTableRequest request = RotaryTable(8);
  SetTensor<std::int64_t>(v1::DTYPE_INT64, {0}, {},
                          request.mutable_positions()->mutable_ids());
  v1::BuildTableResponse response;
  const grpc::Status status = Table(request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_THAT(response.cos().shape(), ElementsAre(0, 4));
  EXPECT_TRUE(response.cos().data().empty());
}

TEST_F(RpcTest, ResolveRopeCompletesTheSpecAndExplainsTheDifference) {
  v1::ResolveRopeRequest request;
  v1::RopeSpec* const spec = request.mutable_rope()->mutable_spec();
  spec->set_pairing(v1::PAIRING_INTERLEAVED);
  spec->mutable_linear()->set_factor(4);
  request.set_head_dim(16);
  request.mutable_compare_with()->mutable_spec()->set_pairing(
      v1::PAIRING_INTERLEAVED);
  v1::ResolveRopeResponse response;
  const grpc::Status status = Resolve(request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.head_dim(), 16);
  EXPECT_EQ(response.spec().rotary_dim(), 16);
  EXPECT_EQ(response.spec().slice(), v1::ROTARY_SLICE_LEADING);
  EXPECT_EQ(response.spec().rope_theta(), 10000);
  EXPECT_EQ(response.spec().output_pairing(), v1::PAIRING_INTERLEAVED);
  EXPECT_EQ(response.spec().angle_precision(), v1::ANGLE_PRECISION_EXACT);
  EXPECT_EQ(response.spec().linear().factor(), 4);
  ASSERT_EQ(response.inv_freq_size(), 8);
  for (int i = 0; i < 8; ++i) {
    EXPECT_DOUBLE_EQ(response.inv_freq(i), Frequency(i, 16) / 4);
  }
  EXPECT_EQ(response.amplitude(), 1);
  EXPECT_EQ(response.softmax_scale_multiplier(), 1);
  EXPECT_THAT(response.content_hash(), MatchesRegex("[0-9a-f]{64}"));
  ASSERT_TRUE(response.has_difference());
  EXPECT_FALSE(response.difference().equal());
  // Angles of pair 0 differ by 3/4 rad at position 1.
  EXPECT_EQ(response.difference().first_diverging_position(), 1);
}

TEST_F(RpcTest, ResolveRopeAssumesTheOriginalLengthAndSaysSo) {
  v1::ResolveRopeRequest request;
  v1::RopeSpec* const spec = request.mutable_rope()->mutable_spec();
  spec->set_pairing(v1::PAIRING_HALF_SPLIT);
  spec->mutable_dynamic_ntk()->set_factor(2);
  spec->mutable_dynamic_ntk()->set_max_position_embeddings(2048);
  request.set_head_dim(64);
  v1::ResolveRopeResponse response;
  const grpc::Status status = Resolve(request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(response.inv_freq_size(), 32);
  EXPECT_DOUBLE_EQ(response.inv_freq(31), Frequency(31, 64));
  bool said = false;
  for (const v1::Assumption& assumption : response.assumptions()) {
    said = said ||
           (assumption.field().find("sequence_length") != std::string::npos &&
            assumption.value() == "2048");
  }
  EXPECT_TRUE(said) << response.DebugString();
}

TEST_F(RpcTest, ResolveRopeReadsPresets) {
  v1::ResolveRopeRequest request;
  request.mutable_rope()->set_preset("llama-3.1-8b");
  v1::ResolveRopeResponse response;
  const grpc::Status status = Resolve(request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.head_dim(), 128);
  EXPECT_EQ(response.spec().rope_theta(), 500000);
  EXPECT_EQ(response.spec().llama3().factor(), 8);
  EXPECT_EQ(response.inv_freq_size(), 64);
  EXPECT_FALSE(response.has_difference());
}

TEST_F(RpcTest, InProcessChannelCarriesMoreThanGrpcsOwnLimit) {
  v1::BuildTableRequest request = RotaryTable(128);
  request.mutable_positions()->set_start(0);
  request.set_rows(20000);  // 2 x 5 MB; gRPC's clients accept 4 MiB unless told
  auto stub =
      v1::PositionalEncodingService::NewStub(server_->InProcessChannel());
  grpc::ClientContext context;
  v1::BuildTableResponse response;
  const grpc::Status status = stub->BuildTable(&context, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.cos().data().size(), 20000u * 64 * 4);
}

}  // namespace
}  // namespace posenc::server
