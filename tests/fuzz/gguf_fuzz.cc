// libFuzzer target: headers of GGUF files, and the encodings that their keys
// resolve to.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "core/model/gguf_file.h"
#include "core/model/gguf_rope.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size) {
  using posenc::core::GgufRope;
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  const posenc::core::ByteSource source = posenc::core::SourceOf(bytes);
  const auto file = posenc::core::ReadGguf(source);
  if (!file.ok()) {
    if (file.status().message().empty()) std::abort();
    return 0;
  }
  const auto rope = posenc::core::ReadGgufRope(*file, source);
  if (!rope.ok()) return 0;
  for (const bool sliding : {false, true}) {
    posenc::core::ResolveGguf(*rope, 131072, sliding).status().IgnoreError();
  }
  return 0;
}
