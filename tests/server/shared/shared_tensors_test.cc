// RPCs whose tensors lie in shared memory, over a unix socket: the bytes are
// those of the same call by wire, and what is not allowed is refused.

#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/fixtures/server_errors.h"
#include "tests/fixtures/shared_memory.h"

namespace posenc::server {
namespace {

using test::SharedMemoryFile;
using testing::HasSubstr;

class SharedTensorsTest : public ErrorTest {
 protected:
  void SetUp() override {
    // Short enough for a socket's address.
    socket_ = "/tmp/posenc_shared_" + std::to_string(getpid()) + ".sock";
    ServerOptions options;
    options.listen = {"unix:" + socket_, "127.0.0.1:0"};
    options.shared_memory.prefix =
        test::kSharedDirectory + test::SharedPrefix();
    Start(options);
  }

  // Calls over TCP from now on.
  void UseTcp() {
    channel_ = Connect(server_->addresses()[1]);
    stub_ = v1::PositionalEncodingService::NewStub(channel_);
  }

  // As gRPC's retry policy calls again. A channel that may retry by itself
  // would take the header away.
  grpc::Status ApplyAgain(const v1::ApplyRopeRequest& request,
                          v1::ApplyRopeResponse* response) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
    const auto stub =
        v1::PositionalEncodingService::NewStub(grpc::CreateCustomChannel(
            server_->addresses()[0], grpc::InsecureChannelCredentials(),
            arguments));
    grpc::ClientContext context;
    context.set_deadline(Deadline());
    context.AddMetadata("grpc-previous-rpc-attempts", "1");
    return stub->ApplyRope(&context, request, response);
  }

  // Puts a tensor's data at `offset` of the file.
  static void Share(SharedMemoryFile* file, std::size_t offset,
                    v1::Tensor* tensor) {
    file->Write(offset, tensor->data());
    tensor->clear_data();
    Name(*file, offset, tensor->mutable_shared());
  }
  static void Name(const SharedMemoryFile& file, std::size_t offset,
                   v1::SharedMemory* place) {
    place->set_name(file.name());
    place->set_offset(static_cast<std::int64_t>(offset));
  }

  static void ExpectShared(const v1::Tensor& tensor,
                           const v1::SharedMemory& place,
                           const v1::Tensor& like) {
    EXPECT_EQ(tensor.dtype(), like.dtype());
    EXPECT_EQ(
        std::vector<std::int64_t>(tensor.shape().begin(), tensor.shape().end()),
        std::vector<std::int64_t>(like.shape().begin(), like.shape().end()));
    EXPECT_EQ(tensor.data(), "");
    EXPECT_EQ(tensor.values_size(), 0);
    EXPECT_EQ(tensor.shared().SerializeAsString(), place.SerializeAsString());
  }

  std::string socket_;
};

std::vector<float> Numbers(std::size_t n) {
  std::vector<float> numbers(n);
  for (std::size_t i = 0; i < n; ++i) {
    numbers[i] = static_cast<float>((i * 7919) % 1000) / 500 - 1;
  }
  return numbers;
}

// 2 MiB of q and 512 KiB of k: several tiles.
v1::ApplyRopeRequest LargeApply() {
  v1::ApplyRopeRequest request = GoodApply();
  SetTensor(v1::DTYPE_FLOAT32, {1, 512, 16, 64}, Numbers(512 * 16 * 64),
            request.mutable_q());
  SetTensor(v1::DTYPE_FLOAT32, {1, 512, 4, 64}, Numbers(512 * 4 * 64),
            request.mutable_k());
  return request;
}

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
    // Nothing beside the tensors.
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

// A row becomes longer, so that it does not stay where it is.
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
  Expect<v1::AddEncodingRequest>(
      {"InPlace", {}, kInvalid, "FIELD_INVALID", "x_output", {"x.shared"}},
      Call(&Stub::AddEncoding, request, &response));
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
  Expect<v1::ConvertPairingRequest>(
      {"InPlace",
       {},
       kInvalid,
       "FIELD_INVALID",
       "weight_output",
       {"weight.shared"}},
      Call(&Stub::ConvertPairing, request, &response));
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

// Larger than any response may be.
TEST_F(SharedTensorsTest, TablesGoToSharedMemoryWhateverTheirSize) {
  v1::BuildTableRequest request = LargeTable();
  v1::BuildTableResponse wire, response;
  ASSERT_TRUE(Table(request, &wire).ok());
  SharedMemoryFile file(wire.cos().data().size() * 2);
  Name(file, 0, request.mutable_cos_output());
  Name(file, wire.cos().data().size(), request.mutable_sin_output());
  ServerOptions options;
  options.listen = {"unix:" + socket_ + ".small"};
  options.limits.max_response_bytes = 4096;
  options.shared_memory.prefix = test::kSharedDirectory + test::SharedPrefix();
  Start(options);
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
  // They are checked as if they had been sent.
  const std::int64_t bad[] = {5, std::int64_t{1} << 40};
  file.Write(8, std::string(reinterpret_cast<const char*>(bad), sizeof(bad)));
  EXPECT_EQ(Apply(request, &response).error_code(), kOutOfRange);
}

TEST_F(SharedTensorsTest, CopiesOfSmallTensorsAreBoundedAndClaimed) {
  ServerOptions options;
  options.listen = {"unix:" + socket_ + ".small"};
  options.limits.max_request_bytes = 4096;
  options.shared_memory.prefix = test::kSharedDirectory + test::SharedPrefix();
  Start(options);
  v1::ApplyRopeRequest request = GoodApply();
  v1::Tensor* const ids = request.mutable_positions()->mutable_ids();
  ids->set_dtype(v1::DTYPE_INT64);
  ids->add_shape(1024);
  SharedMemoryFile file(8192);
  Name(file, 0, ids->mutable_shared());
  v1::ApplyRopeResponse response;
  Expect<v1::ApplyRopeRequest>({"Large",
                                {},
                                kExhausted,
                                "MESSAGE_TOO_LARGE",
                                "positions.ids.shared",
                                {"8192", "4096"}},
                               Apply(request, &response));
}

TEST_F(SharedTensorsTest, RefusesPlacesThatAreWrong) {
  SharedMemoryFile file(4096), other(64);
  v1::ApplyRopeRequest good = GoodApply();
  Share(&file, 0, good.mutable_q());
  Share(&file, 128, good.mutable_k());
  const auto not_found = grpc::StatusCode::NOT_FOUND;
  using A = v1::ApplyRopeRequest;
  const auto shared = [](A& r) { return r.mutable_q()->mutable_shared(); };
  ExpectAll<A, v1::ApplyRopeResponse>(
      good,
      {
          {"BesideData",
           [](A& r) { r.mutable_q()->set_data("x"); },
           kInvalid,
           "FIELD_INVALID",
           "q.shared",
           {"beside data"}},
          {"BesideValues",
           [](A& r) { r.mutable_q()->add_values(1); },
           kInvalid,
           "FIELD_INVALID",
           "q.shared",
           {"beside values"}},
          {"NoDtype",
           [](A& r) { r.mutable_q()->clear_dtype(); },
           kInvalid,
           "FIELD_REQUIRED",
           "q.dtype",
           {}},
          {"NegativeExtent",
           [](A& r) { r.mutable_q()->set_shape(0, -1); },
           kInvalid,
           "FIELD_INVALID",
           "q.shape",
           {}},
          {"NoName",
           [=](A& r) { shared(r)->clear_name(); },
           kInvalid,
           "FIELD_INVALID",
           "q.shared.name",
           {}},
          {"UpAndOut",
           [=](A& r) { shared(r)->set_name("../etc/passwd"); },
           kInvalid,
           "FIELD_INVALID",
           "q.shared.name",
           {}},
          {"OutsideThePrefix",
           [=](A& r) { shared(r)->set_name("sem.other"); },
           not_found,
           "SHARED_MEMORY_UNAVAILABLE",
           "q.shared.name",
           {}},
          {"Nothing",
           [=](A& r) { shared(r)->set_name(test::SharedPrefix()); },
           not_found,
           "SHARED_MEMORY_UNAVAILABLE",
           "q.shared.name",
           {}},
          {"NegativeOffset",
           [=](A& r) { shared(r)->set_offset(-1); },
           kInvalid,
           "FIELD_INVALID",
           "q.shared.offset",
           {}},
          {"PastTheEnd",
           [=](A& r) { shared(r)->set_offset(4096 - 127); },
           kInvalid,
           "FIELD_INVALID",
           "q.shared.offset",
           {"4096"}},
          {"PastEverything",
           [=](A& r) {
             shared(r)->set_offset(std::numeric_limits<std::int64_t>::max());
           },
           kInvalid,
           "FIELD_INVALID",
           "q.shared.offset",
           {}},
          {"OutputInAShortFile",
           [&](A& r) { Name(other, 0, r.mutable_q_output()); },
           kInvalid,
           "FIELD_INVALID",
           "q_output.offset",
           {"64"}},
          {"OutputWithoutATensor",
           [&](A& r) {
             r.clear_k();
             Name(file, 1024, r.mutable_k_output());
           },
           kInvalid,
           "FIELD_INVALID",
           "k_output",
           {"no k"}},
          {"OutputsOverlap",
           [&](A& r) {
             Name(file, 1024, r.mutable_q_output());
             Name(file, 1024 + 127, r.mutable_k_output());
           },
           kInvalid,
           "FIELD_INVALID",
           "k_output",
           {"q_output"}},
          {"HalfInPlace",
           [&](A& r) { Name(file, 1, r.mutable_k_output()); },
           kInvalid,
           "FIELD_INVALID",
           "k_output",
           {"q.shared"}},
          {"OverTheOtherInput",
           [&](A& r) { Name(file, 0, r.mutable_k_output()); },
           kInvalid,
           "FIELD_INVALID",
           "k_output",
           {"q.shared"}},
          {"InPlaceOfTwoInputs",
           [&](A& r) {
             *r.mutable_k() = r.q();
             *r.mutable_q_output() = r.q().shared();
           },
           kInvalid,
           "FIELD_INVALID",
           "q_output",
           {"k.shared"}},
          {"OverPositions",
           [&](A& r) {
             v1::Tensor* const ids = r.mutable_positions()->mutable_ids();
             ids->set_dtype(v1::DTYPE_INT64);
             ids->add_shape(2);
             Name(file, 1024, ids->mutable_shared());
             Name(file, 1024, r.mutable_q_output());
           },
           kInvalid,
           "FIELD_INVALID",
           "q_output",
           {"positions.ids.shared"}},
      },
      &Stub::ApplyRope);
}

// The second try might rotate twice.
TEST_F(SharedTensorsTest, RefusesRetriesOfWhatIsDoneInPlaceAndNoOthers) {
  v1::ApplyRopeRequest request = GoodApply();
  request.clear_k();
  SharedMemoryFile file(256);
  Share(&file, 0, request.mutable_q());
  const std::string before = file.Read(0, 128);
  Name(file, 128, request.mutable_q_output());
  v1::ApplyRopeResponse response;
  EXPECT_TRUE(ApplyAgain(request, &response).ok());
  *request.mutable_q_output() = request.q().shared();
  Expect<v1::ApplyRopeRequest>({"Again",
                                {},
                                grpc::StatusCode::ABORTED,
                                "NOT_REPEATABLE",
                                "q_output",
                                {}},
                               ApplyAgain(request, &response));
  EXPECT_EQ(file.Read(0, 128), before);
  EXPECT_TRUE(Apply(request, &response).ok());
}

TEST_F(SharedTensorsTest, StreamsTakeNoSharedMemory) {
  SharedMemoryFile file(4096);
  const auto refuses = [&](const char* method, const auto& request,
                           const char* field) {
    std::string response;
    const grpc::Status status = RawUnary(
        channel_, std::string("/posenc.v1.PositionalEncodingService/") + method,
        request.SerializeAsString(), &response);
    EXPECT_EQ(status.error_code(), kInvalid) << method;
    EXPECT_EQ(ReadDetails(status).metadata["field"], field);
  };
  v1::ApplyRopeRequest apply = GoodApply();
  Name(file, 0, apply.mutable_q_output());
  refuses("ApplyRopeStream", apply, "q_output");
  apply.clear_q_output();
  Share(&file, 0, apply.mutable_k());
  refuses("ApplyRopeStream", apply, "k.shared");
  v1::RepositionRequest move;
  Name(file, 0, move.mutable_k()->mutable_shared());
  refuses("RepositionStream", move, "k.shared");
  v1::BuildTableStreamRequest table;
  *table.mutable_table() = LargeTable();
  Name(file, 0, table.mutable_table()->mutable_cos_output());
  refuses("BuildTableStream", table, "table.cos_output");
  v1::BuildBiasRequest bias;
  Name(file, 0,
       bias.mutable_bias()->mutable_t5()->mutable_weights()->mutable_shared());
  refuses("BuildBias", bias, "bias.t5.weights.shared");
}

TEST_F(SharedTensorsTest, CallersOverTcpMayNot) {
  v1::ApplyRopeRequest request = GoodApply();
  SharedMemoryFile file(4096);
  Share(&file, 0, request.mutable_q());
  v1::GetServerInfoResponse info;
  ASSERT_TRUE(
      Call(&Stub::GetServerInfo, v1::GetServerInfoRequest(), &info).ok());
  EXPECT_EQ(info.shared_memory().directory(), "/dev/shm");
  EXPECT_EQ(info.shared_memory().prefix(), test::SharedPrefix());
  EXPECT_GT(info.shared_memory().max_bytes(), 0);
  UseTcp();
  v1::ApplyRopeResponse response;
  // The peer is looked at before the name.
  for (const std::string& name : {file.name(), std::string("../x")}) {
    request.mutable_q()->mutable_shared()->set_name(name);
    Expect<v1::ApplyRopeRequest>({"Tcp",
                                  {},
                                  grpc::StatusCode::PERMISSION_DENIED,
                                  "SHARED_MEMORY_UNAVAILABLE",
                                  "q.shared",
                                  {"unix"}},
                                 Apply(request, &response));
  }
  ASSERT_TRUE(
      Call(&Stub::GetServerInfo, v1::GetServerInfoRequest(), &info).ok());
  EXPECT_FALSE(info.has_shared_memory());
}

TEST_F(SharedTensorsTest, CallersOverLoopbackMayIfTheyAreLetIn) {
  ServerOptions options;
  options.listen = {"127.0.0.1:0"};
  options.shared_memory.prefix = test::kSharedDirectory + test::SharedPrefix();
  options.shared_memory.from = "loopback";
  Start(options);
  v1::ApplyRopeRequest request = GoodApply();
  SharedMemoryFile file(4096);
  Share(&file, 0, request.mutable_q());
  v1::ApplyRopeResponse response;
  EXPECT_TRUE(Apply(request, &response).ok());
}

TEST_F(SharedTensorsTest, ServersWithoutSharedMemorySaySo) {
  ServerOptions options;
  options.listen = {"unix:" + socket_ + ".off"};
  Start(options);
  v1::GetServerInfoResponse info;
  ASSERT_TRUE(
      Call(&Stub::GetServerInfo, v1::GetServerInfoRequest(), &info).ok());
  EXPECT_FALSE(info.has_shared_memory());
  v1::ApplyRopeRequest request = GoodApply();
  SharedMemoryFile file(4096);
  Name(file, 0, request.mutable_q_output());
  v1::ApplyRopeResponse response;
  Expect<v1::ApplyRopeRequest>(
      {"Off", {}, kUnimplemented, "SHARED_MEMORY_UNAVAILABLE", "q_output", {}},
      Apply(request, &response));
  Share(&file, 0, request.mutable_q());
  Expect<v1::ApplyRopeRequest>(
      {"Off", {}, kUnimplemented, "SHARED_MEMORY_UNAVAILABLE", "q.shared", {}},
      Apply(request, &response));
}

// What a call maps counts as bytes in flight while it runs.
TEST_F(SharedTensorsTest, MappedBytesAreClaimed) {
  ServerOptions options;
  options.listen = {"unix:" + socket_ + ".small"};
  options.limits.max_request_bytes = options.limits.max_response_bytes = 65536;
  options.limits.in_flight_bytes = 1 << 20;
  options.shared_memory.prefix = test::kSharedDirectory + test::SharedPrefix();
  Start(options);
  v1::ApplyRopeRequest request = LargeApply();
  request.clear_k();
  SharedMemoryFile file(request.q().data().size());
  Share(&file, 0, request.mutable_q());
  *request.mutable_q_output() = request.q().shared();
  v1::ApplyRopeResponse response;
  EXPECT_EQ(Apply(request, &response).error_code(), kExhausted);
  request.mutable_q()->set_shape(1, 64);
  EXPECT_TRUE(Apply(request, &response).ok());
  ExpectNothingInFlight();
}

}  // namespace
}  // namespace posenc::server
