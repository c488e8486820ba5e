// Reads values of a JSON object by type. Errors go to a Report. The object
// records which keys were read, so that unread keys of a configuration can be
// reported.
//
// This header includes nlohmann_json, so only core/interpretation, core/doctor
// and tests may include it.

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
#include "core/interpretation/report.h"
#include "nlohmann/json.hpp"

namespace posenc::core::interpretation {

using nlohmann::json;

// Returns INVALID_ARGUMENT kModelConfigInvalid of field "config_json".
absl::Status ConfigError(absl::string_view key, absl::string_view fact);

// Facts that are lost when a JSON text is parsed.
struct JsonText {
  // A key that an object has twice, with its first and last value. Parsers keep
  // the last value.
  struct Twice {
    std::string path, first, last;
  };
  // An integer that does not fit in int64. The parser converts the integer to
  // double, but Python keeps all digits.
  struct LongInteger {
    std::string path, digits;
  };

  // Each list has at most 8 elements.
  std::vector<Twice> twice;
  std::vector<LongInteger> long_integers;
  // `fault` says why the text is not read, and is empty if it is read.
  // `fault_path` is the key of a number that is out of range.
  std::string fault, fault_path;
  // Position of the fault, counted from 1; 0: the fault has no position.
  std::size_t fault_byte = 0;
};

// A parsed text: the values, and facts of the text that the values do not keep.
struct ParsedText {
  JsonText text;
  json value;  // not an object if text.fault is not empty
};

// Parses a text. A text that is too long or too deeply nested has a fault.
// Python writes NaN and the infinities as bare words. These words are read as
// strings, so they are an error only where a number is needed.
ParsedText ParseText(absl::string_view text);

// Returns JSON as one line for errors and warnings. Long JSON is cut.
std::string Shortened(const json& value);

// Returns the number without its fraction: 0 for NaN, and at most 2^53 in
// absolute value.
std::int64_t WholePart(double number);

// Maps full paths of transformers' keys to the file's own keys, for example
// "rope_scaling.beta_fast" to "rope_ntk_beta".
using GivenKeys = std::map<std::string, std::string>;

// An absent or null key reads as nullopt. A key of the wrong type also reads as
// nullopt, and is an error. Copies are cheap and share the record of the keys
// that were read. The JSON and the report must outlive all copies.
class JsonObject {
 public:
  // A null `value` stands for an object without keys. `path` names the object
  // in errors.
  JsonObject(const json* value, std::string path, Report* report,
             std::shared_ptr<const GivenKeys> given = nullptr);

  // Returns an object for other JSON, with the same path, report and given
  // keys.
  JsonObject With(const json* value) const;

  // Has() is true if the key is present and not null. HasNull() is true if the
  // key is present and null. Both functions count as reading the key (WasRead).
  bool Has(absl::string_view key) const;
  bool HasNull(absl::string_view key) const;
  // Counts a key as read. Callers use this function for keys that are known but
  // have no effect.
  void MarkRead(absl::string_view key) const;
  // The full path of the key in the file.
  std::string Path(absl::string_view key) const;
  // The object's own path; empty for the whole file.
  const std::string& Path() const { return path_; }
  // At returns JSON's null if the key is absent. At and Contains do not count
  // as reading the key.
  const json& At(absl::string_view key) const;
  bool Contains(absl::string_view key) const;

  std::optional<double> Number(absl::string_view key) const;
  std::optional<std::int64_t> Integer(absl::string_view key) const;
  std::optional<bool> Flag(absl::string_view key) const;
  std::optional<std::string> Text(absl::string_view key) const;
  std::vector<double> Numbers(absl::string_view key) const;
  JsonObject Object(absl::string_view key) const;

  // Returns an object with the same content. Keys that are read through the
  // returned object do not count as read in this object (WasRead).
  JsonObject Peek() const { return With(json_); }

  // Returns the first of `keys`, separated by blanks, that is present and not
  // null, or else an empty text. FirstInteger returns the value of this key as
  // an integer.
  absl::string_view FirstOf(absl::string_view keys) const;
  std::optional<std::int64_t> FirstInteger(absl::string_view keys) const;
  // Returns the key's number. If the key is absent, reports an error and
  // returns 0.
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
  // The JSON of the object; {} for an object without keys.
  json Copy() const;
  bool WasRead(absl::string_view key) const;

 private:
  // Returns null if the key is absent or null.
  const json* Read(absl::string_view key) const;
  // Returns null if the key is absent or null. For a value of another type,
  // reports an error and returns null.
  const json* ReadTyped(absl::string_view key, bool (json::*is_type)() const,
                        absl::string_view wanted) const;

  const json* json_;
  std::string path_;
  Report* report_;
  std::shared_ptr<const GivenKeys> given_;
  std::shared_ptr<std::set<std::string>> read_;
};

}  // namespace posenc::core::interpretation
