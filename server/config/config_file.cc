#include "server/config/config_file.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/base/error.h"
#include "core/base/text.h"
// Only this file includes toml++. These macros make toml++ return errors as
// values. toml++'s assertions would fail for malformed files; without
// assertions, toml++ returns an error for these files.
#undef NDEBUG
#define TOML_ASSERT(condition) static_cast<void>(0)
#define TOML_EXCEPTIONS 0
#include "toml++/toml.h"

namespace posenc::server {
namespace {

constexpr char kString[] = "a string";
constexpr char kWholeNumber[] = "a whole number";
constexpr char kFloat[] = "a number with a point";
constexpr char kBoolean[] = "true or false";
constexpr char kOther[] = "of another type";

// The TOML types that keys of each KeyKind accept, and the words for these
// types in errors.
constexpr struct {
  absl::string_view types[2];
  const char* words;
} kWanted[] = {
    {{kString, kWholeNumber},
     "bytes as a whole number, or \"64MiB\" in quotes"},
    {{kString}, "a time in quotes, as \"30s\""},
    {{kWholeNumber}, "a whole number, without quotes"},
    {{kWholeNumber, kFloat}, "a number, without quotes"},
    {{kString, kBoolean}, "true or false"},
    {{kString}, "a string, in quotes"},  // a choice
    {{kString}, "a string, in quotes"},
    {{kString}, "an array of strings"},
};

FileValue ValueOf(const toml::node& node) {
  if (const auto* const text = node.as_string()) return {kString, text->get()};
  if (const auto* const number = node.as_integer()) {
    return {kWholeNumber, absl::StrCat(number->get())};
  }
  // SetKey() parses this text and gets the same number, because NumberText()
  // writes enough digits.
  if (const auto* const number = node.as_floating_point()) {
    return {kFloat, core::NumberText(number->get())};
  }
  if (const auto* const truth = node.as_boolean()) {
    return {kBoolean, truth->get() ? "true" : "false"};
  }
  return {kOther, ""};
}

// Appends the entries of a table, with `prefix` in front of their keys.
void Flatten(const std::string& prefix, const toml::table& table,
             std::vector<FileEntry>* entries) {
  for (const auto& [name, node] : table) {
    FileEntry entry = {absl::StrCat(prefix, std::string(name.str())),
                       static_cast<int>(name.source().begin.line),
                       {}};
    const toml::table* const inner = node.as_table();
    if (inner != nullptr && !inner->empty()) {
      Flatten(absl::StrCat(entry.key, "-"), *inner, entries);
      continue;
    }
    if (const toml::array* const array = node.as_array()) {
      entry.array = true;
      for (const toml::node& each : *array) {
        entry.values.push_back(ValueOf(each));
      }
    } else if (inner != nullptr && !inner->is_inline()) {
      entry.empty_table = true;  // but "threads = {}" is a value
    } else {
      entry.values.push_back(ValueOf(node));
    }
    entries->push_back(std::move(entry));
  }
}

// Returns the key or table header that line `line` belongs to, such as
// "threads" for the line "threads = many", or "" if none is found. Messages
// name the key, because toml++'s errors do not.
absl::string_view KeyAt(const std::vector<absl::string_view>& lines,
                        std::size_t line) {
  for (std::size_t i = line; i > 0; --i) {
    const absl::string_view here = absl::StripAsciiWhitespace(lines[i - 1]);
    const std::size_t equals = here.find('=');
    if (equals != absl::string_view::npos) {
      return absl::StripAsciiWhitespace(here.substr(0, equals));
    }
    if (!here.empty() && here[0] == '[') return here;
    // A line that begins with a letter does not continue an array, and only
    // arrays span several lines. So the key is on this line.
    if (i == line && !here.empty() && absl::ascii_isalpha(here[0])) {
      return here;
    }
  }
  return "";
}

bool IsAscii(char c) {
  return absl::ascii_isascii(static_cast<unsigned char>(c));
}

absl::Status Malformed(absl::string_view name, absl::string_view text,
                       const toml::parse_error& error) {
  constexpr std::size_t kLongest = 200;
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  const std::size_t line =
      std::clamp<std::size_t>(error.source().begin.line, 1, lines.size());
  const std::string key = core::OneLine(KeyAt(lines, line), kLongest);
  const std::string_view fact = error.description();
  const bool ascii =
      std::all_of(lines[line - 1].begin(), lines[line - 1].end(), IsAscii);
  return absl::InvalidArgumentError(absl::StrCat(
      name, ":", line, ": ", key, key.empty() ? "" : ": ",
      core::OneLine({fact.data(), fact.size()}, kLongest),
      ascii ? ""
            : "; characters beyond ASCII may be in strings and comments only"));
}

}  // namespace

absl::StatusOr<std::vector<FileEntry>> ParseConfigFile(absl::string_view name,
                                                       absl::string_view text) {
  // Dotted keys make nested tables, which toml++ builds and frees by recursion.
  // toml++ limits only the depth of values: 100,000 dots in a key overflowed
  // the stack.
  constexpr int kMostDots = 2000;
  if (std::count(text.begin(), text.end(), '.') > kMostDots) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": more than ", kMostDots, " dots"));
  }
  absl::ConsumePrefix(&text, "\xEF\xBB\xBF");  // a byte order mark
  // toml++ has undefined behaviour for characters beyond ASCII outside strings
  // and comments. So this function first parses a copy that has '!' instead of
  // all characters beyond ASCII, because toml++ reports a '!' outside strings
  // and comments as an ordinary error.
  std::string ascii(text);
  std::replace_if(ascii.begin(), ascii.end(), std::not_fn(IsAscii), '!');
  toml::parse_result parsed = toml::parse(ascii);
  if (parsed) parsed = toml::parse(std::string_view(text.data(), text.size()));
  if (!parsed) return Malformed(name, text, parsed.error());
  std::vector<FileEntry> entries;
  Flatten("", parsed.table(), &entries);
  // toml++ sorts tables by name; entries keep the order of the file.
  std::stable_sort(
      entries.begin(), entries.end(),
      [](const FileEntry& a, const FileEntry& b) { return a.line < b.line; });
  return entries;
}

absl::StatusOr<std::vector<std::string>> TextsFor(const Key& key,
                                                  const FileEntry& entry) {
  const auto& [types, words] = kWanted[static_cast<int>(key.kind)];
  if (entry.array && key.kind != KeyKind::kList) {
    return absl::InvalidArgumentError(
        absl::StrCat("is an array; must be ", words));
  }
  std::vector<std::string> texts;
  for (const FileValue& value : entry.values) {
    if (value.type != types[0] && value.type != types[1]) {
      return absl::InvalidArgumentError(
          absl::StrCat(entry.array ? "holds what is " : "is ", value.type,
                       "; must be ", words));
    }
    texts.push_back(value.text);
  }
  return texts;
}

}  // namespace posenc::server
