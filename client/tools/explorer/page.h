// The explorer's page: one file of HTML, style and script, which calls the
// methods of json_call.h and loads nothing else.

#pragma once

#include <string>

namespace posenc::explorer {

// The files of page/, which the build turns into a source (embed.cmake).
extern const char kPageHtml[];
extern const char kPageStyle[];
extern const char kPageScript[];

struct ExplorerPage {
  std::string html;
  // Content-Security-Policy: allows only the page's own script and style, by
  // their hashes.
  std::string policy;
};

ExplorerPage MakeExplorerPage();

}  // namespace posenc::explorer
