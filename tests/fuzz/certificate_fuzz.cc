// libFuzzer target: certificates, a key and a client CA, separated by zero
// bytes.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/transport/certificates.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size) {
  std::vector<absl::string_view> parts = absl::StrSplit(
      absl::string_view(reinterpret_cast<const char*>(data), size), '\0');
  parts.resize(3);
  posenc::server::CheckCertificates(parts[0], parts[1], parts[2],
                                    absl::UnixEpoch())
      .status()
      .IgnoreError();
  return 0;
}
