// Checks which host an HTTP request names.
//
// A web page may give its own name the address of a server that only its
// visitor can reach (DNS rebinding), and make the visitor's browser send
// requests there. The browser then sends the page's name as Host, so the server
// can refuse it. An IP address as Host is safe: there is no name to rebind.
// Prometheus and kubelet use addresses.

#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace posenc::server {

// Returns whether the value of a Host header is an IP address, localhost or one
// of `names` (compared without case), each with or without a port.
bool HostAllowed(absl::string_view host, const std::vector<std::string>& names);

}  // namespace posenc::server
