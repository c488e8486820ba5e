#include "server/admin/host.h"

#include <arpa/inet.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"

namespace posenc::server {
namespace {

bool IsAddress(int family, absl::string_view text) {
  // inet_pton would stop at a NUL and accept the text before it.
  if (absl::StrContains(text, '\0')) return false;
  in6_addr address;  // the larger of the two types
  return inet_pton(family, std::string(text).c_str(), &address) == 1;
}

// Returns true for "" and for a port such as ":9090".
bool IsPort(absl::string_view text) {
  if (text.empty()) return true;
  if (text.size() < 2 || text.size() > 6 || text.front() != ':') return false;
  text.remove_prefix(1);
  return std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
}

}  // namespace

bool HostAllowed(absl::string_view host,
                 const std::vector<std::string>& names) {
  if (absl::StartsWith(host, "[")) {
    const std::size_t end = host.find(']');
    return end != absl::string_view::npos && IsPort(host.substr(end + 1)) &&
           IsAddress(AF_INET6, host.substr(1, end - 1));
  }
  const std::size_t colon = std::min(host.find(':'), host.size());
  if (!IsPort(host.substr(colon))) return false;
  const absl::string_view name = host.substr(0, colon);
  if (absl::EqualsIgnoreCase(name, "localhost")) return true;
  if (IsAddress(AF_INET, name)) return true;
  return std::any_of(names.begin(), names.end(),
                     [name](const std::string& allowed) {
                       return absl::EqualsIgnoreCase(name, allowed);
                     });
}

}  // namespace posenc::server
