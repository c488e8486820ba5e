// The inputs of `posenc doctor`: the files of a model's folder that describe
// rotary encodings. Only the headers, small tables and a few rows are read from
// files of weights.

#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/interpretation/formats/gguf_rope.h"
#include "posenc/v1/service.pb.h"

namespace posenc::cli {

// Replaces bytes that are not UTF-8 by U+FFFD. Files and their names may have
// such bytes, but messages must not.
std::string Utf8(const std::string& text);

// Returns the inputs that the paths name: files, and the files of folders,
// without subfolders. An input that cannot be read has a reason instead of
// contents.
std::vector<v1::ModelDescription> ReadDescriptions(
    const std::vector<std::string>& paths);

// Returns a preset's configuration as an input. NOT_FOUND if there is no
// such preset.
absl::StatusOr<v1::ModelDescription> DescribePreset(const std::string& name);

// Reads the text of a configuration from a file, a pipe or the config.json of a
// folder. Returns INVALID_ARGUMENT for more than 64 MiB, because no
// configuration is so large. Other errors come from FileBytes.
absl::StatusOr<std::string> ReadConfigText(const std::string& path);

// Returns true if the name ends in .gguf or the file begins like a GGUF.
bool IsGguf(const std::string& path);

// Reads the rope of a GGUF file from its keys and factors. Errors say what is
// wrong with the file.
absl::StatusOr<core::interpretation::GgufRope> ReadGgufKeys(
    const std::string& path);

}  // namespace posenc::cli
