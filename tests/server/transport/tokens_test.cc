// Files of tokens, and the check of headers.

#include "server/transport/tokens.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/error.h"
#include "gmock/gmock.h"

namespace posenc::server {
namespace {

using testing::HasSubstr;
using testing::Not;

// SHA-256 of "abc" (FIPS 180-2, B.1).
constexpr char kAbc[] =
    "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

std::string Error(const std::string& text) {
  const auto tokens = Tokens::Parse(text);
  return tokens.ok() ? "" : std::string(tokens.status().message());
}

// Returns the caller's name, or the error's details.
std::string Check(const std::string& file, const std::string& method,
                  const std::string& header) {
  const auto tokens = Tokens::Parse(file);
  EXPECT_TRUE(tokens.ok()) << tokens.status();
  const auto caller = tokens->Check(method, header, absl::Now());
  if (caller.ok()) return caller->name;
  const auto details = core::GetErrorDetails(caller.status());
  EXPECT_TRUE(details.has_value());
  if (caller.status().code() == absl::StatusCode::kPermissionDenied) {
    EXPECT_EQ(details->reason, core::ErrorReason::kPermissionDenied);
    return absl::StrCat("denied ", details->metadata[0].second);
  }
  EXPECT_EQ(caller.status().code(), absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(details->reason, core::ErrorReason::kUnauthenticated);
  EXPECT_EQ(details->metadata[0].first, "cause");
  return details->metadata[0].second;
}

TEST(TokensTest, ATokenIdentifiesItsCaller) {
  const std::string file =
      "# who may call\n\n  ada first\r\nbob\tsecond=\nada third\n";
  EXPECT_EQ(Check(file, "ApplyRope", "Bearer first"), "ada");
  EXPECT_EQ(Check(file, "ApplyRope", "bearer second="), "bob");
  EXPECT_EQ(Check(file, "ApplyRope", "Bearer third"), "ada");
}

TEST(TokensTest, ATokenMayBeGivenAsItsHash) {
  EXPECT_EQ(Check(absl::StrCat("ada ", kAbc), "ApplyRope", "Bearer abc"),
            "ada");
  EXPECT_EQ(Check(absl::StrCat("ada ", kAbc), "ApplyRope",
                  absl::StrCat("Bearer ", kAbc)),
            "invalid");
}

TEST(TokensTest, OtherHeadersAreNotTokens) {
  for (const char* header :
       {"Bearer wrong", "Bearer", "Bearer ", "first", "Basic first",
        "Bearer firs", "Bearer first2", "Bearer First", " "}) {
    EXPECT_EQ(Check("ada first", "ApplyRope", header), "invalid") << header;
  }
  EXPECT_EQ(Check("ada first", "ApplyRope", ""), "missing");
}

TEST(TokensTest, ATokenEndsAtItsTime) {
  EXPECT_EQ(Check("ada first expires=2020-01-01T00:00:00Z", "ApplyRope",
                  "Bearer first"),
            "expired");
  EXPECT_EQ(Check("ada first expires=2999-01-01T00:00:00+01:00", "ApplyRope",
                  "Bearer first"),
            "ada");
}

TEST(TokensTest, ATokenIsForItsMethods) {
  const std::string file = "ada first methods=ApplyRope,BuildTable";
  EXPECT_EQ(Check(file, "BuildTable", "Bearer first"), "ada");
  EXPECT_EQ(Check(file, "Reposition", "Bearer first"), "denied Reposition");
}

TEST(TokensTest, ACallerMayHaveALimitOfBytes) {
  const auto tokens = Tokens::Parse("ada first in-flight-bytes=64MiB");
  ASSERT_TRUE(tokens.ok());
  EXPECT_EQ(
      tokens->Check("ApplyRope", "Bearer first", absl::Now())->in_flight_bytes,
      64 << 20);
}

TEST(TokensTest, MistakesNameTheirLineAndNoToken) {
  const std::pair<const char*, const char*> kMistakes[] = {
      {"hush", "NAME TOKEN"},
      {"a/b hush", "the name"},
      {"ada hu:sh", "letters, digits"},
      {"ada sha256:hush", "64 hexadecimal"},
      // SHA-256 of no bytes.
      {"ada "
       "sha256:"
       "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
       "is the hash of nothing"},
      {"ada hush methods=Apply", "there is no RPC 'Apply'"},
      {"ada hush methods=", "there is no RPC ''"},
      {"ada hush expires=tomorrow", "expires: must be"},
      {"ada hush in-flight-bytes=64MB", "in-flight-bytes: must be"},
      {"ada hush in-flight-bytes=0", "in-flight-bytes: must be"},
      {"ada hush in-flight-bytes=-1", "in-flight-bytes: must be"},
      {"ada hush in-flight-bytes=9999999999GiB", "in-flight-bytes: must be"},
      {"ada hu hush", "word 3 is not one of"},
      {"bob first", "the same token as one of ada"},
      {"ada hush in-flight-bytes=1", "differs from another token of ada"},
  };
  for (const auto& [line, fact] : kMistakes) {
    const std::string error = Error(absl::StrCat("# c\nada first\n", line));
    EXPECT_THAT(error, HasSubstr("line 3: ")) << line;
    EXPECT_THAT(error, HasSubstr(fact)) << line;
    EXPECT_THAT(error, Not(HasSubstr("hush"))) << line;
  }
  EXPECT_EQ(Error("# nothing\n"), "holds no token");
  EXPECT_EQ(Error(""), "holds no token");
}

}  // namespace
}  // namespace posenc::server
