// What the first bytes of a connection are taken for.

#include "server/listen/opening.h"

#include <string>

#include "gtest/gtest.h"
#include "tests/fixtures/http2.h"

namespace posenc::server {
namespace {

using http2::Frame;
using http2::kPreface;
using http2::kSettings;

TEST(OpeningTest, EveryPartOfThePrefaceIsIncomplete) {
  const std::string preface = kPreface;
  for (std::size_t i = 0; i < preface.size(); ++i) {
    EXPECT_EQ(ReadOpening(preface.substr(0, i)), Opening::kPreface) << i;
  }
  EXPECT_EQ(ReadOpening(preface), Opening::kNoCall);
}

TEST(OpeningTest, OtherProtocolsAreForeignAtTheirFirstOtherByte) {
  for (const char* text : {"GET / HTTP/1.1\r\n", "\x16\x03\x01", "PRI * HTTP/1",
                           "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\r"}) {
    EXPECT_EQ(ReadOpening(text), Opening::kForeign) << text;
  }
}

TEST(OpeningTest, SettingsAndWindowUpdatesAreNoCall) {
  const std::string opening = kPreface + kSettings +
                              Frame(8, 0, 0, std::string(4, '\1')) +
                              Frame(4, 1, 0, "");
  EXPECT_EQ(ReadOpening(opening), Opening::kNoCall);
}

TEST(OpeningTest, EveryPartOfTheHeadersIsPartOfACall) {
  const std::string before = kPreface + kSettings;
  const std::string headers = Frame(1, 4, 1, "some headers");
  for (std::size_t i = 1; i < headers.size(); ++i) {
    EXPECT_EQ(ReadOpening(before + headers.substr(0, i)), Opening::kPartOfCall)
        << i;
  }
  EXPECT_EQ(ReadOpening(before + headers), Opening::kCall);
}

TEST(OpeningTest, HeadersWithoutTheirEndWaitForTheContinuation) {
  const std::string begun = kPreface + kSettings + Frame(1, 0, 1, "some");
  EXPECT_EQ(ReadOpening(begun), Opening::kPartOfCall);
  EXPECT_EQ(ReadOpening(begun + Frame(9, 0, 1, "more")), Opening::kPartOfCall);
  EXPECT_EQ(
      ReadOpening(begun + Frame(9, 0, 1, "more") + Frame(9, 4, 1, "last")),
      Opening::kCall);
  // What must not stand there is an error, which gRPC tells the peer.
  EXPECT_EQ(ReadOpening(begun + kSettings), Opening::kCall);
}

TEST(OpeningTest, FramesThatNeedAnAnswerAreForGrpc) {
  EXPECT_EQ(ReadOpening(kPreface + kSettings + Frame(6, 0, 0, "12345678")),
            Opening::kCall);
}

TEST(OpeningTest, WhatIsTooLongIsForGrpcToRefuse) {
  const std::string begun = kPreface + kSettings + Frame(1, 0, 1, "some");
  EXPECT_EQ(ReadOpening(begun + std::string(kMostOpeningBytes, 'x')),
            Opening::kCall);
}

}  // namespace
}  // namespace posenc::server
