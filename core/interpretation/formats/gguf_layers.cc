// The layers of a GGUF's model that llama.cpp does not rotate.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/interpretation/classes/profile.h"
#include "core/interpretation/formats/gguf_rope.h"

namespace posenc::core::interpretation {
namespace {

// Architectures in which rope.scaling.finetuned turns rotation on (the default)
// and off.
constexpr absl::string_view kSwitched = "granite granitemoe granitehybrid";

// Architectures in which some layers have no rope. kEveryFourth: layers 3, 7,
// 11, and so on have none, except in a llama4 model whose window is 0.
// kFromFirst: layers 0, 4, 8, and so on have none, if the model has a window.
// kWindowsAlone: layers without a window have none, if other layers of the
// model have one. In exaone4 only the model with 64 layers has windows.
constexpr absl::string_view kEveryFourth = "smollm3 llama4 afmoe";
constexpr absl::string_view kFromFirst = "smallthinker";
constexpr absl::string_view kWindowsAlone =
    "cohere2 exaone4 exaone-moe muse-glimmer";

// Upper bound on the layers that a loop visits. No model has so many layers.
constexpr std::int64_t kMostLayers = 1024;

}  // namespace

bool GgufRope::HasSwitch() const { return IsAmong(architecture, kSwitched); }

bool GgufRope::RotatesInWindowsAlone() const {
  if (!rope_pattern.empty() || !IsAmong(architecture, kWindowsAlone)) {
    return false;
  }
  return architecture == "exaone4" ? block_count == 64
                                   : sliding_window.value_or(0) > 0;
}

std::optional<bool> GgufRope::RotatesLayer(std::int64_t index) const {
  if (!rope_pattern.empty()) {
    return index >= static_cast<std::int64_t>(rope_pattern.size()) ||
           rope_pattern[static_cast<std::size_t>(index)] != 0;
  }
  if (IsAmong(architecture, kEveryFourth)) {
    const bool never = architecture == "llama4" && sliding_window == 0;
    return never || (index + 1) % 4 != 0;
  }
  if (IsAmong(architecture, kFromFirst)) {
    return sliding_window.value_or(0) == 0 || index % 4 != 0;
  }
  return std::nullopt;
}

std::string GgufRope::LayersWithoutRope() const {
  if (RotatesInWindowsAlone()) return "the layers with full attention";
  std::vector<std::string> layers;
  const std::int64_t count =
      block_count.value_or(static_cast<std::int64_t>(rope_pattern.size()));
  for (std::int64_t i = 0; i < std::min(count, kMostLayers); ++i) {
    if (!RotatesLayer(i).value_or(true)) {
      layers.push_back(absl::StrCat(i));
    }
  }
  if (layers.empty()) return "";
  constexpr std::size_t kShown = 4;
  const bool more = layers.size() > kShown;
  if (more) layers.resize(kShown);
  return absl::StrCat("layers ", absl::StrJoin(layers, ", "),
                      more ? " and so on" : "");
}

}  // namespace posenc::core::interpretation
