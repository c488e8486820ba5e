// The inputs of `posenc doctor`: what a model's folder holds, as far as it says
// something about rotary encodings. Of weights only headers and small tables
// are read.

#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/interpretation/gguf_rope.h"
#include "posenc/v1/service.pb.h"

namespace posenc::cli {

// The same text if it is UTF-8, as messages need it; names of files, and what
// stands in them, may hold any bytes, which become U+FFFD.
std::string Utf8(const std::string& text);

// Returns the inputs that the paths name: files, and the files of folders, but
// not those of their subfolders. An input that cannot be read says why.
std::vector<v1::ModelDescription> ReadDescriptions(
    const std::vector<std::string>& paths);

// A preset's configuration as such an input. NOT_FOUND if there is none of that
// name.
absl::StatusOr<v1::ModelDescription> DescribePreset(const std::string& name);

// The text of a configuration in a file, or of a pipe. INVALID_ARGUMENT for
// more than 64 MiB, which is far more than a configuration has; else as
// FileBytes::Read.
absl::StatusOr<std::string> ReadConfigText(const std::string& path);

// True for the bytes that a GGUF file begins with.
bool IsGguf(const std::string& path);

// What the keys and factors of a GGUF file say. Errors say what is wrong with
// it.
absl::StatusOr<core::interpretation::GgufRope> ReadGgufKeys(
    const std::string& path);

}  // namespace posenc::cli
