// Converts between texts and the fields of a Config.

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "server/config/keys.h"

namespace posenc::server {
namespace {

// Formats a value for a message.
std::string Shown(absl::string_view text) {
  constexpr std::size_t kLongest = 80;
  return absl::StrCat("'", core::OneLine(text, kLongest), "'");
}

absl::Status IsNot(absl::string_view text, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat(Shown(text), " is not ", what));
}

constexpr std::pair<const char*, int> kUnits[] = {
    {"GiB", 30}, {"MiB", 20}, {"KiB", 10}};

// Digits may be grouped as in TOML: 1_000_000.
bool ParseInteger(absl::string_view text, std::int64_t* value) {
  if (text.empty() || absl::StrContains(text, "__") || text.front() == '_' ||
      text.back() == '_' || absl::StripAsciiWhitespace(text) != text) {
    return false;  // SimpleAtoi would skip spaces
  }
  return absl::SimpleAtoi(absl::StrReplaceAll(text, {{"_", ""}}), value);
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

absl::Status Set(const Key& key, const std::string& text,
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

// Sets a size in bytes, or another whole number.
absl::Status Set(const Key& key, const std::string& text,
                 std::int64_t* number) {
  const bool is_bytes = key.kind == KeyKind::kBytes;
  absl::string_view count = text;
  int shift = 0;
  for (const auto& [unit, bits] : kUnits) {
    if (is_bytes && absl::ConsumeSuffix(&count, unit)) {
      shift = bits;
      break;
    }
  }
  std::int64_t value = 0;
  if (!ParseInteger(count, &value) || value > (kUnbounded >> shift) ||
      value < -(kUnbounded >> shift)) {
    return IsNot(text, is_bytes ? "a size; expected bytes or KiB, MiB, GiB as "
                                  "in 64MiB"
                                : "a whole number");
  }
  value *= std::int64_t{1} << shift;
  if (value < key.min || value > key.max) {
    return OutOfRange(key, absl::StrCat(value, is_bytes ? " bytes" : ""));
  }
  *number = value;
  return absl::OkStatus();
}

// Sets a field of type int. The key's range is within int, so the cast is safe.
absl::Status Set(const Key& key, const std::string& text, int* number) {
  std::int64_t value = *number;
  absl::Status status = Set(key, text, &value);
  *number = static_cast<int>(value);
  return status;
}

absl::Status Set(const Key& key, const std::string& text, double* fraction) {
  double value = 0;
  if (!absl::SimpleAtod(text, &value) || std::isnan(value)) {
    return IsNot(text, "a number");
  }
  if (value < 0 || value > 1) return OutOfRange(key, core::NumberText(value));
  *fraction = value;
  return absl::OkStatus();
}

absl::Status Set(const Key& /*key*/, const std::string& text, bool* on) {
  *on = absl::EqualsIgnoreCase(text, "on");
  if (*on || absl::EqualsIgnoreCase(text, "off") ||
      absl::SimpleAtob(text, on)) {
    return absl::OkStatus();
  }
  return IsNot(text, "on or off");
}

// Checks a path, an address or a name, because the log shows these texts.
absl::Status CheckText(absl::string_view text) {
  constexpr std::size_t kLongest = 4096;  // PATH_MAX of Linux
  const bool too_long = text.size() > kLongest;
  if (!too_long &&
      std::none_of(text.begin(), text.end(), absl::ascii_iscntrl)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      Shown(text), too_long
                       ? absl::StrCat(" of ", text.size(),
                                      " bytes; must have at most ", kLongest)
                       : "; must not contain control characters"));
}

// Sets a choice (one of the key's words), or any text.
absl::Status Set(const Key& key, const std::string& text, std::string* to) {
  if (key.kind == KeyKind::kChoice) {
    const std::vector<std::string> words = absl::StrSplit(key.value, '|');
    if (std::find(words.begin(), words.end(), text) == words.end()) {
      return IsNot(text, absl::StrCat("one of ", absl::StrJoin(words, ", ")));
    }
  }
  if (key.no_empty && text.empty()) {
    return absl::InvalidArgumentError(
        "'' is no value; give a file, or leave the key out");
  }
  const absl::Status status = CheckText(text);
  // The word that --help shows for an empty value ("off") means an empty value
  // here, too.
  const bool none = !text.empty() && text == key.default_means;
  if (status.ok()) *to = none ? "" : text;
  return status;
}

template <typename T>
absl::Status SetAll(const Key& key, const std::vector<std::string>& values,
                    T* to) {
  if (values.size() == 1) return Set(key, values[0], to);
  return absl::InvalidArgumentError(
      absl::StrCat(values.size(), " values; takes one"));
}

absl::Status SetAll(const Key& key, const std::vector<std::string>& values,
                    std::vector<std::string>* list) {
  const std::int64_t count = static_cast<std::int64_t>(values.size());
  if (count < key.min || count > key.max) {
    return OutOfRange(key, absl::StrCat(count, " values"));
  }
  for (const std::string& value : values) {
    if (value.empty()) {
      return absl::InvalidArgumentError("'' in a list; must not be empty");
    }
    RETURN_IF_ERROR(CheckText(value));
  }
  *list = values;
  return absl::OkStatus();
}

std::string Quoted(absl::string_view text) {
  return absl::StrCat(
      "\"", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"\"", "\\\""}}), "\"");
}

std::string Text(const Key& key, std::int64_t number) {
  const std::string size = core::SizeText(number);
  const bool whole =
      key.kind != KeyKind::kBytes || absl::EndsWith(size, " bytes");
  return whole ? absl::StrCat(number) : Quoted(size);
}
std::string Text(const Key& /*key*/, int number) {
  return absl::StrCat(number);
}
std::string Text(const Key& /*key*/, double fraction) {
  return core::NumberText(fraction);
}
std::string Text(const Key& /*key*/, bool on) { return on ? "true" : "false"; }
std::string Text(const Key& /*key*/, absl::Duration duration) {
  if (duration == absl::ZeroDuration()) return Quoted("0s");
  return Quoted(absl::FormatDuration(duration));
}
std::string Text(const Key& /*key*/, const std::string& text) {
  return Quoted(text);
}
std::string Text(const Key& /*key*/, const std::vector<std::string>& list) {
  const auto quote = [](std::string* out, const std::string& text) {
    out->append(Quoted(text));
  };
  return absl::StrCat("[", absl::StrJoin(list, ", ", quote), "]");
}

}  // namespace

absl::Status SetKey(const Key& key, const std::vector<std::string>& values,
                    Config* config) {
  return std::visit([&](auto* to) { return SetAll(key, values, to); },
                    key.field(*config));
}

std::string KeyText(const Key& key, const Config& config) {
  // The const_cast is safe, because this function only reads the field.
  return std::visit([&key](const auto* from) { return Text(key, *from); },
                    key.field(const_cast<Config&>(config)));
}

ConfigChanges TakeChanges(const Config& fresh, Config* running) {
  ConfigChanges changes;
  Config source = fresh;  // a copy, because Key::field() needs a mutable one
  for (const Key& key : Keys()) {
    const std::string before = KeyText(key, *running);
    const std::string after = KeyText(key, fresh);
    if (before == after) continue;
    if (!key.reloads) {
      changes.ignored.emplace_back(key.name);
      continue;
    }
    changes.taken.push_back({key.name, absl::StrCat(before, " -> ", after)});
    std::visit(
        [&](auto* to) { *to = *std::get<decltype(to)>(key.field(source)); },
        key.field(*running));
  }
  return changes;
}

}  // namespace posenc::server
