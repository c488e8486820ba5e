#include "core/model/class_fields.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace posenc::core {
namespace {

using nlohmann::json;

// A line of the file: fields that some classes have of one type.
struct Row {
  absl::string_view type;
  bool but = false;  // the classes that are not in `model_types`
  std::vector<absl::string_view> model_types;  // sorted
};

struct Rows {
  std::set<absl::string_view> model_types;
  std::multimap<absl::string_view, Row> of_key;
};

constexpr absl::string_view kText =
#include "class_fields.inc"
    ;

Rows ReadRows() {
  Rows rows;
  for (const absl::string_view line :
       absl::StrSplit(kText, '\n', absl::SkipEmpty())) {
    if (absl::StartsWith(line, "#")) continue;
    const std::vector<absl::string_view> columns = absl::StrSplit(line, '\t');
    if (columns.size() != 3) {  // the types that have rows
      const std::vector<absl::string_view> types =
          absl::StrSplit(line, ' ', absl::SkipEmpty());
      rows.model_types.insert(types.begin(), types.end());
      continue;
    }
    Row row = {.type = columns[0]};
    row.but = absl::ConsumePrefix(&row.type, "!");
    row.model_types = absl::StrSplit(columns[2], ' ', absl::SkipEmpty());
    for (const absl::string_view key : absl::StrSplit(columns[1], ' ')) {
      rows.of_key.emplace(key, row);
    }
  }
  return rows;
}

// Files spell numbers that JSON does not have as {"__float__": "Infinity"}.
bool IsFloat(const json& value) {
  return value.is_number_float() || (value.is_object() && value.size() == 1 &&
                                     value.contains("__float__"));
}

bool IsSimple(const json& value, absl::string_view type) {
  if (type == "int") return value.is_number_integer();
  if (type == "float") return IsFloat(value);
  if (type == "positive") return value.is_number_integer() && value > 0;
  if (type == "natural") return value.is_number_integer() && value >= 0;
  if (type == "nonzero") return value.is_number_integer() && value != 0;
  if (type == "true" || type == "false") return value == (type == "true");
  if (type == "unit") {
    return value.is_number_float() && value >= 0 && value <= 1;
  }
  if (type == "bool") return value.is_boolean();
  if (type == "str") return value.is_string();
  return type == "null" && value.is_null();
}

bool IsElement(const json& value, const std::vector<absl::string_view>& types) {
  // ParseConfig makes words of numbers that JSON does not have.
  const bool is_word =
      value == "Infinity" || value == "-Infinity" || value == "NaN";
  return std::any_of(types.begin(), types.end(), [&](absl::string_view type) {
    return IsSimple(value, type) || (is_word && type == "float");
  });
}

std::string SimpleInWords(absl::string_view type) {
  if (type == "int") return "an integer";
  if (type == "float") return "a number with a point";
  if (type == "positive") return "an integer above 0";
  if (type == "natural") return "an integer, 0 or above";
  if (type == "nonzero") return "an integer other than 0";
  if (type == "unit") return "a number with a point, 0 to 1";
  if (type == "bool") return "true or false";
  if (type == "str") return "a string";
  if (type == "list") return "an array";
  return std::string(type);
}

// The type and the list of layers in "null@layer_types".
using Beside = std::pair<absl::string_view, absl::string_view>;
Beside BesideList(absl::string_view type) {
  return absl::StrSplit(type, absl::MaxSplits('@', 1));
}

std::string OneInWords(absl::string_view type) {
  if (const auto [inner, list] = BesideList(type); !list.empty()) {
    return absl::StrCat(inner == "any" ? "any value" : OneInWords(inner),
                        " beside ", list);
  }
  if (absl::StartsWith(type, "{")) return "an object";
  if (absl::ConsumePrefix(&type, "=")) return absl::StrCat("\"", type, "\"");
  if (!absl::ConsumePrefix(&type, "list[")) return SimpleInWords(type);
  const std::vector<absl::string_view> elements =
      absl::StrSplit(absl::StripSuffix(type, "]"), ',');
  const auto words = [](std::string* out, absl::string_view element) {
    out->append(SimpleInWords(element));
  };
  return absl::StrCat("an array, each element ",
                      absl::StrJoin(elements, " or ", words));
}

}  // namespace

absl::string_view FieldType(absl::string_view model_type,
                            absl::string_view key) {
  static const Rows& rows = *new Rows(ReadRows());
  if (rows.model_types.count(model_type) == 0) return {};
  const auto [begin, end] = rows.of_key.equal_range(key);
  for (auto it = begin; it != end; ++it) {
    const Row& row = it->second;
    if (std::binary_search(row.model_types.begin(), row.model_types.end(),
                           model_type) != row.but) {
      return row.type;
    }
  }
  return {};
}

std::string TypeInFile(absl::string_view type, const JsonObject& config) {
  std::vector<absl::string_view> allowed;
  for (const absl::string_view one : absl::StrSplit(type, '|')) {
    const auto [inner, list] = BesideList(one);
    if (!list.empty()) {
      const json* given = config.Find(list);
      if (given == nullptr || !given->is_array()) continue;
      if (inner == "any") return {};
    }
    allowed.push_back(inner);
  }
  return absl::StrJoin(allowed, "|");
}

bool IsOfType(const json& value, absl::string_view type) {
  for (absl::string_view one : absl::StrSplit(type, '|')) {
    if (IsSimple(value, one) || (one == "list" && value.is_array()) ||
        (absl::StartsWith(one, "{") && value.is_object()) ||
        (absl::ConsumePrefix(&one, "=") && value.is_string() &&
         value.get_ref<const std::string&>() == one)) {
      return true;
    }
    if (value.is_array() && absl::ConsumePrefix(&one, "list[")) {
      const std::vector<absl::string_view> types =
          absl::StrSplit(absl::StripSuffix(one, "]"), ',');
      if (std::all_of(value.begin(), value.end(), [&](const json& inner) {
            return IsElement(inner, types);
          })) {
        return true;
      }
    }
  }
  return false;
}

std::string TypeInWords(absl::string_view type) {
  const std::vector<absl::string_view> types = absl::StrSplit(type, '|');
  std::string words;
  for (const absl::string_view one : types) {
    // A number of either kind is just that.
    const bool is_number =
        absl::StrContains(absl::StrCat(type, "|"), "float|int|");
    if (is_number && one == "int") continue;
    absl::StrAppend(&words, words.empty() ? "" : " or ",
                    is_number && one == "float" ? "a number" : OneInWords(one));
  }
  return words;
}

absl::string_view TypeOfPart(absl::string_view type) {
  for (absl::string_view one : absl::StrSplit(type, '|')) {
    if (absl::ConsumePrefix(&one, "{")) return absl::StripSuffix(one, "}");
  }
  return {};
}

}  // namespace posenc::core
