#include "core/base/error.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace posenc::core {
namespace {

// The status carries the details as payloads. A payload is a sequence of
// strings "<length>:<bytes>". The first payload has the reason, the field, then
// each key and value of the metadata. If there are further faults, a second
// payload has the field and the fact of each of them.
constexpr char kPayloadUrl[] = "posenc.error";
constexpr char kMoreUrl[] = "posenc.more";
// Faults beyond this number are dropped, because each new fault is compared
// with all earlier faults. The trailers of a response have space for fewer
// faults.
constexpr std::size_t kMostFaults = 64;

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
  if (details.more.empty()) return;
  payload.clear();
  for (const Fault& fault : details.more) {
    AppendString(fault.field, &payload);
    AppendString(fault.fact, &payload);
  }
  status->SetPayload(kMoreUrl, absl::Cord(payload));
}

// A field that begins with an index needs no dot: "ids[3]".
std::string Joined(absl::string_view prefix, absl::string_view field) {
  if (field.empty()) return std::string(prefix);
  return absl::StrCat(prefix, absl::StartsWith(field, "[") ? "" : ".", field);
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

absl::Status MustBe(absl::string_view field, absl::string_view value,
                    absl::string_view rule) {
  return FieldInvalid(field, absl::StrCat("is ", value, "; must be ", rule));
}

absl::Status ShapeMismatch(absl::string_view field, absl::string_view fact,
                           const std::string& expected,
                           const std::string& actual) {
  return MakeError(absl::StatusCode::kInvalidArgument,
                   ErrorReason::kShapeMismatch, field, fact,
                   {{"expected", expected}, {"actual", actual}});
}

absl::Status WrongShape(absl::string_view field, const std::string& expected,
                        const std::string& actual) {
  return ShapeMismatch(field,
                       absl::StrCat("is ", actual, "; must be ", expected),
                       expected, actual);
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
  if (const absl::optional<absl::Cord> more = status.GetPayload(kMoreUrl)) {
    const std::string faults(*more);
    rest = faults;
    while (TakeString(&rest, &key) && TakeString(&rest, &value)) {
      details.more.push_back({key, value});
    }
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
  // An empty field becomes the prefix itself.
  absl::Status prefixed(status.code(),
                        details->field.empty()
                            ? absl::StrCat(prefix, ": ", status.message())
                            : Joined(prefix, status.message()));
  details->field = Joined(prefix, details->field);
  for (Fault& fault : details->more) fault.field = Joined(prefix, fault.field);
  SetDetails(*details, &prefixed);
  return prefixed;
}

absl::Status WithMetadata(const absl::Status& status, absl::string_view key,
                          absl::string_view value) {
  std::optional<ErrorDetails> details = GetErrorDetails(status);
  if (!details.has_value()) return status;
  details->metadata.emplace_back(key, value);
  absl::Status with(status.code(), status.message());
  SetDetails(*details, &with);
  return with;
}

bool Faults::Note(const absl::Status& status) {
  if (status.ok()) return true;
  if (first_.ok()) first_ = status;
  const std::optional<ErrorDetails> details = GetErrorDetails(status);
  if (!details.has_value()) return false;
  absl::string_view fact = status.message();
  if (!details->field.empty() && absl::ConsumePrefix(&fact, details->field)) {
    absl::ConsumePrefix(&fact, ": ");
  }
  std::vector<Fault> found = {{details->field, std::string(fact)}};
  found.insert(found.end(), details->more.begin(), details->more.end());
  for (Fault& fault : found) {
    if (all_.size() >= kMostFaults) break;
    const bool known = std::any_of(
        all_.begin(), all_.end(),
        [&fault](const Fault& other) { return other.field == fault.field; });
    if (!known) all_.push_back(std::move(fault));
  }
  return false;
}

absl::Status Faults::status() const {
  std::optional<ErrorDetails> details = GetErrorDetails(first_);
  if (!details.has_value() || all_.size() < 2) return first_;
  absl::Status status(first_.code(), first_.message());
  details->more.assign(all_.begin() + 1, all_.end());
  SetDetails(*details, &status);
  return status;
}

}  // namespace posenc::core
