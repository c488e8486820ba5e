#include "client/cpp/connection/target.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/cpp/connection/error_fields.h"

namespace posenc {

bool IsUnix(absl::string_view target) {
  return absl::StartsWith(target, "unix:") ||
         absl::StartsWith(target, "unix-abstract:");
}

absl::Status CheckTarget(absl::string_view target) {
  if (target.empty()) {
    return WrongArgument("target", "is missing; such as localhost:50051");
  }
  for (const absl::string_view scheme : {"http://", "https://"}) {
    if (absl::StartsWith(target, scheme)) {
      return WrongArgument(
          "target",
          absl::StrCat(target, ": must be ", target.substr(scheme.size()),
                       ", without ", scheme, "; TLS is an option"));
    }
  }
  if (IsUnix(target)) return absl::OkStatus();
  for (const absl::string_view address : absl::StrSplit(target, ',')) {
    const std::size_t colon = address.rfind(':');
    if (colon == absl::string_view::npos) continue;
    const absl::string_view port = address.substr(colon + 1);
    // A number of up to four digits is never too large. Letters or a bracket
    // belong to an IPv6 address, not to a port.
    if (!std::all_of(port.begin(), port.end(), absl::ascii_isdigit) ||
        port.size() < 5) {
      continue;
    }
    std::uint32_t number = 0;
    if (!absl::SimpleAtoi(port, &number) || number > 65535) {
      return WrongArgument("target", absl::StrCat(target, ": port ", port,
                                                  "; must be 1 to 65535"));
    }
  }
  return absl::OkStatus();
}

bool HasPort(absl::string_view target) {
  if (IsUnix(target)) return true;
  const absl::string_view port = target.substr(target.rfind(':') + 1);
  return !port.empty() &&
         std::all_of(port.begin(), port.end(), absl::ascii_isdigit);
}

}  // namespace posenc
