// The format of --help, with unchanged footers. CLI11 2.5 and later would
// reflow them, and lose the indentation of examples.

#pragma once

#include <string>

#include "CLI/CLI.hpp"

namespace posenc::flags {

class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_footer(const CLI::App* /*app*/) const override { return ""; }
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    const std::string help = CLI::Formatter::make_help(app, name, mode);
    const std::string footer = app->get_footer();
    return footer.empty() || mode == CLI::AppFormatMode::Sub
               ? help
               : help + footer + "\n";
  }
};

}  // namespace posenc::flags
