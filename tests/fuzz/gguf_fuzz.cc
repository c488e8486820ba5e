// libFuzzer target: headers of GGUF files, and the encodings that their keys
// resolve to.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "core/interpretation/formats/gguf_file.h"
#include "core/interpretation/formats/gguf_rope.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size) {
  using posenc::core::interpretation::GgufRope;
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  const posenc::core::interpretation::ByteSource source =
      posenc::core::interpretation::SourceOf(bytes);
  const auto file = posenc::core::interpretation::ReadGguf(source);
  if (!file.ok()) {
    if (file.status().message().empty()) std::abort();
    return 0;
  }
  const auto rope = posenc::core::interpretation::ReadGgufRope(*file, source);
  if (!rope.ok()) return 0;
  for (const bool sliding : {false, true}) {
    posenc::core::interpretation::ResolveGguf(*rope, 131072, sliding)
        .status()
        .IgnoreError();
  }
  return 0;
}
