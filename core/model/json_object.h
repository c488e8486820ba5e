// Typed reading of a JSON object: the first error is kept, and the keys that
// were asked for.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace posenc::core {

// INVALID_ARGUMENT, kModelConfigInvalid, of field "config_json".
absl::Status ConfigError(absl::string_view key, absl::string_view fact);

// Error of a text too long, or nested too deep, to be parsed.
absl::Status CheckJsonSize(absl::string_view text);

// Discarded where the text is not JSON. NaN and the infinities, which Python
// writes as bare words, are read as strings: where a number is wanted they are
// refused, elsewhere they do no harm.
nlohmann::json ParseConfig(absl::string_view text);

// Cheap to copy; the JSON and the status must outlive it. An absent or null key
// reads as nullopt, and so does one of the wrong type, which sets the status.
class JsonObject {
 public:
  // `json` may be null, for an object without keys. `path` names it in errors.
  JsonObject(const nlohmann::json* json, std::string path,
             absl::Status* status);

  bool Has(absl::string_view key) const;  // and not null
  bool HasNull(absl::string_view key) const;
  std::string Path(absl::string_view key) const;
  // Null: absent. Does not count as reading.
  const nlohmann::json* Find(absl::string_view key) const;

  std::optional<double> Number(absl::string_view key) const;
  std::optional<std::int64_t> Integer(absl::string_view key) const;
  std::optional<bool> Flag(absl::string_view key) const;
  std::optional<std::string> Text(absl::string_view key) const;
  std::vector<double> Numbers(absl::string_view key) const;
  JsonObject Object(absl::string_view key) const;

  // The first of several spellings.
  std::optional<std::int64_t> FirstInteger(
      const std::vector<absl::string_view>& keys) const;
  // Absent: the error that it is missing, and 0.
  double RequiredNumber(absl::string_view key, absl::string_view why) const;

  void Fail(absl::string_view key, absl::string_view fact) const;
  std::vector<std::string> Keys() const;
  bool WasRead(absl::string_view key) const;

 private:
  const nlohmann::json* Read(absl::string_view key) const;
  void WrongType(absl::string_view key, absl::string_view wanted) const;

  const nlohmann::json* json_;
  std::string path_;
  absl::Status* status_;
  std::shared_ptr<std::set<std::string>> read_;
};

}  // namespace posenc::core
