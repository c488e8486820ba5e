#include "server/config/config_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/error.h"
// Errors come as values. No other file includes this one.
#define TOML_EXCEPTIONS 0
#include "toml++/toml.h"

namespace posenc::server {
namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 20;

// Words of a file in a message: one line, and not endless.
std::string Shown(absl::string_view text) {
  constexpr std::size_t kLongest = 200;
  std::string shown(text.substr(0, kLongest));
  std::replace_if(
      shown.begin(), shown.end(),
      [](unsigned char c) { return !absl::ascii_isprint(c); }, '?');
  return shown;
}

// What stands in the line, or begins before it: "threads" of "threads = many",
// or "[tls]". TOML's errors do not say it. Empty if it cannot be told.
std::string KeyAt(absl::string_view text, std::size_t line) {
  std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  for (std::size_t i = std::min(line, lines.size()); i > 0; --i) {
    const absl::string_view here = absl::StripAsciiWhitespace(lines[i - 1]);
    const std::size_t equals = here.find('=');
    if (equals != absl::string_view::npos) {
      return Shown(absl::StripAsciiWhitespace(here.substr(0, equals)));
    }
    if (!here.empty() && here[0] == '[') return Shown(here);
    // An array may stand in several lines; another statement may not.
    if (i == line && !here.empty() && absl::ascii_isalpha(here[0])) {
      return Shown(here);
    }
  }
  return "";
}

FileType TypeOf(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::string:
      return FileType::kString;
    case toml::node_type::integer:
      return FileType::kInteger;
    case toml::node_type::floating_point:
      return FileType::kFloat;
    case toml::node_type::boolean:
      return FileType::kBoolean;
    default:
      return FileType::kOther;
  }
}

std::string TextOf(const toml::node& node) {
  if (const auto* const text = node.as_string()) return text->get();
  if (const auto* const number = node.as_integer()) {
    return absl::StrCat(number->get());
  }
  // Round-trips, as every key's own writing does.
  if (const auto* const number = node.as_floating_point()) {
    return core::NumberText(number->get());
  }
  if (const auto* const truth = node.as_boolean()) {
    return truth->get() ? "true" : "false";
  }
  return "";
}

// Appends the entries of a table whose keys begin with `prefix`.
void Flatten(const std::string& prefix, const toml::table& table,
             std::vector<FileEntry>* entries) {
  for (const auto& [name, node] : table) {
    const std::string key = absl::StrCat(prefix, std::string(name.str()));
    // "threads = {}" gives a value; "[tls]" may have no keys yet.
    const toml::table* const inner = node.as_table();
    if (inner != nullptr && inner->empty() && !inner->is_inline()) {
      entries->push_back(
          {key, {}, false, static_cast<int>(name.source().begin.line), true});
      continue;
    }
    if (inner != nullptr && !inner->empty()) {
      Flatten(absl::StrCat(key, "-"), *inner, entries);
      continue;
    }
    FileEntry entry = {
        key, {}, false, static_cast<int>(name.source().begin.line)};
    if (const toml::array* const array = node.as_array()) {
      entry.array = true;
      for (const toml::node& element : *array) {
        entry.values.push_back({TypeOf(element), TextOf(element)});
      }
    } else {
      entry.values.push_back({TypeOf(node), TextOf(node)});
    }
    entries->push_back(std::move(entry));
  }
}

// Which of TOML's types a key takes, and the words for it.
struct Wanted {
  bool string, integer, fraction, boolean;
  const char* words;
};

Wanted WantedFor(const Key& key) {
  switch (key.kind) {
    case KeyKind::kBytes:
      return {true, true, false, false,
              "bytes as a whole number, or \"64MiB\" in quotes"};
    case KeyKind::kDuration:
      return {true, false, false, false, "a time in quotes, as \"30s\""};
    case KeyKind::kInteger:
      return {false, true, false, false, "a whole number, without quotes"};
    case KeyKind::kFraction:
      return {false, true, true, false, "a number, without quotes"};
    case KeyKind::kSwitch:
      return {true, false, false, true, "true or false"};
    case KeyKind::kList:
      return {true, false, false, false, "an array of strings"};
    case KeyKind::kChoice:
    case KeyKind::kText:
      break;
  }
  return {true, false, false, false, "a string, in quotes"};
}

bool Takes(const Wanted& wanted, FileType type) {
  switch (type) {
    case FileType::kString:
      return wanted.string;
    case FileType::kInteger:
      return wanted.integer;
    case FileType::kFloat:
      return wanted.fraction;
    case FileType::kBoolean:
      return wanted.boolean;
    case FileType::kOther:
      break;
  }
  return false;
}

const char* NameOf(FileType type) {
  switch (type) {
    case FileType::kString:
      return "a string";
    case FileType::kInteger:
      return "a whole number";
    case FileType::kFloat:
      return "a number with a point";
    case FileType::kBoolean:
      return "true or false";
    case FileType::kOther:
      break;
  }
  return "of another type";
}

// Far more than all keys and addresses have, and far less than what a stack
// holds (100,000 overflowed it).
constexpr int kMostDots = 2000;

// TOML's own: no other character may stand between words.
absl::string_view StripBlanks(absl::string_view text) {
  return text.substr(std::min(text.find_first_not_of(" \t"), text.size()));
}

bool IsAscii(absl::string_view text) {
  return std::all_of(text.begin(), text.end(), absl::ascii_isascii);
}

// Whether a string may begin where a line has this before it, without blanks
// and with a quote for the last string and all before it: "key=", "key=[" and
// more of an array, which may have begun in a line before.
bool MayBeginString(absl::string_view before) {
  const std::size_t equals = before.find('=');
  if (equals != absl::string_view::npos) {
    const absl::string_view key = before.substr(0, equals);
    if (key.empty() || !std::all_of(key.begin(), key.end(), [](char c) {
          return absl::ascii_isalnum(c) || absl::StrContains("-_.", c);
        })) {
      return false;
    }
    before.remove_prefix(equals + 1);
    absl::ConsumePrefix(&before, "[");
  }
  return before.empty() || before == "\",";
}

// Whether a line has characters beyond ASCII that are in no string and no
// comment.
bool HasStrayCharacter(absl::string_view line) {
  std::string before;
  char quote = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quote != 0) {
      if (c == '\\' && quote == '"') ++i;
      if (c == quote) {
        quote = 0;
        before = '"';
      }
    } else if (!absl::ascii_isascii(c)) {
      return true;
    } else if (c == '#') {
      return false;
    } else if (c == '"' || c == '\'') {
      // Whether a later '#' begins a comment cannot be told otherwise.
      if (!MayBeginString(before)) return !IsAscii(line.substr(i));
      quote = c;
    } else if (!absl::ascii_isblank(c)) {
      before += c;
    }
  }
  return false;
}

// Whether the line is a table's header in which no name follows the bracket.
bool IsNamelessTable(absl::string_view line) {
  line = StripBlanks(line);
  if (!absl::ConsumePrefix(&line, "[")) return false;
  line = StripBlanks(line);
  absl::ConsumePrefix(&line, "[");
  line = StripBlanks(line);
  return line.empty() || !(absl::ascii_isalnum(line[0]) ||
                           absl::StrContains("-_\"']", line[0]));
}

// Whether a brace closes what was not opened: at the beginning of a line, which
// no inline table crosses, or where a value should be.
bool HasStrayBrace(absl::string_view line) {
  char last = ',';
  for (const char c : line) {
    if (c == '#' && last == ',') return false;
    if (c == '}' && (last == ',' || last == '[')) return true;
    if (!absl::ascii_isblank(c)) last = c;
  }
  return false;
}

// What is wrong with a line, of that which is no TOML and for which toml++ 3.3
// is undefined instead of saying so; empty: nothing. In a file with strings of
// several lines, whose ends are not easily found, no line may have characters
// beyond ASCII.
absl::string_view WrongWith(absl::string_view line, bool several_lines) {
  absl::ConsumeSuffix(&line, "\r");
  if (std::any_of(line.begin(), line.end(),
                  [](char c) { return absl::ascii_iscntrl(c) && c != '\t'; })) {
    return "a control character";
  }
  if (!IsAscii(line) && (several_lines || HasStrayCharacter(line))) {
    return "a character beyond ASCII; it may be in a comment, or in a string "
           "if all strings are of one line";
  }
  if (IsNamelessTable(line)) return "no table's name follows the bracket";
  if (HasStrayBrace(line)) return "a brace that closes nothing";
  return "";
}

}  // namespace

absl::StatusOr<std::vector<FileEntry>> ParseConfigFile(absl::string_view name,
                                                       absl::string_view text) {
  // Tables of dotted keys are nested, and made and freed by recursion, which
  // toml++ bounds for values only.
  if (std::count(text.begin(), text.end(), '.') > kMostDots) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": more than ", kMostDots, " dots"));
  }
  absl::ConsumePrefix(&text, "\xEF\xBB\xBF");  // says that UTF-8 follows
  const bool several_lines =
      absl::StrContains(text, "\"\"\"") || absl::StrContains(text, "'''");
  std::size_t number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    const absl::string_view wrong = WrongWith(line, several_lines);
    if (wrong.empty()) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        name, ":", number, ": ", KeyAt(text, number), ": ", wrong));
  }
  const toml::parse_result parsed =
      toml::parse(std::string_view(text.data(), text.size()));
  if (!parsed) {
    const toml::parse_error& error = parsed.error();
    const std::size_t line = error.source().begin.line;
    const std::string key = KeyAt(text, line);
    return absl::InvalidArgumentError(absl::StrCat(
        name, ":", line, ": ", key, key.empty() ? "" : ": ",
        Shown({error.description().data(), error.description().size()})));
  }
  std::vector<FileEntry> entries;
  Flatten("", parsed.table(), &entries);
  // Tables are sorted by their names.
  std::stable_sort(
      entries.begin(), entries.end(),
      [](const FileEntry& a, const FileEntry& b) { return a.line < b.line; });
  return entries;
}

absl::StatusOr<std::vector<std::string>> TextsFor(const Key& key,
                                                  const FileEntry& entry) {
  const Wanted wanted = WantedFor(key);
  if (entry.array && key.kind != KeyKind::kList) {
    return absl::InvalidArgumentError(
        absl::StrCat("is an array; must be ", wanted.words));
  }
  std::vector<std::string> texts;
  for (const FileValue& value : entry.values) {
    if (!Takes(wanted, value.type)) {
      return absl::InvalidArgumentError(
          absl::StrCat(entry.array ? "holds what is " : "is ",
                       NameOf(value.type), "; must be ", wanted.words));
    }
    texts.push_back(value.text);
  }
  return texts;
}

absl::StatusOr<std::string> ReadConfigFile(const std::string& path) {
  // Without waiting: a pipe that nobody writes to would hold the process up,
  // and with it the signals that should end it.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(
      fd < 0 ? nullptr : fdopen(fd, "r"), std::fclose);
  struct stat about = {};
  if (file != nullptr && fstat(fd, &about) == 0 && S_ISFIFO(about.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": a pipe; must be a file"));
  }
  std::string text(kMostBytes + 1, '\0');
  if (file != nullptr) {
    errno = 0;
    text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  }
  if (file == nullptr || std::ferror(file.get()) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", std::strerror(errno)));
  }
  if (text.size() > kMostBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": more than ", kMostBytes, " bytes"));
  }
  return text;
}

}  // namespace posenc::server
