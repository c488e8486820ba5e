// What is done in gRPC's place is what gRPC does, but for the one error that
// nobody reads.

#include <dlfcn.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "grpc/grpc.h"
#include "gtest/gtest.h"

namespace grpc_core {

// As gRPC 1.51 has it, whose members are private.
class DebugLocation {
 public:
  const char* file = nullptr;
  int line = -1;
};

absl::Status StatusCreate(absl::StatusCode code, absl::string_view message,
                          const DebugLocation& location,
                          std::vector<absl::Status> children);
std::string StatusToString(const absl::Status& status);

}  // namespace grpc_core

namespace posenc::server {
namespace {

constexpr char kCreate[] =
    "_ZN9grpc_core12StatusCreateEN4absl7debian310StatusCodeENS1_11string_"
    "viewERKNS_13DebugLocationESt6vectorINS1_6StatusESaIS8_EE";
constexpr char kToString[] =
    "_ZN9grpc_core14StatusToStringB5cxx11ERKN4absl7debian36StatusE";

int Payloads(const absl::Status& status) {
  int count = 0;
  status.ForEachPayload(
      [&count](absl::string_view, const absl::Cord&) { ++count; });
  return count;
}

TEST(GrpcShortcutsTest, TheLibraryUsesThem) {
  ASSERT_NE(grpc_version_string(), nullptr) << "it is linked";
  for (const char* const name : {kCreate, kToString}) {
    ASSERT_NE(dlsym(RTLD_NEXT, name), nullptr) << name;
    EXPECT_NE(dlsym(RTLD_DEFAULT, name), dlsym(RTLD_NEXT, name)) << name;
  }
}

TEST(GrpcShortcutsTest, TheErrorOfAStatusThatIsSentHasOnlyItsCode) {
  const absl::Status status = grpc_core::StatusCreate(
      absl::StatusCode::kUnknown, "Server returned error", {}, {});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnknown);
  EXPECT_EQ(Payloads(status), 0);
  EXPECT_EQ(grpc_core::StatusToString(status), "");
}

TEST(GrpcShortcutsTest, OtherErrorsAreThoseOfGrpc) {
  const absl::Status child = absl::DataLossError("a cause");
  const absl::Status status = grpc_core::StatusCreate(
      absl::StatusCode::kUnknown, "an error", {}, {child});
  EXPECT_EQ(status.message(), "an error");
  EXPECT_GT(Payloads(status), 0);
  auto* const library = reinterpret_cast<decltype(&grpc_core::StatusToString)>(
      dlsym(RTLD_NEXT, kToString));
  EXPECT_EQ(grpc_core::StatusToString(status), library(status));
  EXPECT_NE(grpc_core::StatusToString(status).find("a cause"),
            std::string::npos);
  EXPECT_EQ(grpc_core::StatusToString(absl::OkStatus()), "OK");
}

}  // namespace
}  // namespace posenc::server
