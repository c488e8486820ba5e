#include "core/model/other_keys.h"

#include <cmath>
#include <cstdint>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/model/class_fields.h"
#include "core/model/class_rules.h"
#include "core/model/profile.h"

namespace posenc::core {
namespace {

using nlohmann::json;

// The names that files have for types of tensors; transformers looks them up in
// torch, and fails at others.
constexpr char kDtypes[] =
    "auto float16 bfloat16 float32 float64 half float double int8 uint8 "
    "float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz "
    "float8_e8m0fnu float4_e2m1fn_x2 complex64 complex128 int16 int32 int64 "
    "bool";

// A flag that was published as a number; known_keys says how it is read.
constexpr char kSaidElsewhere[] = "attn_temperature_tuning";

// More layers than any model has, and more than a program makes lists of.
constexpr std::int64_t kMostLayers = std::int64_t{1} << 24;

// A file may have thousands of layers, each with keys of its own.
constexpr std::size_t kTold = 64;

// What is done with a value that the class refuses. Keys that rotation needs
// are refused here, too, but for numbers that are only written otherwise.
absl::string_view Reading(const json& value, absl::string_view type) {
  if (value.is_null()) return "read as absent";
  if (value.is_number_integer() && IsOfType(0.0, type)) {
    return "read as that number";
  }
  if (value.is_number_float() && IsOfType(0, type) &&
      std::trunc(value.get<double>()) == value.get<double>()) {
    return "read as an integer";
  }
  return "it has no part in rotation";
}

void WarnOfDtype(const JsonObject& config, const std::string& key,
                 std::vector<std::string>* warnings) {
  const json& value = *config.Find(key);
  if (value.is_array()) {
    warnings->push_back(absl::StrCat(
        config.Path(key), " is ", Shortened(value),
        ", an array, at which transformers fails; it has no part in rotation"));
  }
  if (!value.is_string()) return;
  absl::string_view name = value.get_ref<const std::string&>();
  absl::ConsumePrefix(&name, "torch.");
  if (IsAmong(name, kDtypes)) return;
  warnings->push_back(absl::StrCat(
      config.Path(key), " is ", Shortened(value),
      ", which is no type of torch, and which transformers fails at; it has no "
      "part in rotation"));
}

// transformers makes lists with an element for each layer.
void WarnOfDepth(const JsonObject& config, const std::string& key,
                 std::vector<std::string>* warnings) {
  const json& value = *config.Find(key);
  const bool is_depth =
      IsAmong(key, "n_layer depth") || absl::EndsWith(key, "layers");
  if (!is_depth || !value.is_number_integer() || value <= kMostLayers) return;
  warnings->push_back(absl::StrCat(
      config.Path(key), " is ", Shortened(value),
      ": transformers makes lists of as many layers, and fails or dies for "
      "want of memory; it has no part in rotation"));
}

// `implied` is the type of the class that reads the part in `parent`'s files,
// which name their parts by it, or by the parent's own type. `of_layer`: the
// object is an entry of per_layer_config, which has no such entries itself.
void WarnOf(const JsonObject& config, absl::string_view parent,
            absl::string_view implied, bool of_layer,
            std::vector<std::string>* warnings) {
  const json* given = config.Find("model_type");
  std::string model_type(implied);
  if (given != nullptr && given->is_string() && *given != "" &&
      given->get_ref<const std::string&>() != parent) {
    model_type = given->get<std::string>();
  }
  if (!of_layer) WarnOfClassRules(config, model_type, warnings);
  for (const std::string& key : config.Keys()) {
    if (warnings->size() >= kTold) return;
    if (IsAmong(key, "dtype torch_dtype")) {
      WarnOfDtype(config, key, warnings);
      continue;
    }
    WarnOfDepth(config, key, warnings);
    const absl::string_view type = FieldType(model_type, key);
    const json& value = *config.Find(key);
    if (key == "per_layer_config" && value.is_object()) {
      if (of_layer) continue;
      // Values of the same fields, for single layers.
      const JsonObject entries = config.PeekObject(key);
      for (const std::string& layer : entries.Keys()) {
        if (!entries.Find(layer)->is_object()) continue;
        WarnOf(entries.PeekObject(layer), "", model_type, true, warnings);
      }
      continue;
    }
    if (type.empty() || (key == kSaidElsewhere && value.is_number())) continue;
    if (value.is_object() && !TypeOfPart(type).empty()) {
      WarnOf(config.PeekObject(key), model_type, TypeOfPart(type), of_layer,
             warnings);
      continue;
    }
    const std::string allowed = TypeInFile(type, config);
    if (!allowed.empty() && !IsOfType(value, allowed)) {
      warnings->push_back(
          absl::StrCat(config.Path(key), " is ", Shortened(value),
                       ", for which transformers' ", "class of model_type ",
                       model_type, " wants ", TypeInWords(type),
                       ": it refuses the file; ", Reading(value, allowed)));
    }
  }
}

}  // namespace

void WarnOfOtherKeys(const JsonObject& config,
                     std::vector<std::string>* warnings) {
  std::vector<std::string> of_keys;
  WarnOf(config, "", "", false, &of_keys);
  if (of_keys.size() >= kTold) {
    of_keys.push_back("more keys may be of wrong types; these are the first");
  }
  warnings->insert(warnings->end(), of_keys.begin(), of_keys.end());
}

}  // namespace posenc::core
