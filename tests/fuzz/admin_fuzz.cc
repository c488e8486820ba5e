// libFuzzer target: the input is the head of a request to the admin server.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "server/admin/http.h"

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
  posenc::server::AdminRequest request;
  const std::vector<std::string> lines = absl::StrSplit(input, '\n');
  const std::vector<std::string> words = absl::StrSplit(lines[0], ' ');
  request.method = words[0];
  if (words.size() > 1) request.path = words[1];
  if (words.size() > 2) request.version = words[2];
  for (std::size_t i = 1; i < lines.size(); ++i) {
    absl::string_view line = lines[i];
    if (absl::ConsumePrefix(&line, "Host: ")) request.hosts.emplace_back(line);
  }
  const posenc::server::AdminResponse response = Http()->Answer(request);
  // A response has one page at most.
  if (response.status < 200 || response.body.size() > 100000) {
    std::abort();
  }
  return 0;
}
