// Errors of the core: an absl::Status whose message is "<field>: <fact with
// numbers>; <rule or remedy>", and which carries a reason for machines.
//
// Field paths use proto names and are relative to the argument that a function
// was given ("scaling.factor"); callers that hold it in a larger message add
// what stands in front with Prefixed ("rope.spec").

#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace posenc::core {

// Numbered as posenc.v1.ErrorReason.
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
};

using ErrorMetadata = std::vector<std::pair<std::string, std::string>>;

struct ErrorDetails {
  ErrorReason reason;
  std::string field;       // empty if the request as a whole is meant
  ErrorMetadata metadata;  // without "field"
};

// Status with `code`, message "<field>: <fact>" ("<fact>" if field is
// empty), and details.
absl::Status MakeError(absl::StatusCode code, ErrorReason reason,
                       absl::string_view field, absl::string_view fact,
                       const ErrorMetadata& metadata = {});

// INVALID_ARGUMENT with kFieldRequired, or kFieldInvalid.
absl::Status FieldRequired(absl::string_view field, absl::string_view fact);
absl::Status FieldInvalid(absl::string_view field, absl::string_view fact);

// The details of a status made above; nullopt for any other.
std::optional<ErrorDetails> GetErrorDetails(const absl::Status& status);

// A number for a message: the shortest text that reads back as the same one.
std::string NumberText(double value);

// The same error with "<prefix>." in front of its field, in message and
// details. Other statuses, OK among them, come back as they are.
absl::Status Prefixed(absl::string_view prefix, const absl::Status& status);

}  // namespace posenc::core
