// The explorer's page: one file of HTML, style and script, which asks the
// methods of json_call.h and loads nothing else.

#pragma once

#include <string>

namespace posenc::explorer {

// The files of page/, which the build makes a source of (embed.cmake).
extern const char kPageHtml[];
extern const char kPageStyle[];
extern const char kPageScript[];

struct ExplorerPage {
  std::string html;
  // Content-Security-Policy: of scripts and styles, these of the page alone,
  // known by their hashes.
  std::string policy;
  std::string etag;  // with its quotes
};

ExplorerPage MakeExplorerPage();

}  // namespace posenc::explorer
