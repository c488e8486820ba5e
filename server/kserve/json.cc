#include "server/kserve/json.h"

#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/error.h"
#include "google/protobuf/util/json_util.h"
#include "nlohmann/json.hpp"
#include "server/convert/unknown_fields.h"

namespace posenc::server {
namespace {

namespace pb = google::protobuf;

// As deep as the server reads a model's configuration.
constexpr std::size_t kMaxDepth = 64;

// Each becomes a message, which takes many times its two bytes.
constexpr int kMostContainers = KnownFields::kMostElements;

// Protobuf's own parser also takes what is no JSON, and the last of equal keys.
class Checker final : public nlohmann::json_sax<nlohmann::json> {
 public:
  const std::string& fault() const { return fault_; }

  bool null() override { return true; }
  bool boolean(bool /*value*/) override { return true; }
  bool number_integer(number_integer_t /*value*/) override { return true; }
  bool number_unsigned(number_unsigned_t /*value*/) override { return true; }
  bool number_float(number_float_t /*value*/,
                    const string_t& /*text*/) override {
    return true;
  }
  bool string(string_t& /*value*/) override { return true; }
  bool binary(binary_t& /*value*/) override { return true; }
  bool start_object(std::size_t /*elements*/) override { return Begin(); }
  bool end_object() override { return End(); }
  bool start_array(std::size_t /*elements*/) override { return Begin(); }
  bool end_array() override { return End(); }
  bool key(string_t& name) override {
    if (keys_.back().insert(name).second) return true;
    fault_ = absl::StrCat("has the key '", name, "' twice");
    return false;
  }
  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::json::exception& /*error*/) override {
    fault_ = absl::StrCat("is not JSON (byte ", position, ")");
    return false;
  }

 private:
  bool Begin() {
    keys_.emplace_back();
    if (++containers_ > kMostContainers) {
      fault_ =
          absl::StrCat("has over ", kMostContainers, " objects and arrays");
    } else if (keys_.size() > kMaxDepth) {
      fault_ = absl::StrCat("is nested deeper than ", kMaxDepth);
    }
    return fault_.empty();
  }
  bool End() {
    keys_.pop_back();
    return true;
  }

  std::vector<std::set<std::string>> keys_;  // of the objects that are open
  int containers_ = 0;
  std::string fault_;
};

}  // namespace

absl::Status ReadJson(absl::string_view json, const pb::FieldDescriptor& field,
                      pb::Message* message) {
  Checker checker;
  if (!nlohmann::json::sax_parse(json.begin(), json.end(), &checker)) {
    return core::FieldInvalid("", checker.fault());
  }
  const bool list = field.is_repeated();
  const absl::string_view text = absl::StripLeadingAsciiWhitespace(json);
  if (text.empty() || text[0] != (list ? '[' : '{')) {
    return core::FieldInvalid(
        "", list ? "must be a list, '[...]'" : "must be an object, '{...}'");
  }
  const std::string whole =
      absl::StrCat("{\"", field.json_name(), "\":", json, "}");
  const std::unique_ptr<pb::Message> parsed(message->New());
  const auto status = pb::util::JsonStringToMessage(whole, parsed.get());
  if (!status.ok()) {
    return core::FieldInvalid(
        "", absl::StrCat("is not the JSON of ",
                         list ? absl::StrCat("the list ", field.name())
                              : field.message_type()->name(),
                         ": ", std::string(status.message())));
  }
  message->MergeFrom(*parsed);
  return absl::OkStatus();
}

std::string WriteJson(const pb::Message& message,
                      const pb::FieldDescriptor& field) {
  const std::unique_ptr<pb::Message> only(message.New());
  only->CopyFrom(message);
  std::vector<const pb::FieldDescriptor*> fields;
  only->GetReflection()->ListFields(*only, &fields);
  for (const pb::FieldDescriptor* const other : fields) {
    if (other != &field) only->GetReflection()->ClearField(only.get(), other);
  }
  pb::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string text;
  if (!pb::util::MessageToJsonString(*only, &text, options).ok()) return "";
  // {"spec":{...}} without what is around the value.
  absl::string_view value = text;
  absl::ConsumePrefix(&value, absl::StrCat("{\"", field.name(), "\":"));
  absl::ConsumeSuffix(&value, "}");
  return std::string(value);
}

}  // namespace posenc::server
