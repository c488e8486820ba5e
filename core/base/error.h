// Errors of the core. An error is an absl::Status with an ErrorReason, which
// programs can read, and the message "<field>: <fact with numbers>; <rule or
// remedy>".
//
// Field paths use proto names and are relative to a function's argument
// ("scaling.factor"). If the argument is a field of a larger message, the
// caller prepends the path of this field ("rope.spec") with Prefixed.

#pragma once

#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace posenc::core {

// Each value has the same number as in posenc.v1.ErrorReason.
enum class ErrorReason {
  kFieldRequired = 1,
  kFieldInvalid = 2,
  kTensorSizeMismatch = 3,
  kShapeMismatch = 4,
  kModelConfigInvalid = 5,
  kPresetUnknown = 6,
  kPositionOutOfRange = 7,
  kMessageTooLarge = 8,
  kOverloaded = 9,
  kDraining = 10,
  kNotRepositionable = 11,
  kFieldUnknown = 12,
  kUnauthenticated = 13,
  kPermissionDenied = 14,
  kSharedMemoryUnavailable = 15,
  kSharedMemoryCut = 16,
  kNotRepeatable = 17,
};

using ErrorMetadata = std::vector<std::pair<std::string, std::string>>;

// A fault that a request has in addition to its first fault: "<field>: <fact>".
struct Fault {
  std::string field;
  std::string fact;
};

struct ErrorDetails {
  ErrorReason reason;
  std::string field;        // empty if the error is about the whole request
  ErrorMetadata metadata;   // without "field"
  std::vector<Fault> more;  // the request's faults after the first
};

// Returns a status with `code`, the message "<field>: <fact>" ("<fact>" if
// `field` is empty), and details.
absl::Status MakeError(absl::StatusCode code, ErrorReason reason,
                       absl::string_view field, absl::string_view fact,
                       const ErrorMetadata& metadata = {});

// Return INVALID_ARGUMENT. FieldRequired has the reason kFieldRequired, and
// FieldInvalid has kFieldInvalid.
absl::Status FieldRequired(absl::string_view field, absl::string_view fact);
absl::Status FieldInvalid(absl::string_view field, absl::string_view fact);

// Returns FieldInvalid with a fact in several parts, which absl::StrCat()
// joins.
template <typename First, typename Second, typename... More>
absl::Status FieldInvalid(absl::string_view field, const First& first,
                          const Second& second, const More&... more) {
  return FieldInvalid(field, absl::StrCat(first, second, more...));
}

// Returns FieldInvalid with the fact "is <value>; must be <rule>".
absl::Status MustBe(absl::string_view field, absl::string_view value,
                    absl::string_view rule);

// Returns INVALID_ARGUMENT with the reason kShapeMismatch.
absl::Status ShapeMismatch(absl::string_view field, absl::string_view fact,
                           const std::string& expected,
                           const std::string& actual);

// Returns ShapeMismatch with the fact "is <actual>; must be <expected>".
absl::Status WrongShape(absl::string_view field, const std::string& expected,
                        const std::string& actual);

// Returns the details of a status that MakeError made; nullopt for any other
// status.
std::optional<ErrorDetails> GetErrorDetails(const absl::Status& status);

// Formats a number for a message: the shortest text that reads back as the same
// number.
std::string NumberText(double value);

template <typename Number>
requires std::is_arithmetic_v<Number> absl::Status MustBe(
    absl::string_view field, Number value, absl::string_view rule) {
  if constexpr (std::is_integral_v<Number>) {
    return MustBe(field, std::to_string(value), rule);
  } else {
    return MustBe(field, NumberText(value), rule);
  }
}

// Returns the error with "<prefix>." in front of its field, in message and
// details. Returns every other status, including OK, unchanged.
absl::Status Prefixed(absl::string_view prefix, const absl::Status& status);

// Returns the error with one more entry of metadata.
absl::Status WithMetadata(const absl::Status& status, absl::string_view key,
                          absl::string_view value);

// Collects the errors of independent checks of a request, so that one response
// lists them all.
class Faults {
 public:
  // Notes an error, unless an earlier error has the same field. Returns
  // status.ok().
  bool Note(const absl::Status& status);

  bool none() const { return first_.ok(); }

  // Returns the first noted error, with the other errors in its details, or OK
  // if there is no error.
  absl::Status status() const;

 private:
  absl::Status first_;
  std::vector<Fault> all_;  // includes the first error
};

}  // namespace posenc::core
