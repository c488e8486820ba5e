// Reads values of a JSON object by type. Errors go to a Report. The object
// records which keys were read, so that unread keys of a configuration can be
// reported.
//
// nlohmann::json is in this header for core/interpretation's own files. No
// header that others include from core/interpretation includes it.

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

// Error of a text too long, or nested too deep, to be parsed.
absl::Status CheckJsonSize(absl::string_view text);

// A text, parsed once: its values, and what they do not say.
struct ParsedText {
  JsonText text;
  nlohmann::json value;  // of no meaning beside a fault
};

// NaN and the infinities, which Python writes as bare words, are read as
// strings: if a number is wanted they are refused, elsewhere they do no harm.
// `text` must have passed CheckJsonSize().
ParsedText ParseText(absl::string_view text);

// The values of ParseText(); discarded if the text is not JSON.
nlohmann::json ParseConfig(absl::string_view text);

// JSON as one line, cut if it is long: for errors and warnings.
std::string Shortened(const nlohmann::json& value);

// Returns the number without its fraction: 0 for NaN, and at most 2^53 in
// absolute value.
std::int64_t WholePart(double number);

// The file's keys, in full, for those that another project's format has in
// their place: "rope_ntk_beta" for "rope_scaling.beta_fast".
using GivenKeys = std::map<std::string, std::string>;

// An absent or null key reads as nullopt, and so does one of the wrong type,
// which is an error. Copies are cheap and share what was asked for; the JSON
// and the report must outlive them.
class JsonObject {
 public:
  // `json` may be null, for an object without keys. `path` names it in errors.
  JsonObject(const nlohmann::json* json, std::string path, Report* report,
             std::shared_ptr<const GivenKeys> given = nullptr);

  // Other JSON in its place, with the same path, report and given keys.
  JsonObject With(const nlohmann::json* json) const;

  // True if the key is there and not null, or there and null. Asking counts as
  // reading (see WasRead).
  bool Has(absl::string_view key) const;
  bool HasNull(absl::string_view key) const;
  // Counts the key as read, for one that is known but means nothing here.
  void MarkRead(absl::string_view key) const;
  // The file's name of the key, in full.
  std::string Path(absl::string_view key) const;
  // Its own path; empty for the whole file.
  const std::string& Path() const { return path_; }
  // Null if absent. Does not count as reading.
  const nlohmann::json* Find(absl::string_view key) const;

  std::optional<double> Number(absl::string_view key) const;
  std::optional<std::int64_t> Integer(absl::string_view key) const;
  std::optional<bool> Flag(absl::string_view key) const;
  std::optional<std::string> Text(absl::string_view key) const;
  std::vector<double> Numbers(absl::string_view key) const;
  JsonObject Object(absl::string_view key) const;

  // The same object; what is asked of this copy does not count as read.
  JsonObject Peek() const { return With(json_); }

  // The first of several spellings.
  std::optional<std::int64_t> FirstInteger(
      const std::vector<absl::string_view>& keys) const;
  // Absent: the error that it is missing, and 0.
  double RequiredNumber(absl::string_view key, absl::string_view why) const;

  // An error, a warning, or an assumption about a key, which the first two
  // begin with.
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
