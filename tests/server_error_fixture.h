// Tables of bad input, and what each must be answered with.

#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "tests/server_fixture.h"

namespace posenc::server {

template <typename Request>
struct BadCase {
  const char* name;
  std::function<void(Request&)> spoil;
  grpc::StatusCode code;
  const char* reason;  // without ERROR_REASON_
  const char* field;
  std::vector<const char*> says;
  std::vector<std::pair<const char*, const char*>> metadata;
};

inline constexpr auto kInvalid = grpc::StatusCode::INVALID_ARGUMENT;
inline constexpr auto kOutOfRange = grpc::StatusCode::OUT_OF_RANGE;
inline constexpr auto kExhausted = grpc::StatusCode::RESOURCE_EXHAUSTED;
inline constexpr auto kUnimplemented = grpc::StatusCode::UNIMPLEMENTED;

class ErrorTest : public ServerTest {
 protected:
  template <typename Request>
  void Expect(const BadCase<Request>& bad, const grpc::Status& status) {
    SCOPED_TRACE(bad.name);
    EXPECT_EQ(status.error_code(), bad.code) << status.error_message();
    const Details details = ReadDetails(status);
    EXPECT_EQ(details.reason, std::string("ERROR_REASON_") + bad.reason)
        << status.error_message();
    EXPECT_EQ(details.domain, "posenc");
    const std::string field = bad.field;
    if (!field.empty()) {
      EXPECT_THAT(status.error_message(), testing::StartsWith(field + ": "));
      EXPECT_EQ(details.metadata.count("field"), 1u);
      if (details.metadata.count("field") == 1) {
        EXPECT_EQ(details.metadata.at("field"), field);
      }
    }
    const bool blames =
        (bad.code == kInvalid || bad.code == kOutOfRange) && !field.empty();
    EXPECT_EQ(details.has_bad_request, blames);
    if (blames) {
      EXPECT_EQ(details.violated_field, field);
      EXPECT_EQ(status.error_message(), field + ": " + details.violation);
    }
    for (const char* text : bad.says) {
      EXPECT_THAT(status.error_message(), testing::HasSubstr(text));
    }
    for (const auto& [key, value] : bad.metadata) {
      ASSERT_EQ(details.metadata.count(key), 1u) << key;
      EXPECT_EQ(details.metadata.at(key), value) << key;
    }
  }

  // Spoils `good` in each way; after that it must be answered.
  template <typename Request, typename Response>
  void ExpectAll(const Request& good, const std::vector<BadCase<Request>>& bad,
                 grpc::Status (Stub::*method)(grpc::ClientContext*,
                                              const Request&, Response*)) {
    for (const BadCase<Request>& each : bad) {
      Request request = good;
      each.spoil(request);
      Response response;
      Expect(each, Call(method, request, &response));
    }
    Response response;
    const grpc::Status status = Call(method, good, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
  }
};

inline v1::ApplyRopeRequest GoodApply() {
  v1::ApplyRopeRequest request;
  request.mutable_rope()->mutable_spec()->set_pairing(v1::PAIRING_HALF_SPLIT);
  request.mutable_positions()->set_start(0);
  request.set_layout(v1::LAYOUT_BSHD);
  SetTensor(v1::DTYPE_FLOAT32, {1, 2, 2, 8}, std::vector<float>(32, 1.0f),
            request.mutable_q());
  SetTensor(v1::DTYPE_FLOAT32, {1, 2, 1, 8}, std::vector<float>(16, 1.0f),
            request.mutable_k());
  return request;
}

}  // namespace posenc::server
