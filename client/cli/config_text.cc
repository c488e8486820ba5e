#include "client/cli/config_text.h"

#include <cstdint>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "client/cli/file.h"
#include "client/cli/status.h"

namespace posenc::cli {
namespace {

constexpr std::uintmax_t kMaxConfig = 64 << 20;

}  // namespace

absl::StatusOr<std::string> ReadConfigText(const std::string& path) {
  // A path that is no file has no size; reading it tells why.
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (!error && size > kMaxConfig) {
    return FileError(
        path, absl::StrCat(size, " bytes; at most ", kMaxConfig, " are read"));
  }
  const absl::StatusOr<FileBytes> file = FileBytes::Read(path);
  if (!file.ok()) return file.status();
  return std::string(file->bytes().begin(), file->bytes().end());
}

}  // namespace posenc::cli
