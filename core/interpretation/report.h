// The results of reading a configuration, except the encoding: the first error,
// assumptions, warnings, and the keys that gave the values.

#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/rope/frequencies.h"

namespace posenc::core::interpretation {

struct Report {
  absl::Status status;
  std::vector<Assumption> assumptions;
  std::vector<std::string> warnings;
  // Maps a field of the spec or of its scaling to the full path of the file's
  // key, for example "rope_theta" to "text_config.rotary_emb_base".
  std::map<std::string, std::string> given_by;
  // The path of the dict from which the scaling was read.
  std::string dict_path;

  bool ok() const { return status.ok(); }
  // Keeps only the first error, because later errors follow from it.
  void Refuse(absl::Status error) { status.Update(std::move(error)); }
  void Assume(absl::string_view field, std::string value, std::string reason) {
    assumptions.push_back(
        {std::string(field), std::move(value), std::move(reason)});
  }
  template <typename... Facts>
  void Warn(const Facts&... facts) {
    warnings.push_back(absl::StrCat(facts...));
  }
};

}  // namespace posenc::core::interpretation
