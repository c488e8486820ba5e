// The values of keys: from text to a Config's field, and back.

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/error.h"
#include "server/config/keys.h"

namespace posenc::server {
namespace {

// A value in a message: errors are one line, whatever was given.
std::string Shown(absl::string_view text) {
  constexpr std::size_t kLongest = 80;
  const bool cut = text.size() > kLongest;
  return absl::StrCat("'", absl::CHexEscape(text.substr(0, kLongest)),
                      cut ? "..." : "", "'");
}

absl::Status IsNot(absl::string_view text, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat(Shown(text), " is not ", what));
}

constexpr std::pair<const char*, int> kUnits[] = {
    {"GiB", 30}, {"MiB", 20}, {"KiB", 10}};

// TOML allows 1_000_000, between digits only.
bool ParseInteger(absl::string_view text, std::int64_t* value) {
  std::string digits;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      digits += text[i];
    } else if (i == 0 || i + 1 == text.size() ||
               !absl::ascii_isdigit(text[i - 1]) ||
               !absl::ascii_isdigit(text[i + 1])) {
      return false;
    }
  }
  // SimpleAtoi would skip spaces.
  return !digits.empty() && !absl::ascii_isspace(digits.front()) &&
         !absl::ascii_isspace(digits.back()) && absl::SimpleAtoi(digits, value);
}

absl::Status OutOfRange(const Key& key, absl::string_view value) {
  const auto shown = [&key](std::int64_t bound) {
    return key.kind == KeyKind::kDuration
               ? absl::FormatDuration(absl::Milliseconds(bound))
               : absl::StrCat(bound);
  };
  return absl::InvalidArgumentError(
      key.max == kUnbounded
          ? absl::StrCat(value, "; must be at least ", shown(key.min))
          : absl::StrCat(value, "; must be ", shown(key.min), " to ",
                         shown(key.max)));
}

absl::Status SetBytes(const Key& key, absl::string_view text,
                      std::int64_t* bytes) {
  absl::string_view count_text = text;
  int shift = 0;
  for (const auto& [unit, bits] : kUnits) {
    if (absl::ConsumeSuffix(&count_text, unit)) {
      shift = bits;
      break;
    }
  }
  std::int64_t count = 0;
  if (!ParseInteger(count_text, &count) || count > (INT64_MAX >> shift) ||
      count < -(INT64_MAX >> shift)) {
    return IsNot(text, "a size; expected bytes or KiB, MiB, GiB as in 64MiB");
  }
  count *= std::int64_t{1} << shift;
  if (count < key.min || count > key.max) {
    return OutOfRange(key, absl::StrCat(count, " bytes"));
  }
  *bytes = count;
  return absl::OkStatus();
}

absl::Status SetDuration(const Key& key, absl::string_view text,
                         absl::Duration* duration) {
  absl::Duration value;
  if (!absl::ParseDuration(text, &value)) {
    return IsNot(text,
                 "a duration; expected a number with ms, s, m or h as in 30s");
  }
  if (value < absl::Milliseconds(key.min) ||
      value > absl::Milliseconds(key.max)) {
    return OutOfRange(key, absl::FormatDuration(value));
  }
  *duration = value;
  return absl::OkStatus();
}

absl::Status SetInteger(const Key& key, absl::string_view text,
                        const KeyField& field) {
  std::int64_t value = 0;
  if (!ParseInteger(text, &value)) return IsNot(text, "a whole number");
  if (value < key.min || value > key.max) {
    return OutOfRange(key, absl::StrCat(value));
  }
  if (int* const* const narrow = std::get_if<int*>(&field)) {
    **narrow = static_cast<int>(value);
  } else {
    *std::get<std::int64_t*>(field) = value;
  }
  return absl::OkStatus();
}

absl::Status SetFraction(const Key& key, absl::string_view text,
                         double* fraction) {
  double value = 0;
  if (!absl::SimpleAtod(text, &value) || std::isnan(value)) {
    return IsNot(text, "a number");
  }
  if (value < 0 || value > 1) return OutOfRange(key, core::NumberText(value));
  *fraction = value;
  return absl::OkStatus();
}

absl::Status SetSwitch(absl::string_view text, bool* on) {
  constexpr std::array<const char*, 5> kOn = {"on", "true", "yes", "enable",
                                              "1"};
  constexpr std::array<const char*, 5> kOff = {"off", "false", "no", "disable",
                                               "0"};
  const std::string word = absl::AsciiStrToLower(text);
  for (std::size_t i = 0; i < kOn.size(); ++i) {
    if (word == kOn[i] || word == kOff[i]) {
      *on = word == kOn[i];
      return absl::OkStatus();
    }
  }
  return IsNot(text, "on or off");
}

absl::Status SetChoice(const Key& key, absl::string_view text,
                       std::string* choice) {
  for (const absl::string_view word : absl::StrSplit(key.value, '|')) {
    if (text != word) continue;
    *choice = std::string(text);
    return absl::OkStatus();
  }
  return IsNot(text, absl::StrCat("one of ", absl::StrReplaceAll(
                                                 key.value, {{"|", ", "}})));
}

// Texts are paths, addresses and names, which stand in lines of the log.
absl::Status CheckText(absl::string_view text) {
  constexpr std::size_t kLongest = 4096;  // of a path (limits.h of Linux)
  if (text.size() > kLongest) {
    return absl::InvalidArgumentError(
        absl::StrCat(Shown(text), " of ", text.size(),
                     " bytes; must have at most ", kLongest));
  }
  if (std::none_of(text.begin(), text.end(), absl::ascii_iscntrl)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(Shown(text), "; must not contain control characters"));
}

absl::Status SetList(const Key& key, const std::vector<std::string>& values,
                     std::vector<std::string>* list) {
  const std::int64_t count = static_cast<std::int64_t>(values.size());
  if (count < key.min || count > key.max) {
    return OutOfRange(key, absl::StrCat(count, " values"));
  }
  for (const std::string& value : values) {
    if (value.empty()) {
      return absl::InvalidArgumentError("'' in a list; must not be empty");
    }
    const absl::Status status = CheckText(value);
    if (!status.ok()) return status;
  }
  *list = values;
  return absl::OkStatus();
}

std::string Quoted(absl::string_view text) {
  return absl::StrCat(
      "\"", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"\"", "\\\""}}), "\"");
}

std::string DurationText(absl::Duration duration) {
  if (duration == absl::ZeroDuration()) return Quoted("0s");
  return Quoted(absl::FormatDuration(duration));
}

std::string BytesText(std::int64_t bytes) {
  for (const auto& [unit, bits] : kUnits) {
    if (bytes != 0 && bytes % (std::int64_t{1} << bits) == 0) {
      return Quoted(absl::StrCat(bytes >> bits, unit));
    }
  }
  return absl::StrCat(bytes);
}

}  // namespace

absl::Status SetKey(const Key& key, const std::vector<std::string>& values,
                    Config* config) {
  const KeyField field = key.field(*config);
  if (key.kind == KeyKind::kList) {
    return SetList(key, values, std::get<std::vector<std::string>*>(field));
  }
  if (values.size() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(values.size(), " values; takes one"));
  }
  const std::string& text = values[0];
  if (key.no_empty && text.empty()) {
    return absl::InvalidArgumentError(
        "'' is no value; give a file, or leave the key out");
  }
  switch (key.kind) {
    case KeyKind::kBytes:
      return SetBytes(key, text, std::get<std::int64_t*>(field));
    case KeyKind::kDuration:
      return SetDuration(key, text, std::get<absl::Duration*>(field));
    case KeyKind::kInteger:
      return SetInteger(key, text, field);
    case KeyKind::kFraction:
      return SetFraction(key, text, std::get<double*>(field));
    case KeyKind::kSwitch:
      return SetSwitch(text, std::get<bool*>(field));
    case KeyKind::kChoice:
      return SetChoice(key, text, std::get<std::string*>(field));
    case KeyKind::kText:
    case KeyKind::kList:
      break;
  }
  const absl::Status status = CheckText(text);
  if (status.ok()) *std::get<std::string*>(field) = text;
  return status;
}

std::string KeyText(const Key& key, const Config& config) {
  // The field is only read.
  const KeyField field = key.field(const_cast<Config&>(config));
  switch (key.kind) {
    case KeyKind::kBytes:
      return BytesText(*std::get<std::int64_t*>(field));
    case KeyKind::kDuration:
      return DurationText(*std::get<absl::Duration*>(field));
    case KeyKind::kInteger:
      if (int* const* const narrow = std::get_if<int*>(&field)) {
        return absl::StrCat(**narrow);
      }
      return absl::StrCat(*std::get<std::int64_t*>(field));
    case KeyKind::kFraction:
      return core::NumberText(*std::get<double*>(field));
    case KeyKind::kSwitch:
      return *std::get<bool*>(field) ? "true" : "false";
    case KeyKind::kChoice:
    case KeyKind::kText:
      return Quoted(*std::get<std::string*>(field));
    case KeyKind::kList:
      break;
  }
  return absl::StrCat(
      "[",
      absl::StrJoin(*std::get<std::vector<std::string>*>(field), ", ",
                    [](std::string* out, const std::string& text) {
                      out->append(Quoted(text));
                    }),
      "]");
}

}  // namespace posenc::server
