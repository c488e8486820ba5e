// A configuration's text, parsed once: its values, and what they do not say.

#pragma once

#include "absl/strings/string_view.h"
#include "core/interpretation/json_text.h"
#include "nlohmann/json.hpp"

namespace posenc::core::interpretation {

struct ParsedText {
  JsonText text;
  nlohmann::json value;  // of no meaning beside a fault
};

// NaN and the infinities, which Python writes as bare words, are read as
// strings: if a number is wanted they are refused, elsewhere they do no harm.
// `text` must have passed CheckJsonSize().
ParsedText ParseText(absl::string_view text);

}  // namespace posenc::core::interpretation
