#include "client/tools/explorer/page.h"

#include <openssl/sha.h>

#include <array>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace posenc::explorer {
namespace {

std::string HashOf(absl::string_view text) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest;
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(),
         digest.data());
  return absl::Base64Escape(absl::string_view(
      reinterpret_cast<const char*>(digest.data()), digest.size()));
}

}  // namespace

ExplorerPage MakeExplorerPage() {
  ExplorerPage page;
  page.html = absl::StrReplaceAll(
      kPageHtml,
      {{"<style></style>", absl::StrCat("<style>", kPageStyle, "</style>")},
       {"<script></script>",
        absl::StrCat("<script>", kPageScript, "</script>")}});
  page.policy = absl::StrCat(
      "default-src 'none'; script-src 'sha256-", HashOf(kPageScript),
      "'; style-src 'sha256-", HashOf(kPageStyle),
      "'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
      "frame-ancestors 'none'");
  return page;
}

}  // namespace posenc::explorer
