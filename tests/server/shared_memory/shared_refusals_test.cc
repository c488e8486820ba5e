// Refused uses of shared memory: wrong places, retries of work in place,
// streams, callers over TCP, and more bytes than the limits.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>

#include "tests/fixtures/shared_tensors.h"

namespace posenc::server {
namespace {

using SharedRefusalsTest = SharedTensorsFixture;

TEST_F(SharedRefusalsTest, CopiesOfSmallTensorsAreBoundedAndClaimed) {
  StartWith({.max_request_bytes = 4096});
  v1::ApplyRopeRequest request = GoodApply();
  v1::Tensor* const ids = request.mutable_positions()->mutable_ids();
  ids->set_dtype(v1::DTYPE_INT64);
  ids->add_shape(1024);
  SharedMemoryFile file(8192);
  Name(file, 0, ids->mutable_shared());
  v1::ApplyRopeResponse response;
  ExpectError(Apply(request, &response), {kExhausted,
                                          "MESSAGE_TOO_LARGE",
                                          "positions.ids.shared",
                                          {"8192", "4096"}});
}

// A request of a few bytes may name a file of many MiB.
TEST_F(SharedRefusalsTest, CopiesThatTheBudgetCannotHoldAreRefused) {
  StartWith({.max_request_bytes = 4 << 20,
             .max_response_bytes = 4 << 20,
             .in_flight_bytes = 4 << 20});
  const auto held = HoldLargeTable();
  v1::ApplyRopeRequest request = GoodApply();
  v1::Tensor* const ids = request.mutable_positions()->mutable_ids();
  ids->set_dtype(v1::DTYPE_INT64);
  ids->add_shape(256 << 10);
  SharedMemoryFile file(2 << 20);
  Name(file, 0, ids->mutable_shared());
  v1::ApplyRopeResponse response;
  EXPECT_EQ(ReadDetails(Apply(request, &response)).reason,
            "ERROR_REASON_OVERLOADED");
}

TEST_F(SharedRefusalsTest, RefusesPlacesThatAreWrong) {
  SharedMemoryFile file(4096), other(64);
  v1::ApplyRopeRequest good = GoodApply();
  Share(&file, 0, good.mutable_q());
  Share(&file, 128, good.mutable_k());
  const auto not_found = grpc::StatusCode::NOT_FOUND;
  using A = v1::ApplyRopeRequest;
  const auto shared = [](A& r) { return r.mutable_q()->mutable_shared(); };
  const struct {
    const char* name;
    std::function<void(A&)> spoil;
    ExpectedError error;
  } cases[] = {
      {"BesideData",
       [](A& r) { r.mutable_q()->set_data("x"); },
       {kInvalid, "FIELD_INVALID", "q.shared", {"beside data"}}},
      {"BesideValues",
       [](A& r) { r.mutable_q()->add_values(1); },
       {kInvalid, "FIELD_INVALID", "q.shared", {"beside values"}}},
      {"NoDtype",
       [](A& r) { r.mutable_q()->clear_dtype(); },
       {kInvalid, "FIELD_REQUIRED", "q.dtype", {}}},
      {"NegativeExtent",
       [](A& r) { r.mutable_q()->set_shape(0, -1); },
       {kInvalid, "FIELD_INVALID", "q.shape", {}}},
      {"NoName",
       [=](A& r) { shared(r)->clear_name(); },
       {kInvalid, "FIELD_INVALID", "q.shared.name", {}}},
      {"UpAndOut",
       [=](A& r) { shared(r)->set_name("../etc/passwd"); },
       {kInvalid, "FIELD_INVALID", "q.shared.name", {}}},
      {"OutsideThePrefix",
       [=](A& r) { shared(r)->set_name("sem.other"); },
       {not_found, "SHARED_MEMORY_UNAVAILABLE", "q.shared.name", {}}},
      {"Nothing",
       [=](A& r) { shared(r)->set_name(test::SharedPrefix()); },
       {not_found, "SHARED_MEMORY_UNAVAILABLE", "q.shared.name", {}}},
      {"NegativeOffset",
       [=](A& r) { shared(r)->set_offset(-1); },
       {kInvalid, "FIELD_INVALID", "q.shared.offset", {}}},
      {"PastTheEnd",
       [=](A& r) { shared(r)->set_offset(4096 - 127); },
       {kInvalid, "FIELD_INVALID", "q.shared.offset", {"4096"}}},
      {"PastEverything",
       [=](A& r) {
         shared(r)->set_offset(std::numeric_limits<std::int64_t>::max());
       },
       {kInvalid, "FIELD_INVALID", "q.shared.offset", {}}},
      {"OutputInAShortFile",
       [&](A& r) { Name(other, 0, r.mutable_q_output()); },
       {kInvalid, "FIELD_INVALID", "q_output.offset", {"64"}}},
      {"OutputWithoutATensor",
       [&](A& r) {
         r.clear_k();
         Name(file, 1024, r.mutable_k_output());
       },
       {kInvalid, "FIELD_INVALID", "k_output", {"no k"}}},
      {"OutputsOverlap",
       [&](A& r) {
         Name(file, 1024, r.mutable_q_output());
         Name(file, 1024 + 127, r.mutable_k_output());
       },
       {kInvalid, "FIELD_INVALID", "k_output", {"q_output"}}},
      {"HalfInPlace",
       [&](A& r) { Name(file, 1, r.mutable_k_output()); },
       {kInvalid, "FIELD_INVALID", "k_output", {"q.shared"}}},
      {"OverTheOtherInput",
       [&](A& r) { Name(file, 0, r.mutable_k_output()); },
       {kInvalid, "FIELD_INVALID", "k_output", {"q.shared"}}},
      {"InPlaceOfTwoInputs",
       [&](A& r) {
         *r.mutable_k() = r.q();
         *r.mutable_q_output() = r.q().shared();
       },
       {kInvalid,
        "FIELD_INVALID",
        "q_output",
        {"overlaps k.shared; an output may overwrite only one tensor"}}},
      {"InPlaceOfAnotherPairing",
       [&](A& r) {
         r.mutable_rope()->mutable_spec()->set_output_pairing(
             v1::PAIRING_INTERLEAVED);
         Name(file, 0, r.mutable_q_output());
       },
       {kInvalid,
        "FIELD_INVALID",
        "q_output",
        {"q.shared", "changed pairing", "name another place"}}},
      {"OverPositions",
       [&](A& r) {
         v1::Tensor* const ids = r.mutable_positions()->mutable_ids();
         ids->set_dtype(v1::DTYPE_INT64);
         ids->add_shape(2);
         Name(file, 1024, ids->mutable_shared());
         Name(file, 1024, r.mutable_q_output());
       },
       {kInvalid, "FIELD_INVALID", "q_output", {"positions.ids.shared"}}},
  };
  v1::ApplyRopeResponse response;
  for (const auto& bad : cases) {
    SCOPED_TRACE(bad.name);
    A request = good;
    bad.spoil(request);
    ExpectError(Apply(request, &response), bad.error);
  }
  EXPECT_TRUE(Apply(good, &response).ok());
}

// A second try might rotate the tensor twice.
TEST_F(SharedRefusalsTest, RefusesOnlyRetriesOfCallsInPlace) {
  v1::ApplyRopeRequest request = GoodApply();
  request.clear_k();
  SharedMemoryFile file(256);
  Share(&file, 0, request.mutable_q());
  const std::string before = file.Read(0, 128);
  Name(file, 128, request.mutable_q_output());
  v1::ApplyRopeResponse response;
  EXPECT_TRUE(ApplyAgain(request, &response).ok());
  *request.mutable_q_output() = request.q().shared();
  ExpectError(ApplyAgain(request, &response),
              {grpc::StatusCode::ABORTED, "NOT_REPEATABLE", "q_output", {}});
  EXPECT_EQ(file.Read(0, 128), before);
  EXPECT_TRUE(Apply(request, &response).ok());
}

TEST_F(SharedRefusalsTest, StreamsTakeNoSharedMemory) {
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
  v1::ApplyRopeStreamRequest apply;
  *apply.mutable_call() = GoodApply();
  Name(file, 0, apply.mutable_call()->mutable_q_output());
  refuses("ApplyRopeStream", apply, "q_output");
  apply.mutable_call()->clear_q_output();
  Share(&file, 0, apply.mutable_call()->mutable_k());
  refuses("ApplyRopeStream", apply, "k.shared");
  v1::RepositionStreamRequest move;
  Name(file, 0, move.mutable_call()->mutable_k()->mutable_shared());
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

TEST_F(SharedRefusalsTest, CallersOverTcpMayNot) {
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
  // The server checks the peer before the name.
  for (const std::string& name : {file.name(), std::string("../x")}) {
    request.mutable_q()->mutable_shared()->set_name(name);
    ExpectError(Apply(request, &response), {grpc::StatusCode::PERMISSION_DENIED,
                                            "SHARED_MEMORY_UNAVAILABLE",
                                            "q.shared",
                                            {"unix"}});
  }
  ASSERT_TRUE(
      Call(&Stub::GetServerInfo, v1::GetServerInfoRequest(), &info).ok());
  EXPECT_FALSE(info.has_shared_memory());
}

TEST_F(SharedRefusalsTest, CallersOverLoopbackMayIfTheFlagAllowsIt) {
  Start({.shared_memory = {
             .prefix = test::kSharedDirectory + test::SharedPrefix(),
             .from = "loopback"}});
  v1::ApplyRopeRequest request = GoodApply();
  SharedMemoryFile file(4096);
  Share(&file, 0, request.mutable_q());
  v1::ApplyRopeResponse response;
  EXPECT_TRUE(Apply(request, &response).ok());
}

TEST_F(SharedRefusalsTest, ServersWithoutSharedMemorySaySo) {
  Start({.listen = {"unix:" + socket_ + ".off"}});
  v1::GetServerInfoResponse info;
  ASSERT_TRUE(
      Call(&Stub::GetServerInfo, v1::GetServerInfoRequest(), &info).ok());
  EXPECT_FALSE(info.has_shared_memory());
  v1::ApplyRopeRequest request = GoodApply();
  SharedMemoryFile file(4096);
  Name(file, 0, request.mutable_q_output());
  v1::ApplyRopeResponse response;
  ExpectError(Apply(request, &response),
              {kUnimplemented, "SHARED_MEMORY_UNAVAILABLE", "q_output", {}});
  Share(&file, 0, request.mutable_q());
  ExpectError(Apply(request, &response),
              {kUnimplemented, "SHARED_MEMORY_UNAVAILABLE", "q.shared", {}});
}

// A call's mapped bytes count as bytes in flight while it runs.
TEST_F(SharedRefusalsTest, MappedBytesAreClaimed) {
  StartWith({.max_request_bytes = 65536,
             .max_response_bytes = 65536,
             .in_flight_bytes = 1 << 20});
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
