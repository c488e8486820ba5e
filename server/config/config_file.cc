#include "server/config/config_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <sstream>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

namespace posenc::server {
namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 20;

absl::Status Bad(int line, absl::string_view fact) {
  return absl::InvalidArgumentError(absl::StrCat(line, ": ", fact));
}

// One table header or one "key = value", without comments, and without line
// ends and spaces that mean nothing.
struct Statement {
  std::string text;
  int line = 0;
};

// Cuts a text into statements. CLI11's reader gets one at a time, because by
// itself it tells no lines, joins a key that comes twice, ends a string at a #,
// and takes brackets and quotes that have no end for granted.
class Cutter {
 public:
  explicit Cutter(absl::string_view text) : rest_(text) {
    absl::ConsumePrefix(&rest_, "\xEF\xBB\xBF");  // a byte order mark
  }

  // False at the end of the text, or at an error.
  bool Next(Statement* statement) {
    while (status_.ok() && !rest_.empty()) {
      *statement = {"", line_};
      Cut(statement);
      if (!statement->text.empty()) return status_.ok();
    }
    return false;
  }
  const absl::Status& status() const { return status_; }

 private:
  // Reads to the end of a line outside of brackets.
  void Cut(Statement* statement) {
    std::string& text = statement->text;
    int depth = 0;
    while (status_.ok() && !rest_.empty()) {
      const char c = rest_.front();
      if (c == '"' || c == '\'') {
        CutString(&text);
        continue;
      }
      rest_.remove_prefix(1);
      if (c == '#') {
        rest_.remove_prefix(std::min(rest_.find('\n'), rest_.size()));
        continue;
      }
      if (c == '\n') ++line_;
      if (c == '\n' && depth == 0) break;
      if (c == '[') ++depth;
      if (c == ']') --depth;
      if (c == '{' || c == '}' || c == '`') {
        status_ = Bad(line_, absl::StrCat("'", std::string(1, c),
                                          "' is not supported here"));
      } else if (absl::ascii_isspace(c)) {
        AppendSpace(&text);
      } else if (absl::ascii_iscntrl(c)) {
        status_ = Bad(line_, "a control character");
      } else if (depth < 0 || depth > 1) {
        status_ = Bad(line_, depth < 0 ? "']' without '['" : "'[' within '['");
      } else {
        if (c == ',' || c == ']') DropSpace(&text);
        text += c;
      }
    }
    DropSpace(&text);
    if (status_.ok() && depth != 0) {
      status_ = Bad(statement->line, "'[' without ']'");
    }
  }

  void CutString(std::string* text) {
    const char quote = rest_.front();
    const std::size_t end =
        rest_.substr(1).find_first_of(quote == '"' ? "\"\n" : "'\n");
    if (end == absl::string_view::npos || rest_[end + 1] == '\n') {
      status_ = Bad(line_, "a string has no end on its line");
      return;
    }
    const absl::string_view inner = rest_.substr(1, end);
    rest_.remove_prefix(end + 2);
    const bool joined =
        (!text->empty() && !IsBoundary(text->back())) ||
        (!rest_.empty() && rest_[0] != quote && !IsBoundary(rest_[0]));
    if (std::any_of(inner.begin(), inner.end(), absl::ascii_iscntrl)) {
      status_ = Bad(line_, "a control character in a string");
    } else if (joined) {
      status_ = Bad(line_, "a string must stand alone");
    } else if (inner.empty() &&
               absl::StartsWith(rest_, std::string(1, quote))) {
      status_ = Bad(line_, "strings of several lines are not supported");
    } else if (quote == '"' && absl::StrContains(inner, "\\")) {
      status_ = Bad(line_,
                    "\\ in \"...\" is not supported; write '...', in which it "
                    "stands for itself");
    } else {
      absl::StrAppend(text, std::string(1, quote), inner,
                      std::string(1, quote));
    }
  }

  static bool IsBoundary(char c) {
    return absl::ascii_isspace(c) || absl::StrContains("[],=.#", c);
  }

  // CLI11 takes a space before a comma for another value.
  static void AppendSpace(std::string* text) {
    if (!text->empty() && !absl::StrContains("[,= ", text->back())) {
      *text += ' ';
    }
  }
  static void DropSpace(std::string* text) {
    if (absl::EndsWith(*text, " ")) text->pop_back();
  }

  absl::string_view rest_;
  int line_ = 1;
  absl::Status status_;
};

// "[tls]" -> "tls".
absl::StatusOr<std::string> TableName(const Statement& statement) {
  const std::string& text = statement.text;
  const std::string name(
      absl::StripAsciiWhitespace(text.substr(1, text.size() - 2)));
  if (!absl::EndsWith(text, "]") || name.empty() ||
      absl::StrContains(name, "[") || absl::StrContains(name, "]") ||
      absl::StrContains(name, "=")) {
    return Bad(statement.line, "is no [table]");
  }
  return name;
}

// What CLI11 makes of "key = value" in the table.
absl::StatusOr<FileEntry> ReadStatement(const std::string& table,
                                        const Statement& statement) {
  const std::size_t equals = statement.text.find('=');
  if (equals == 0 || equals == std::string::npos ||
      equals + 1 == statement.text.size()) {
    return Bad(statement.line, "expected key = value");
  }
  std::istringstream input(absl::StrCat(
      table.empty() ? "" : absl::StrCat("[", table, "]\n"), statement.text));
  CLI::ConfigTOML reader;
  // There are no comments any more; a # that is left stands in a string.
  reader.comment('\0');
  FileEntry entry = {"", {}, statement.line};
  for (const CLI::ConfigItem& item : reader.from_config(input)) {
    if (item.name == "++" || item.name == "--") continue;
    if (!entry.key.empty()) return Bad(statement.line, "more than one key");
    std::vector<std::string> path = item.parents;
    path.push_back(item.name);
    entry.key = absl::StrJoin(path, "-");
    entry.values = item.inputs;
  }
  if (entry.key.empty()) return Bad(statement.line, "expected key = value");
  return entry;
}

absl::StatusOr<std::vector<FileEntry>> ReadStatements(absl::string_view text) {
  std::vector<FileEntry> entries;
  std::string table;
  Cutter cutter(text);
  for (Statement statement; cutter.Next(&statement);) {
    if (statement.text.front() == '[') {
      absl::StatusOr<std::string> name = TableName(statement);
      if (!name.ok()) return name.status();
      table = *std::move(name);
      continue;
    }
    try {
      absl::StatusOr<FileEntry> entry = ReadStatement(table, statement);
      if (!entry.ok()) return entry.status();
      entries.push_back(*std::move(entry));
    } catch (const CLI::Error& error) {
      return Bad(statement.line, error.what());
    }
  }
  if (!cutter.status().ok()) return cutter.status();
  return entries;
}

}  // namespace

absl::StatusOr<std::vector<FileEntry>> ParseConfigFile(absl::string_view name,
                                                       absl::string_view text) {
  absl::StatusOr<std::vector<FileEntry>> entries = ReadStatements(text);
  if (entries.ok()) return entries;
  return absl::InvalidArgumentError(
      absl::StrCat(name, ":", entries.status().message()));
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
