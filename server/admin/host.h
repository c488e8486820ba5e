// Whom an HTTP request means to ask.
//
// A web page may make its visitor's browser ask a server that only the visitor
// can reach: it gives a name of its own the address of that server (DNS
// rebinding). The browser then sends that name as Host, which is how to tell.
// An address as Host cannot come about in this way: there is no name to rebind.
// Prometheus and kubelet ask by address.

#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace posenc::server {

// Whether the value of a Host header is an IP address, localhost or one of
// `names` (compared without case), each with or without a port.
bool HostAllowed(absl::string_view host, const std::vector<std::string>& names);

}  // namespace posenc::server
