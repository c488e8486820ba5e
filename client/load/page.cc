#include "client/load/page.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"

namespace posenc::load {
namespace {

constexpr absl::string_view kPage =
#include "page_html.inc"
    ;

// Escapes every <, so that no text of a report ends the script.
std::string PageOf(const Json& runs) {
  const std::string json = absl::StrReplaceAll(
      runs.dump(-1, ' ', false, Json::error_handler_t::replace),
      {{"<", "\\u003c"}});
  return absl::StrReplaceAll(
      kPage, {{"const RUNS = [];", absl::StrCat("const RUNS = ", json, ";")}});
}

}  // namespace

std::string ReportPage(const Json& report) {
  return PageOf(Json::array({{{"name", ""}, {"report", report}}}));
}

std::string ComparisonPage(const std::string& a_name, const Json& a,
                           const std::string& b_name, const Json& b) {
  return PageOf(Json::array(
      {{{"name", a_name}, {"report", a}}, {{"name", b_name}, {"report", b}}}));
}

}  // namespace posenc::load
