// Reads values of a JSON object by type. Errors go to a Report. The object
// records which keys were read, so that unread keys of a configuration can be
// reported.
//
// This header, which includes nlohmann::json, is for the files of
// core/interpretation. The folder's public headers do not include it.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/interpretation/json_text.h"
#include "core/interpretation/report.h"
#include "nlohmann/json.hpp"

namespace posenc::core::interpretation {

// INVALID_ARGUMENT, kModelConfigInvalid, of field "config_json".
absl::Status ConfigError(absl::string_view key, absl::string_view fact);

// Returns an error if the text is too long, or nested too deeply, to be parsed.
absl::Status CheckJsonSize(absl::string_view text);

// A parsed text: its values, and the facts that they lack.
struct ParsedText {
  JsonText text;
  nlohmann::json value;  // meaningless if there is a fault
};

// NaN and the infinities, which Python writes as bare words, are read as
// strings: they are refused only where a number is needed. `text` must have
// passed CheckJsonSize().
ParsedText ParseText(absl::string_view text);

// Returns the values of ParseText(); "discarded" if the text is not JSON.
nlohmann::json ParseConfig(absl::string_view text);

// JSON as one line, cut if it is long: for errors and warnings.
std::string Shortened(const nlohmann::json& value);

// Returns the number without its fraction: 0 for NaN, and at most 2^53 in
// absolute value.
std::int64_t WholePart(double number);

// The file's own keys, with full paths, by the keys of transformers that they
// stand for: "rope_ntk_beta" by "rope_scaling.beta_fast".
using GivenKeys = std::map<std::string, std::string>;

// An absent or null key reads as nullopt. A key of the wrong type does, too,
// and is an error. Copies are cheap and share the record of the keys that were
// read. The JSON and the report must outlive them.
class JsonObject {
 public:
  // `json` may be null, for an object without keys. `path` names it in errors.
  JsonObject(const nlohmann::json* json, std::string path, Report* report,
             std::shared_ptr<const GivenKeys> given = nullptr);

  // Returns an object for other JSON, with the same path, report and given
  // keys.
  JsonObject With(const nlohmann::json* json) const;

  // Has: the key is present and not null. HasNull: it is present and null. Both
  // count as reading (see WasRead).
  bool Has(absl::string_view key) const;
  bool HasNull(absl::string_view key) const;
  // Counts a key as read, if it is known but has no effect.
  void MarkRead(absl::string_view key) const;
  // The full path of the key in the file.
  std::string Path(absl::string_view key) const;
  // The object's own path; empty for the whole file.
  const std::string& Path() const { return path_; }
  // Null if absent. Does not count as reading.
  const nlohmann::json* Find(absl::string_view key) const;

  std::optional<double> Number(absl::string_view key) const;
  std::optional<std::int64_t> Integer(absl::string_view key) const;
  std::optional<bool> Flag(absl::string_view key) const;
  std::optional<std::string> Text(absl::string_view key) const;
  std::vector<double> Numbers(absl::string_view key) const;
  JsonObject Object(absl::string_view key) const;

  // Returns a copy whose reads do not count.
  JsonObject Peek() const { return With(json_); }

  // The first of several spellings.
  std::optional<std::int64_t> FirstInteger(
      const std::vector<absl::string_view>& keys) const;
  // An absent key is an error, and the result is 0.
  double RequiredNumber(absl::string_view key, absl::string_view why) const;

  // Report an error, a warning or an assumption about a key. Errors and
  // warnings begin with the key.
  template <typename... Facts>
  void Fail(absl::string_view key, const Facts&... facts) const {
    report_->Refuse(ConfigError(Path(key), absl::StrCat(facts...)));
  }
  template <typename... Facts>
  void Warn(absl::string_view key, const Facts&... facts) const {
    report_->Warn(Path(key), facts...);
  }
  void Assume(absl::string_view key, std::string value,
              std::string reason) const {
    report_->Assume(Path(key), std::move(value), std::move(reason));
  }
  Report& report() const { return *report_; }
  std::vector<std::string> Keys() const;
  bool WasRead(absl::string_view key) const;

 private:
  const nlohmann::json* Read(absl::string_view key) const;
  void WrongType(absl::string_view key, absl::string_view wanted) const;

  const nlohmann::json* json_;
  std::string path_;
  Report* report_;
  std::shared_ptr<const GivenKeys> given_;
  std::shared_ptr<std::set<std::string>> read_;
};

}  // namespace posenc::core::interpretation
