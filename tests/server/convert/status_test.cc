// Statuses of core as gRPC's: their code, message and details.

#include "server/status.h"

#include <string>

#include "core/error.h"
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

}  // namespace
}  // namespace posenc::server
