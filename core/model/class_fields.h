// The types of values that transformers' configuration classes take for their
// fields. The classes check each of them, whether or not the model needs it.
// The rows, class_fields.txt, are written by tests/parity/class_fields.py.

#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "core/model/json_object.h"
#include "nlohmann/json.hpp"

namespace posenc::core {

// What the class of that model type, as files spell it, takes for the key:
// alternatives with bars between them. Empty if nothing is known of it.
//
// int, float (a number with a point), bool, str, null
// positive     an int above 0
// natural      an int, 0 or above
// nonzero      an int other than 0
// true, false  that bool
// unit         a float from 0 to 1
// list         any array; list[int,null]: one of such elements
// {}           an object; {qwen3}: one that describes a model of that type
// =relu2       that string
// null@layer_types  that type, but only if the file has that list of layers:
//                   the class then reads the list; any@: anything
absl::string_view FieldType(absl::string_view model_type,
                            absl::string_view key);

// Those alternatives of a type that hold in this file, without the lists that
// they stand beside: "int|null" for "int|null@layer_types" if it has those.
// Empty if anything may stand there.
std::string TypeInFile(absl::string_view type, const JsonObject& config);

// `type` as TypeInFile() gives it.
bool IsOfType(const nlohmann::json& value, absl::string_view type);

// "an integer or null", for "int|null".
std::string TypeInWords(absl::string_view type);

// The type of the model that an object of this field describes: "qwen3" for
// "null|{qwen3}". Empty if it describes none.
absl::string_view TypeOfPart(absl::string_view type);

}  // namespace posenc::core
