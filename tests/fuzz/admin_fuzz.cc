// Heads of requests to the admin server, as any bytes.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "absl/strings/match.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "server/admin/http.h"
#include "server/admin/origin.h"

namespace {

posenc::server::AdminHttp* Http() {
  static auto* const http = new posenc::server::AdminHttp(
      {.metrics = [] { return std::string(1000, 'x'); },
       .config = [] { return std::string("a = 1\n"); },
       .ready = [] { return true; },
       // Nothing is ever sent through it.
       .explorer = grpc::CreateChannel("unix:/nonexistent",
                                       grpc::InsecureChannelCredentials())},
      {"posenc"});
  return http;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size) {
  const absl::string_view input(reinterpret_cast<const char*>(data), size);
  posenc::server::HostAllowed(input, {"posenc"});
  // Judged in two pieces, a head is what it is as a whole, unless the first
  // piece is enough to refuse it.
  const auto half = posenc::server::JudgeHead(input.substr(0, size / 2));
  const auto whole = posenc::server::JudgeHead(input);
  if (half != posenc::server::Head::kIncomplete &&
      whole == posenc::server::Head::kIncomplete) {
    std::abort();
  }
  if (whole != posenc::server::Head::kComplete) return 0;
  const posenc::server::Reaction reaction = Http()->React(input);
  if (reaction.call) {
    // Known methods with bounded bodies, and nothing sent before they are made.
    if (!reaction.response.empty() ||
        reaction.body_bytes > posenc::server::kMaxBodyBytes ||
        posenc::server::FindJsonMethod(reaction.call->method) ==
            posenc::server::JsonMethod::kNone) {
      std::abort();
    }
    return 0;
  }
  // One page at most (the explorer's is the largest), its headers, and no
  // second response behind it.
  if (!absl::StartsWith(reaction.response, "HTTP/1.1 ") ||
      reaction.response.size() > 100000) {
    std::abort();
  }
  return 0;
}
