// Tables of bad input to core, and what each must be refused with.

#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/error.h"

namespace posenc::core {

// A good request is spoilt in one place.
template <typename Request>
struct BadInput {
  const char* name;
  std::function<void(Request&)> spoil;
  ErrorReason reason;
  const char* field;
  std::vector<const char*> text;  // what the message must say
  absl::StatusCode code = absl::StatusCode::kInvalidArgument;
};

template <typename Request>
void PrintTo(const BadInput<Request>& bad, std::ostream* out) {
  *out << bad.name;
}

// Names parameterized tests.
template <typename Request>
std::string NameOf(const testing::TestParamInfo<BadInput<Request>>& info) {
  return info.param.name;
}

template <typename Request>
void ExpectRefused(const BadInput<Request>& bad, const absl::Status& status) {
  EXPECT_EQ(status.code(), bad.code) << status;
  const std::optional<ErrorDetails> details = GetErrorDetails(status);
  ASSERT_TRUE(details.has_value()) << status;
  EXPECT_EQ(details->reason, bad.reason) << status;
  EXPECT_EQ(details->field, bad.field) << status;
  const std::string message(status.message());
  EXPECT_THAT(message, testing::StartsWith(std::string(bad.field) + ": "));
  for (const char* text : bad.text) {
    EXPECT_THAT(message, testing::HasSubstr(text));
  }
}

}  // namespace posenc::core
