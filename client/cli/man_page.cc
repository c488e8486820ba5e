// `posenc man`: the manual page, in the macros of man(7), from the text of
// --help.

#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "client/cli/commands.h"
#include "server/version.h"

namespace posenc::cli {
namespace {

constexpr char kDescription[] =
    "posenc calls a posenc server: it inspects positional encodings, builds "
    "their tables, and sends tensors of files through the server. Without "
    "--server it runs a server inside its own process. Flags have the names of "
    "the contract's fields. The file name - is standard input or output; "
    "messages then go to standard error.";
constexpr char kServerVariable[] =
    "The address of the server if --server is not given. Empty: unset.";
constexpr char kExitStatus[][2][80] = {
    {"0", "ok"},
    {"1", "the call failed, or check or doctor found an error"},
    {"2", "wrong usage"},
    {"3", "a file cannot be read, written or parsed"},
};

// Escapes backslashes and hyphens for troff.
std::string Escaped(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"\\", "\\e"}, {"-", "\\-"}});
}

// Returns the text's lines; protects lines that begin with '.' or '\'', which
// would be requests.
std::string Paragraph(absl::string_view text) {
  std::string out;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    absl::StrAppend(
        &out, line.empty() || line[0] == '.' || line[0] == '\'' ? "\\&" : "",
        Escaped(line), "\n");
  }
  return out;
}

std::string FlagLines(const CLI::App& app) {
  std::string text;
  for (const CLI::Option* const option : app.get_options()) {
    // Each command has --help; only the program's is described.
    if (option == app.get_help_ptr() && app.get_parent() != nullptr) continue;
    std::vector<std::string> names;
    for (const std::string& name : option->get_snames()) {
      names.push_back(absl::StrCat("\\fB\\-", Escaped(name), "\\fR"));
    }
    for (const std::string& name : option->get_lnames()) {
      names.push_back(absl::StrCat("\\fB\\-\\-", Escaped(name), "\\fR"));
    }
    if (names.empty()) {
      names.push_back(
          absl::StrCat("\\fI", Escaped(option->get_name()), "\\fR"));
    }
    absl::StrAppend(&text, ".TP\n", absl::StrJoin(names, ", "));
    // The description has the values that a check adds to the type's name.
    const std::string type = option->get_type_name();
    if (option->get_items_expected_max() > 0 && !option->get_lnames().empty() &&
        !type.empty()) {
      absl::StrAppend(&text, " \\fI", Escaped(type.substr(0, type.find(':'))),
                      "\\fR");
    }
    absl::StrAppend(&text, "\n", Paragraph(option->get_description()));
    if (!option->get_default_str().empty()) {
      absl::StrAppend(&text, Paragraph(absl::StrCat(
                                 "Default: ", option->get_default_str(), ".")));
    }
    if (option->get_required()) absl::StrAppend(&text, "Required.\n");
  }
  return text;
}

// Returns the example in a command's footer.
std::string Example(const CLI::App& command) {
  const std::string footer = command.get_footer();
  const std::size_t begin = footer.find("posenc ");
  const std::size_t end = footer.find("\n\n", begin);
  if (begin == std::string::npos || end == std::string::npos) return "";
  return absl::StrCat(".PP\n.EX\n",
                      Paragraph(footer.substr(begin, end - begin)), ".EE\n");
}

std::string ManPage(const CLI::App& app) {
  std::string text =
      absl::StrCat(".TH POSENC 1 \"\" \"posenc ", Escaped(server::kVersion),
                   "\" \"User Commands\"\n.SH NAME\nposenc \\- ",
                   Paragraph("positional encodings from the command line"),
                   ".SH SYNOPSIS\n.B posenc\n.I COMMAND\n[\\fIFLAGS\\fR]\n.SH "
                   "DESCRIPTION\n",
                   Paragraph(kDescription), ".SH COMMANDS\n");
  for (const CLI::App* const command :
       app.get_subcommands([](const CLI::App*) { return true; })) {
    absl::StrAppend(&text, ".SS posenc ", Escaped(command->get_name()), "\n",
                    Paragraph(command->get_description() + "."),
                    FlagLines(*command), Example(*command));
  }
  absl::StrAppend(&text, ".SH \"FLAGS OF ALL COMMANDS\"\n", FlagLines(app),
                  ".SH ENVIRONMENT\n.TP\n.B POSENC_SERVER\n",
                  Paragraph(kServerVariable), ".SH \"EXIT STATUS\"\n");
  for (const auto& [code, meaning] : kExitStatus) {
    absl::StrAppend(&text, ".TP\n.B ", code, "\n", Paragraph(meaning));
  }
  return text;
}

}  // namespace

Command AddMan(CLI::App* app, const GlobalFlags* /*globals*/) {
  return [app] {
    const std::string page = ManPage(*app->get_parent());
    std::fwrite(page.data(), 1, page.size(), stdout);
    return absl::OkStatus();
  };
}

}  // namespace posenc::cli
