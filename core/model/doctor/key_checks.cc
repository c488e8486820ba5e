#include "core/model/doctor/key_checks.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/model/plain_number.h"
#include "nlohmann/json.hpp"

namespace posenc::core {
namespace {

using nlohmann::json;

// Walks over a text and notes keys that an object has twice, with their values.
class KeyReader : public nlohmann::json_sax<json> {
 public:
  struct Twice {
    std::string path, first, last;
  };

  bool null() override { return Value("null"); }
  bool boolean(bool value) override { return Value(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override {
    return Value(absl::StrCat(value));
  }
  bool number_unsigned(number_unsigned_t value) override {
    return Value(absl::StrCat(value));
  }
  bool number_float(number_float_t value, const string_t&) override {
    return Value(PlainNumber(value));
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
  bool parse_error(std::size_t, const std::string&,
                   const json::exception&) override {
    return false;  // what is wrong there is told elsewhere
  }

  const std::vector<Twice>& twice() const { return twice_; }

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
    twice_.push_back({Path(), std::exchange(it->second, text), text});
    return twice_.size() < kTold;
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
  std::vector<Twice> twice_;
};

}  // namespace

void CheckKeysTwice(const DoctorInput& input, std::vector<Finding>* findings) {
  KeyReader reader;
  json::sax_parse(input.text, &reader);
  for (const KeyReader::Twice& twice : reader.twice()) {
    Finding finding = MakeFinding(
        "config.key-twice", {input.path, twice.path, twice.first, twice.last});
    finding.inputs = {input.path};
    finding.keys = {twice.path};
    findings->push_back(std::move(finding));
  }
}

}  // namespace posenc::core
