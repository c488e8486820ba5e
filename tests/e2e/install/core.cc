// Frequencies from core, without a server.

#include <cstdio>
#include <optional>

#include "core/rope/frequencies.h"
#include "core/rope/spec.h"

int main() {
  posenc::core::RopeSpec spec;
  spec.pairing = posenc::core::Pairing::kHalfSplit;
  spec.rotary_dim = 128;
  const auto rope = posenc::core::ResolveSpec(
      spec, 128, std::nullopt, posenc::core::MissingLength::kError);
  if (!rope.ok()) return 1;
  std::printf("%zu frequencies, the first %g\n", rope->inv_freq.size(),
              rope->inv_freq[0]);
}
