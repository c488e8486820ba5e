// Initial inputs for parsers that the vectors do not cover.

#pragma once

#include <filesystem>

namespace posenc::fuzz {

// Writes to OUT/certificate, OUT/config, OUT/token and OUT/admin, each in its
// target's format.
void WriteTexts(const std::filesystem::path& out);

}  // namespace posenc::fuzz
