// Core's statuses as gRPC statuses: code, message and details.

#include "server/convert/status.h"

#include <string>

#include "core/base/error.h"
#include "tests/fixtures/server_errors.h"

namespace posenc::server {
namespace {

using testing::StartsWith;

TEST(StatusTest, MessagesAndMetadataAreCutToValidUtf8) {
  std::string text = "\xFF";
  for (int i = 0; i < 2000; ++i) text += "\xC3\xA9";
  const grpc::Status status = ToGrpcStatus(core::MakeError(
      absl::StatusCode::kNotFound, core::ErrorReason::kPresetUnknown, "preset",
      text, {{"preset", text}}));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_LE(status.error_message().size(), 1024u);
  EXPECT_GE(status.error_message().size(), 1022u);
  EXPECT_THAT(status.error_message(), StartsWith("preset: ?\xC3\xA9"));
  EXPECT_THAT(status.error_message(), testing::EndsWith("\xC3\xA9..."));
  const Details details = ReadDetails(status);
  EXPECT_LE(details.metadata.at("preset").size(), 256u);
  EXPECT_THAT(details.metadata.at("preset"), testing::EndsWith("\xC3\xA9..."));
}

TEST(StatusTest, EqualErrorsAreEqualBytes) {
  const auto details = [] {
    return ToGrpcStatus(core::MakeError(absl::StatusCode::kInvalidArgument,
                                        core::ErrorReason::kShapeMismatch,
                                        "x.shape", "bad",
                                        {{"expected", "1"}, {"actual", "2"}}))
        .error_details();
  };
  const std::string first = details();
  for (int i = 0; i < 50; ++i) EXPECT_EQ(details(), first);
}

TEST(StatusTest, OverloadSaysWhenToComeBack) {
  const grpc::Status status = ToGrpcStatus(core::MakeError(
      absl::StatusCode::kResourceExhausted, core::ErrorReason::kOverloaded, "",
      "full", {{"resource", "memory"}}));
  const Details details = ReadDetails(status);
  EXPECT_TRUE(details.has_retry_info);
  EXPECT_FALSE(details.has_bad_request);
  EXPECT_EQ(details.reason, "ERROR_REASON_OVERLOADED");
}

TEST(StatusTest, TheFirstFaultGivesTheReasonAndTheOthersFollow) {
  core::Faults faults;
  faults.Note(core::FieldRequired("rope", "not given"));
  faults.Note(core::FieldInvalid("q.shape", "[1] has rank 1"));
  faults.Note(core::FieldRequired("rope", "not given, again"));
  faults.Note(core::FieldRequired("layout", "not given"));
  const grpc::Status status = ToGrpcStatus(faults.status());
  EXPECT_EQ(status.error_message(),
            "rope: not given (2 more: q.shape, layout)");
  rpc::Status rich;
  ASSERT_TRUE(rich.ParseFromString(status.error_details()));
  ASSERT_EQ(rich.details_size(), 2);
  rpc::ErrorInfo info;
  ASSERT_TRUE(info.ParseFromString(rich.details(0).value()));
  EXPECT_EQ(info.reason(), "ERROR_REASON_FIELD_REQUIRED");
  EXPECT_EQ(info.metadata().at("field"), "rope");
  rpc::BadRequest bad;
  ASSERT_TRUE(bad.ParseFromString(rich.details(1).value()));
  ASSERT_EQ(bad.field_violations_size(), 3);
  EXPECT_EQ(bad.field_violations(0).description(), "not given");
  EXPECT_EQ(bad.field_violations(1).field(), "q.shape");
  EXPECT_EQ(bad.field_violations(1).description(), "[1] has rank 1");
  EXPECT_EQ(bad.field_violations(2).field(), "layout");
  EXPECT_EQ(bad.field_violations(2).description(), "not given");
}

TEST(StatusTest, FaultsBesideAnUnknownPresetAreTold) {
  core::Faults faults;
  faults.Note(core::MakeError(absl::StatusCode::kNotFound,
                              core::ErrorReason::kPresetUnknown, "rope.preset",
                              "\"x\" is not known"));
  faults.Note(core::FieldRequired("layout", "not given"));
  const grpc::Status status = ToGrpcStatus(faults.status());
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  const Details details = ReadDetails(status);
  EXPECT_EQ(details.reason, "ERROR_REASON_PRESET_UNKNOWN");
  EXPECT_EQ(details.violated_field, "rope.preset");
  EXPECT_THAT(details.more_fields, testing::ElementsAre("layout"));
}

// The worst case: any number of faults, without plain ASCII.
TEST(StatusTest, AnyNumberOfFaultsFitsIntoTheTrailersOfGrpcsClients) {
  for (const int bytes : {10, 100, 2000}) {
    std::string text;
    while (text.size() < static_cast<std::size_t>(bytes)) text += "\xC3\xA9";
    core::Faults faults;
    for (int i = 0; i < 1000; ++i) {
      faults.Note(core::FieldInvalid(std::to_string(i) + text, text));
    }
    const grpc::Status status = ToGrpcStatus(faults.status());
    EXPECT_LE(status.error_message().size(), 1024u);
    std::size_t trailer = status.error_details().size() * 4 / 3 + 3;
    for (const char c : status.error_message()) {
      trailer += static_cast<signed char>(c) < 0 ? 3 : 1;
    }
    EXPECT_LT(trailer, 8192u);
    const Details details = ReadDetails(status);
    if (bytes < 2000) {
      EXPECT_GE(details.more_fields.size(), 5u);
    }
  }
}

}  // namespace
}  // namespace posenc::server
