#include "core/model/json_text.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/model/json_object.h"
#include "core/model/plain_number.h"
#include "nlohmann/json.hpp"

namespace posenc::core {
namespace {

using nlohmann::json;

class TextReader : public nlohmann::json_sax<json> {
 public:
  bool null() override { return Value("null"); }
  bool boolean(bool value) override { return Value(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override {
    return Value(absl::StrCat(value));
  }
  bool number_unsigned(number_unsigned_t value) override {
    const bool taken = Value(absl::StrCat(value));
    if (value > std::numeric_limits<std::int64_t>::max()) {
      KeepLong(absl::StrCat(value));
    }
    return taken;
  }
  bool number_float(number_float_t value, const string_t& digits) override {
    const bool taken = Value(PlainNumber(value));
    if (digits.find_first_of(".eE") == std::string::npos) KeepLong(digits);
    return taken;
  }
  bool string(string_t& value) override {
    return Value(absl::StrCat("\"", value.substr(0, kShown), "\""));
  }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override {
    Value("an object");
    open_.emplace_back();
    return true;
  }
  bool key(string_t& name) override {
    open_.back().key = name;
    return true;
  }
  bool end_object() override { return Close(); }
  bool start_array(std::size_t) override {
    Value("a list");
    open_.emplace_back().is_list = true;
    return true;
  }
  bool end_array() override { return Close(); }
  bool parse_error(std::size_t byte, const std::string& token,
                   const json::exception& error) override {
    constexpr int kNumberOverflow = 406;  // nlohmann's out_of_range.406
    // The last token holds what was read of it, which may be much.
    std::string last =
        token.size() <= kShown ? token : token.substr(token.size() - kShown);
    // Errors are UTF-8 on one line, and the cut may be within a character.
    std::replace_if(
        last.begin(), last.end(), [](char c) { return c < ' ' || c > '~'; },
        '?');
    if (error.id == kNumberOverflow) found_.fault_path = Path();
    found_.fault = error.id == kNumberOverflow
                       ? absl::StrCat("is ", last,
                                      ", which no float64 holds; give one "
                                      "that is finite")
                       : absl::StrCat("is not JSON: wrong at byte ", byte,
                                      ", at \"", last, "\"");
    return false;
  }

  JsonText found() && { return std::move(found_); }

 private:
  static constexpr std::size_t kShown = 40;
  static constexpr std::size_t kTold = 8;

  struct Open {
    bool is_list = false;
    std::string key;  // whose value comes next
    std::map<std::string, std::string> values;
  };

  bool Close() {
    open_.pop_back();
    return true;
  }

  bool Value(const std::string& text) {
    if (open_.empty() || open_.back().is_list) return true;
    Open& object = open_.back();
    const auto [it, is_new] = object.values.emplace(object.key, text);
    if (is_new) return true;
    std::string first = std::exchange(it->second, text);
    if (found_.twice.size() < kTold) {
      found_.twice.push_back({Path(), std::move(first), text});
    }
    return true;
  }

  void KeepLong(const std::string& digits) {
    if (found_.long_integers.size() >= kTold) return;
    found_.long_integers.push_back(
        {Path(), digits.size() <= kShown
                     ? digits
                     : absl::StrCat(digits.substr(0, kShown), "...")});
  }

  std::string Path() const {
    std::string path;
    for (const Open& one : open_) {
      if (one.is_list) continue;
      absl::StrAppend(&path, path.empty() ? "" : ".", one.key);
    }
    return path;
  }

  std::vector<Open> open_;
  JsonText found_;
};

JsonText ReadPlain(absl::string_view text) {
  TextReader reader;
  json::sax_parse(text, &reader);
  return std::move(reader).found();
}

}  // namespace

JsonText ReadJsonText(absl::string_view text) {
  if (text.find_first_not_of(" \t\r\n") == absl::string_view::npos) {
    JsonText empty;
    empty.fault = "is not JSON: it is empty";
    return empty;
  }
  const std::size_t zero = text.find('\0');
  if (zero != absl::string_view::npos) {
    JsonText cut;
    cut.fault = absl::StrCat("is not JSON: byte ", zero + 1,
                             " is zero; send the file's text");
    return cut;
  }
  JsonText plain = ReadPlain(text);
  if (plain.fault.empty()) return plain;
  const std::string quoted = WithNotFiniteQuoted(text);
  return quoted == text ? plain : ReadPlain(quoted);
}

}  // namespace posenc::core
