// libFuzzer target: the first byte chooses the slices, the rest is a message.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "posenc/compat.h"
#include "tests/fuzz/split_check.h"

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  // protobuf logs every string that is not UTF-8.
  posenc::compat::SetLog(nullptr);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size) {
  if (size == 0) return 0;
  const std::string wrong = posenc::fuzz::CheckSplit(
      absl::string_view(reinterpret_cast<const char*>(data) + 1, size - 1),
      data[0] % 17);
  if (wrong.empty()) return 0;
  std::fprintf(stderr, "SplitTensors: %s\n", wrong.c_str());
  std::abort();
}
