// Heads of requests to the admin server, as any bytes.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "absl/strings/match.h"
#include "server/admin/http.h"
#include "server/admin/origin.h"

namespace {

posenc::server::AdminHttp* Http() {
  static auto* const http = new posenc::server::AdminHttp(
      {.metrics = [] { return std::string(1000, 'x'); },
       .config = [] { return std::string("a = 1\n"); },
       .ready = [] { return true; }},
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
  const std::string response = Http()->React(input).response;
  // One page at most, its headers, and no second response behind it.
  if (!absl::StartsWith(response, "HTTP/1.1 ") || response.size() > 2000) {
    std::abort();
  }
  return 0;
}
