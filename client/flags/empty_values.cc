#include "client/flags/empty_values.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace posenc::flags {

absl::Status CheckEmptyValues(int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i) {
    const absl::string_view flag = argv[i];
    if (absl::StartsWith(flag, "--") && flag.find('=') == flag.size() - 1) {
      return absl::InvalidArgumentError(
          absl::StrCat(flag.substr(0, flag.size() - 1), ": '", flag,
                       "' has no value; leave the flag out, or give one"));
    }
  }
  return absl::OkStatus();
}

}  // namespace posenc::flags
