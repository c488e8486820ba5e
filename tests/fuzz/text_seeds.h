// Where fuzzing begins for the parsers that the vectors have nothing for.

#pragma once

#include <filesystem>

namespace posenc::fuzz {

// Writes to OUT/certificate, OUT/config, OUT/token and OUT/admin, each as its
// target takes it.
void WriteTexts(const std::filesystem::path& out);

}  // namespace posenc::fuzz
