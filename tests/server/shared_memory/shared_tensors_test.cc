// RPCs with tensors in shared memory, over a unix socket: the bytes equal those
// of the same call by wire.

#include "tests/fixtures/shared_tensors.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace posenc::server {
namespace {

using SharedTensorsTest = SharedTensorsFixture;

TEST_F(SharedTensorsTest, RotatesInPlaceAsByWire) {
  for (v1::ApplyRopeRequest request : {GoodApply(), LargeApply()}) {
    v1::ApplyRopeResponse wire, response;
    ASSERT_TRUE(Apply(request, &wire).ok());
    const std::size_t q = request.q().data().size(),
                      k = request.k().data().size();
    SharedMemoryFile file(q + k + 64);
    Share(&file, 3, request.mutable_q());  // any alignment
    Share(&file, 3 + q, request.mutable_k());
    *request.mutable_q_output() = request.q().shared();
    *request.mutable_k_output() = request.k().shared();
    const grpc::Status status = Apply(request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    ExpectShared(response.q(), request.q_output(), wire.q());
    ExpectShared(response.k(), request.k_output(), wire.k());
    EXPECT_EQ(file.Read(3, q), wire.q().data());
    EXPECT_EQ(file.Read(3 + q, k), wire.k().data());
    // Bytes beside the tensors are unchanged.
    EXPECT_EQ(file.Read(0, 3), std::string(3, '\0'));
    EXPECT_EQ(file.Read(3 + q + k, 61), std::string(61, '\0'));
  }
  ExpectNothingInFlight();
}

TEST_F(SharedTensorsTest, RotatesOutOfPlaceAndLeavesTheInput) {
  v1::ApplyRopeRequest request = LargeApply();
  request.clear_k();
  v1::ApplyRopeResponse wire, response;
  ASSERT_TRUE(Apply(request, &wire).ok());
  const std::string before = request.q().data();
  SharedMemoryFile in(before.size()), out(before.size());
  Share(&in, 0, request.mutable_q());
  Name(out, 0, request.mutable_q_output());
  ASSERT_TRUE(Apply(request, &response).ok());
  ExpectShared(response.q(), request.q_output(), wire.q());
  EXPECT_EQ(out.Read(0, before.size()), wire.q().data());
  EXPECT_EQ(in.Read(0, before.size()), before);
}

TEST_F(SharedTensorsTest, InputsAndOutputsMayEachBeSharedAlone) {
  const v1::ApplyRopeRequest sent = LargeApply();
  v1::ApplyRopeResponse wire;
  ASSERT_TRUE(Apply(sent, &wire).ok());
  SharedMemoryFile file(sent.q().data().size());
  {
    v1::ApplyRopeRequest request = sent;
    v1::ApplyRopeResponse response;
    Share(&file, 0, request.mutable_q());
    ASSERT_TRUE(Apply(request, &response).ok());
    EXPECT_EQ(response.q().SerializeAsString(), wire.q().SerializeAsString());
    EXPECT_EQ(response.k().SerializeAsString(), wire.k().SerializeAsString());
    EXPECT_EQ(file.Read(0, file.bytes()), sent.q().data());
  }
  {
    v1::ApplyRopeRequest request = sent;
    v1::ApplyRopeResponse response;
    Name(file, 0, request.mutable_q_output());
    ASSERT_TRUE(Apply(request, &response).ok());
    ExpectShared(response.q(), request.q_output(), wire.q());
    EXPECT_EQ(response.k().SerializeAsString(), wire.k().SerializeAsString());
    EXPECT_EQ(file.Read(0, file.bytes()), wire.q().data());
  }
}

TEST_F(SharedTensorsTest, TensorsThatAreWrittenOutStaySoBesideSharedOnes) {
  v1::ApplyRopeRequest request = GoodApply();
  v1::ApplyRopeResponse wire, response;
  const std::vector<float> k = Elements<float>(request.k());
  request.mutable_k()->clear_data();
  request.mutable_k()->mutable_values()->Add(k.begin(), k.end());
  ASSERT_TRUE(Apply(request, &wire).ok());
  SharedMemoryFile file(4096);
  Share(&file, 0, request.mutable_q());
  *request.mutable_q_output() = request.q().shared();
  ASSERT_TRUE(Apply(request, &response).ok());
  ExpectShared(response.q(), request.q_output(), wire.q());
  EXPECT_EQ(file.Read(0, wire.q().data().size()), wire.q().data());
  EXPECT_EQ(response.k().SerializeAsString(), wire.k().SerializeAsString());
  // Values may go to shared memory too.
  Name(file, 1024, request.mutable_k_output());
  Share(&file, 0, request.mutable_q());
  ASSERT_TRUE(Apply(request, &response).ok());
  ExpectShared(response.k(), request.k_output(), wire.k());
}

TEST_F(SharedTensorsTest, EmptyTensorsMayBeShared) {
  v1::ApplyRopeRequest request = GoodApply();
  SetTensor<float>(v1::DTYPE_FLOAT32, {1, 2, 0, 8}, {}, request.mutable_k());
  SharedMemoryFile file(16);
  Name(file, 16, request.mutable_k()->mutable_shared());
  *request.mutable_k_output() = request.k().shared();
  v1::ApplyRopeResponse response;
  const grpc::Status status = Apply(request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ExpectShared(response.k(), request.k_output(), request.k());
}

TEST_F(SharedTensorsTest, RepositionsInPlaceAsByWire) {
  v1::RepositionRequest request;
  request.mutable_old_rope()->mutable_spec()->set_pairing(
      v1::PAIRING_HALF_SPLIT);
  request.mutable_movement()->set_shift(3);
  request.set_layout(v1::LAYOUT_BSHD);
  SetTensor(v1::DTYPE_FLOAT32, {1, 2, 1, 8}, Numbers(16), request.mutable_k());
  v1::RepositionResponse wire, response;
  ASSERT_TRUE(Call(&Stub::Reposition, request, &wire).ok());
  SharedMemoryFile file(64);
  Share(&file, 0, request.mutable_k());
  *request.mutable_k_output() = request.k().shared();
  const grpc::Status status = Call(&Stub::Reposition, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ExpectShared(response.k(), request.k_output(), wire.k());
  EXPECT_EQ(file.Read(0, 64), wire.k().data());
}

v1::AddEncodingRequest GoodAdd() {
  v1::AddEncodingRequest request;
  auto* const sinusoidal = request.mutable_encoding()->mutable_sinusoidal();
  sinusoidal->set_dim(8);
  sinusoidal->set_order(v1::SINUSOIDAL_ORDER_SIN_COS);
  request.mutable_positions()->set_start(0);
  SetTensor(v1::DTYPE_FLOAT32, {4, 8}, Numbers(32), request.mutable_x());
  return request;
}

TEST_F(SharedTensorsTest, AddsEncodingsInPlaceAsByWire) {
  v1::AddEncodingRequest request = GoodAdd();
  v1::AddEncodingResponse wire, response;
  ASSERT_TRUE(Call(&Stub::AddEncoding, request, &wire).ok());
  SharedMemoryFile file(128);
  Share(&file, 0, request.mutable_x());
  *request.mutable_x_output() = request.x().shared();
  ASSERT_TRUE(Call(&Stub::AddEncoding, request, &response).ok());
  ExpectShared(response.x(), request.x_output(), wire.x());
  EXPECT_EQ(file.Read(0, 128), wire.x().data());
}

// Rows become longer, so they cannot stay in place.
TEST_F(SharedTensorsTest, ConcatenatesIntoAPlaceOfItsOwnOnly) {
  v1::AddEncodingRequest request = GoodAdd();
  request.set_combination(v1::COMBINATION_CONCATENATE);
  v1::AddEncodingResponse wire, response;
  ASSERT_TRUE(Call(&Stub::AddEncoding, request, &wire).ok());
  const std::size_t bytes = wire.x().data().size();
  SharedMemoryFile file(128 + bytes);
  Share(&file, 0, request.mutable_x());
  Name(file, 128, request.mutable_x_output());
  ASSERT_TRUE(Call(&Stub::AddEncoding, request, &response).ok());
  EXPECT_EQ(file.Read(128, bytes), wire.x().data());
  *request.mutable_x_output() = request.x().shared();
  ExpectError(Call(&Stub::AddEncoding, request, &response),
              {kInvalid, "FIELD_INVALID", "x_output", {"x.shared"}});
}

TEST_F(SharedTensorsTest, ConvertsPairingsIntoAPlaceOfItsOwnOnly) {
  v1::ConvertPairingRequest request;
  request.set_old_pairing(v1::PAIRING_INTERLEAVED);
  request.set_new_pairing(v1::PAIRING_HALF_SPLIT);
  request.set_heads(2);
  SetTensor(v1::DTYPE_FLOAT32, {8, 4}, Numbers(32), request.mutable_weight());
  v1::ConvertPairingResponse wire, response;
  ASSERT_TRUE(Call(&Stub::ConvertPairing, request, &wire).ok());
  SharedMemoryFile file(1024);
  Share(&file, 0, request.mutable_weight());
  for (const std::size_t at : {128u, 321u}) {  // aligned, and not
    Name(file, at, request.mutable_weight_output());
    ASSERT_TRUE(Call(&Stub::ConvertPairing, request, &response).ok());
    ExpectShared(response.weight(), request.weight_output(), wire.weight());
    EXPECT_EQ(file.Read(at, 128), wire.weight().data());
  }
  *request.mutable_weight_output() = request.weight().shared();
  ExpectError(Call(&Stub::ConvertPairing, request, &response),
              {kInvalid, "FIELD_INVALID", "weight_output", {"weight.shared"}});
}

TEST_F(SharedTensorsTest, ScoresOfSharedHeadsGoToSharedMemory) {
  v1::ScoreRelativeRequest request;
  SetTensor(v1::DTYPE_FLOAT32, {1, 2, 3, 4}, Numbers(24), request.mutable_q());
  SetTensor(v1::DTYPE_FLOAT32, {1, 2, 5, 4}, Numbers(40), request.mutable_k());
  auto* const shaw = request.mutable_score()->mutable_shaw();
  SetTensor(v1::DTYPE_FLOAT32, {3, 4}, Numbers(12), shaw->mutable_key_table());
  v1::ScoreRelativeResponse wire, response;
  const grpc::Status sent = Call(&Stub::ScoreRelative, request, &wire);
  ASSERT_TRUE(sent.ok()) << sent.error_message();
  SharedMemoryFile file(4096);
  Share(&file, 1, request.mutable_q());
  Share(&file, 128, request.mutable_k());
  Share(&file, 512, shaw->mutable_key_table());
  Name(file, 1024, request.mutable_scores_output());
  const grpc::Status status = Call(&Stub::ScoreRelative, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ExpectShared(response.scores(), request.scores_output(), wire.scores());
  EXPECT_EQ(file.Read(1024, wire.scores().data().size()), wire.scores().data());
}

// These tables are larger than the second server's limit of responses.
TEST_F(SharedTensorsTest, TablesGoToSharedMemoryWhateverTheirSize) {
  v1::BuildTableRequest request = LargeTable();
  v1::BuildTableResponse wire, response;
  ASSERT_TRUE(Table(request, &wire).ok());
  SharedMemoryFile file(wire.cos().data().size() * 2);
  Name(file, 0, request.mutable_cos_output());
  Name(file, wire.cos().data().size(), request.mutable_sin_output());
  StartWith({.max_response_bytes = 4096});
  const grpc::Status status = Table(request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ExpectShared(response.cos(), request.cos_output(), wire.cos());
  ExpectShared(response.sin(), request.sin_output(), wire.sin());
  EXPECT_EQ(response.amplitude(), wire.amplitude());
  EXPECT_EQ(file.Read(0, wire.cos().data().size()), wire.cos().data());
  EXPECT_EQ(file.Read(wire.cos().data().size(), wire.sin().data().size()),
            wire.sin().data());
  request.clear_sin_output();
  EXPECT_EQ(Table(request, &response).error_code(), kExhausted);
}

TEST_F(SharedTensorsTest, SmallTensorsAreReadFromSharedMemory) {
  v1::ApplyRopeRequest request = GoodApply();
  SetTensor<std::int64_t>(v1::DTYPE_INT64, {2}, {5, 9},
                          request.mutable_positions()->mutable_ids());
  v1::ApplyRopeResponse wire, response;
  ASSERT_TRUE(Apply(request, &wire).ok());
  SharedMemoryFile file(64);
  Share(&file, 8, request.mutable_positions()->mutable_ids());
  const grpc::Status status = Apply(request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.SerializeAsString(), wire.SerializeAsString());
  // The server checks ids in shared memory in the same way as ids in a message.
  const std::int64_t bad[] = {5, std::int64_t{1} << 40};
  file.Write(8, std::string(reinterpret_cast<const char*>(bad), sizeof(bad)));
  EXPECT_EQ(Apply(request, &response).error_code(), kOutOfRange);
}

}  // namespace
}  // namespace posenc::server
