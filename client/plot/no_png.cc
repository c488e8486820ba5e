// Stands in for png.cc if posenc is built without libpng.

#include "absl/status/status.h"
#include "client/plot/png.h"

namespace posenc::plot {
namespace {

absl::Status NotBuiltIn() {
  return absl::UnimplementedError(
      "this posenc was built without libpng, which PNG files and pictures of "
      "many cells need; build it with libpng (Debian: libpng-dev)");
}

}  // namespace

absl::StatusOr<std::string> RgbPng(int /*width*/, int /*height*/,
                                   absl::Span<const std::uint8_t> /*pixels*/) {
  return NotBuiltIn();
}

absl::StatusOr<std::string> CividisPng(
    int /*width*/, int /*height*/, absl::Span<const std::uint8_t> /*levels*/,
    bool /*masked*/) {
  return NotBuiltIn();
}

}  // namespace posenc::plot
