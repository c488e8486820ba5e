// libFuzzer target: a token file, and a header with a token. The text up to the
// first zero byte is the header, the rest is the file.

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/transport/tokens.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size) {
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::size_t end = bytes.find('\0');
  const absl::string_view header = bytes.substr(0, end);
  const absl::string_view file =
      end == absl::string_view::npos ? bytes : bytes.substr(end + 1);
  const auto tokens = posenc::server::Tokens::Parse(file);
  if (tokens.ok()) {
    tokens->Check("ApplyRope", header, absl::UnixEpoch())
        .status()
        .IgnoreError();
  }
  return 0;
}
