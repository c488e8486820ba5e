// ParseText() of json_object.h.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/text.h"
#include "core/interpretation/json_object.h"

namespace posenc::core::interpretation {
namespace {

// A usual config.json has a few KiB and 5 levels. The destructor of a parsed
// value is recursive, so the depth must be bounded.
constexpr std::size_t kMaxBytes = 1 << 20;
constexpr std::size_t kMaxDepth = 64;

// Parses a text into values, and records the facts that the values do not keep.
class TextReader : public nlohmann::json_sax<json> {
 public:
  bool null() override { return Put(nullptr); }
  bool boolean(bool value) override { return Put(value); }
  bool number_integer(number_integer_t value) override { return Put(value); }
  bool number_unsigned(number_unsigned_t value) override {
    Put(value);
    if (value > std::numeric_limits<std::int64_t>::max()) {
      KeepLong(absl::StrCat(value));
    }
    return true;
  }
  bool number_float(number_float_t value, const string_t& digits) override {
    Put(value);
    if (digits.find_first_of(".eE") == std::string::npos) KeepLong(digits);
    return true;
  }
  bool string(string_t& value) override { return Put(std::move(value)); }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return Open(json::object()); }
  bool key(string_t& name) override {
    open_.back().key = name;
    return true;
  }
  bool end_object() override { return Close(); }
  bool start_array(std::size_t) override { return Open(json::array()); }
  bool end_array() override { return Close(); }
  bool parse_error(std::size_t byte, const std::string& token,
                   const json::exception& error) override {
    constexpr int kNumberOverflow = 406;  // nlohmann's out_of_range.406
    // The error quotes the last token, which may be long. The quote has only
    // the first digits of a number, or the end of a token that is not JSON.
    const bool overflow = error.id == kNumberOverflow;
    std::string last = token;
    if (token.size() > kShown) {
      last = overflow ? token.substr(0, kShown) + "..."
                      : token.substr(token.size() - kShown);
    }
    // All characters except printable ASCII are replaced, because an error must
    // be one line of UTF-8, but the cut may be inside a character.
    std::replace_if(
        last.begin(), last.end(), [](char c) { return c < ' ' || c > '~'; },
        '?');
    if (overflow) found_.text.fault_path = Path();
    found_.text.fault_byte = byte;
    found_.text.fault = overflow
                            ? absl::StrCat("is ", last,
                                           ", which no float64 holds; give one "
                                           "that is finite")
                            : absl::StrCat("is not JSON: wrong at byte ", byte,
                                           ", at \"", last, "\"");
    return false;
  }

  ParsedText found() && { return std::move(found_); }

 private:
  static constexpr std::size_t kShown = 40;
  static constexpr std::size_t kTold = 8;

  // An object or list that is still open.
  struct Container {
    json* value;
    std::string key;  // of the object's next value
  };

  static std::string Told(const json& value) {
    if (value.is_object()) return "an object";
    if (value.is_array()) return "a list";
    if (value.is_number_float()) return PlainNumber(value.get<double>());
    if (!value.is_string()) return value.dump();
    const auto& text = value.get_ref<const std::string&>();
    return absl::StrCat("\"", text.substr(0, kShown), "\"");
  }

  bool Put(json value) {
    Place(std::move(value));
    return true;
  }

  bool Open(json empty) {
    if (open_.size() == kMaxDepth) {
      found_.text.fault =
          absl::StrCat("nested deeper than ", kMaxDepth, " levels");
      return false;
    }
    json* const value = Place(std::move(empty));
    open_.push_back({value, ""});
    return true;
  }

  bool Close() {
    open_.pop_back();
    return true;
  }

  // Stores the value and returns its address. The address of a container is
  // valid until that container is closed.
  json* Place(json value) {
    if (open_.empty()) {
      found_.value = std::move(value);
      return &found_.value;
    }
    json& container = *open_.back().value;
    if (container.is_array()) {
      container.push_back(std::move(value));
      return &container.back();
    }
    const auto [it, is_new] = container.get_ref<json::object_t&>().try_emplace(
        open_.back().key, nullptr);
    if (!is_new && found_.text.twice.size() < kTold) {
      found_.text.twice.push_back({Path(), Told(it->second), Told(value)});
    }
    it->second = std::move(value);
    return &it->second;
  }

  void KeepLong(const std::string& digits) {
    if (found_.text.long_integers.size() >= kTold) return;
    found_.text.long_integers.push_back(
        {Path(), digits.size() <= kShown
                     ? digits
                     : absl::StrCat(digits.substr(0, kShown), "...")});
  }

  std::string Path() const {
    std::string path;
    for (const Container& one : open_) {
      if (one.value->is_array()) continue;
      absl::StrAppend(&path, path.empty() ? "" : ".", one.key);
    }
    return path;
  }

  std::vector<Container> open_;
  ParsedText found_;
};

ParsedText ParsePlain(absl::string_view text) {
  TextReader reader;
  json::sax_parse(text, &reader);
  ParsedText found = std::move(reader).found();
  if (!found.text.fault.empty()) found.value = nullptr;
  return found;
}

// Words that Python's json module writes for floats that JSON cannot express.
constexpr absl::string_view kNotFinite[] = {"-Infinity", "Infinity", "NaN"};

// Returns the text with the words of kNotFinite in quotes. The quotes shift the
// byte positions after them.
std::string WithNotFiniteQuoted(absl::string_view text) {
  std::string quoted;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto* const word =
        std::find_if(std::begin(kNotFinite), std::end(kNotFinite),
                     [rest = text.substr(i)](absl::string_view one) {
                       return absl::StartsWith(rest, one);
                     });
    if (!in_string && word != std::end(kNotFinite)) {
      absl::StrAppend(&quoted, "\"", *word, "\"");
      i += word->size() - 1;
      continue;
    }
    quoted.push_back(text[i]);
    if (in_string && text[i] == '\\' && i + 1 < text.size()) {
      quoted.push_back(text[++i]);
    } else if (text[i] == '"') {
      in_string = !in_string;
    }
  }
  return quoted;
}

}  // namespace

ParsedText ParseText(absl::string_view text) {
  const auto no_json = [](std::string why, std::size_t byte) {
    return ParsedText{.text = {.fault = std::move(why), .fault_byte = byte}};
  };
  if (text.size() > kMaxBytes) {
    return no_json(
        absl::StrCat(text.size(), " bytes; at most ", kMaxBytes, " are read"),
        0);
  }
  if (text.find_first_not_of(" \t\r\n") == absl::string_view::npos) {
    return no_json("is not JSON: it is empty", text.size());
  }
  const std::size_t zero = text.find('\0');
  if (zero != absl::string_view::npos) {
    return no_json(absl::StrCat("is not JSON: byte ", zero + 1,
                                " is zero; send the file's text"),
                   zero + 1);
  }
  ParsedText plain = ParsePlain(text);
  if (plain.text.fault.empty()) return plain;
  const std::string quoted = WithNotFiniteQuoted(text);
  if (quoted == text) return plain;
  ParsedText parsed = ParsePlain(quoted);
  if (parsed.text.fault_byte != 0) {
    parsed.text.fault_byte = plain.text.fault_byte;
  }
  return parsed;
}

}  // namespace posenc::core::interpretation
