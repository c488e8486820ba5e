// libFuzzer target: the reader of models' config.json, the resolved encoding,
// and a tower's grid. Byte 0 chooses profile and part, byte 1 layer and length;
// the rest is the text.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "core/interpretation/config.h"
#include "core/interpretation/source.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size) {
  using posenc::core::interpretation::Profile;
  if (size < 2) return 0;
  posenc::core::interpretation::RopeSource source;
  source.source = posenc::core::interpretation::ConfigJson{
      std::string(reinterpret_cast<const char*>(data) + 2, size - 2)};
  constexpr int kProfiles = static_cast<int>(Profile::kMlx);
  source.profile = static_cast<Profile>(1 + data[0] % kProfiles);
  source.part =
      static_cast<posenc::core::interpretation::ModelPart>(data[0] >> 6);
  if (data[1] & 1) source.layer_type = "full_attention";
  if (data[1] & 2) source.layer_index = data[1] >> 4;
  if (data[1] & 4) source.sequence_length = std::int64_t{data[1]} << 10;
  const auto resolved = posenc::core::interpretation::ResolveSource(
      source, data[1] & 8 ? 128 : 0, posenc::core::MissingLength::kError);
  const auto grid = posenc::core::interpretation::ResolveTowerGrid(source);
  for (const absl::Status& status : {resolved.status(), grid.status()}) {
    if (status.code() == absl::StatusCode::kInternal ||
        status.code() == absl::StatusCode::kUnknown) {
      std::fprintf(stderr, "%s\n", status.ToString().c_str());
      std::abort();
    }
  }
  return 0;
}
