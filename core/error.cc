#include "core/error.h"

#include <charconv>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace posenc::core {
namespace {

constexpr char kPayloadUrl[] = "posenc.error";

// Details travel in the status as a payload: strings "<length>:<bytes>", one
// after the other. They are reason, field, then the metadata, key and value
// alternating.
void AppendString(absl::string_view text, std::string* payload) {
  absl::StrAppend(payload, text.size(), ":", text);
}

bool TakeString(absl::string_view* payload, std::string* text) {
  const std::size_t colon = payload->find(':');
  std::size_t length = 0;
  if (colon == absl::string_view::npos ||
      !absl::SimpleAtoi(payload->substr(0, colon), &length) ||
      length > payload->size() - colon - 1) {
    return false;
  }
  *text = std::string(payload->substr(colon + 1, length));
  payload->remove_prefix(colon + 1 + length);
  return true;
}

void SetDetails(const ErrorDetails& details, absl::Status* status) {
  std::string payload;
  AppendString(absl::StrCat(static_cast<int>(details.reason)), &payload);
  AppendString(details.field, &payload);
  for (const auto& [key, value] : details.metadata) {
    AppendString(key, &payload);
    AppendString(value, &payload);
  }
  status->SetPayload(kPayloadUrl, absl::Cord(payload));
}

}  // namespace

absl::Status MakeError(absl::StatusCode code, ErrorReason reason,
                       absl::string_view field, absl::string_view fact,
                       const ErrorMetadata& metadata) {
  absl::Status status(code, field.empty() ? std::string(fact)
                                          : absl::StrCat(field, ": ", fact));
  SetDetails({reason, std::string(field), metadata}, &status);
  return status;
}

absl::Status FieldRequired(absl::string_view field, absl::string_view fact) {
  return MakeError(absl::StatusCode::kInvalidArgument,
                   ErrorReason::kFieldRequired, field, fact);
}

absl::Status FieldInvalid(absl::string_view field, absl::string_view fact) {
  return MakeError(absl::StatusCode::kInvalidArgument,
                   ErrorReason::kFieldInvalid, field, fact);
}

std::optional<ErrorDetails> GetErrorDetails(const absl::Status& status) {
  const absl::optional<absl::Cord> cord = status.GetPayload(kPayloadUrl);
  if (!cord.has_value()) return std::nullopt;
  const std::string text(*cord);
  absl::string_view rest = text;
  ErrorDetails details;
  std::string reason, key, value;
  int number = 0;
  if (!TakeString(&rest, &reason) || !absl::SimpleAtoi(reason, &number) ||
      !TakeString(&rest, &details.field)) {
    return std::nullopt;
  }
  details.reason = static_cast<ErrorReason>(number);
  while (TakeString(&rest, &key) && TakeString(&rest, &value)) {
    details.metadata.emplace_back(key, value);
  }
  return details;
}

std::string NumberText(double value) {
  char text[32];
  const std::to_chars_result end =
      std::to_chars(text, text + sizeof(text), value);
  return std::string(text, end.ptr);
}

absl::Status Prefixed(absl::string_view prefix, const absl::Status& status) {
  std::optional<ErrorDetails> details = GetErrorDetails(status);
  if (!details.has_value() || prefix.empty()) return status;
  // "ids" + "[3]" needs no dot; a field that is empty is the prefix itself.
  absl::string_view joint = details->field.empty()                  ? ": "
                            : absl::StartsWith(details->field, "[") ? ""
                                                                    : ".";
  absl::Status prefixed(status.code(),
                        absl::StrCat(prefix, joint, status.message()));
  details->field = details->field.empty()
                       ? std::string(prefix)
                       : absl::StrCat(prefix, joint, details->field);
  SetDetails(*details, &prefixed);
  return prefixed;
}

}  // namespace posenc::core
