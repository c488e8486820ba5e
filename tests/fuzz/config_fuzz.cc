// libFuzzer target: the input is a configuration file. An accepted
// configuration can be printed, and reading the output gives the same
// configuration.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/config/config_file.h"
#include "server/config/keys.h"

namespace posenc::server {
namespace {

void Require(bool holds, const char* claim, const std::string& text) {
  if (holds) return;
  std::fprintf(stderr, "ParseConfigFile: %s: %s\n", claim, text.c_str());
  std::abort();
}

void CheckFile(absl::string_view text) {
  const absl::StatusOr<std::vector<FileEntry>> entries =
      ParseConfigFile("file", text);
  if (!entries.ok()) return;
  for (const FileEntry& entry : *entries) {
    const Key* const key = FindKey(entry.key);
    Config config;
    if (key == nullptr) continue;
    const auto texts = TextsFor(*key, entry);
    if (!texts.ok() || !SetKey(*key, *texts, &config).ok()) continue;
    const std::string line =
        absl::StrCat(key->name, " = ", KeyText(*key, config));
    const absl::StatusOr<std::vector<FileEntry>> again =
        ParseConfigFile("print", line);
    Require(again.ok() && again->size() == 1, "refuses its own print", line);
    Config copy;
    const auto reread = TextsFor(*key, (*again)[0]);
    Require(reread.ok() && SetKey(*key, *reread, &copy).ok() &&
                KeyText(*key, copy) == KeyText(*key, config),
            "reads something else back", line);
  }
}

}  // namespace
}  // namespace posenc::server

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size) {
  posenc::server::CheckFile(
      absl::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
