// Whole numbers in flags. CLI11 reads 010 as 8 and 0x10 as 16, and replaces a
// number that overflows by the nearest one that does not.

#pragma once

#include "CLI/CLI.hpp"

namespace posenc::flags {

// Makes every flag for a whole number (N, DIM, HEADS, ..), also of the commands
// of `app`, accept only signed decimal numbers of 64 bits without leading
// zeros. Must be called after all flags have been added.
void WantDecimalNumbers(CLI::App* app);

}  // namespace posenc::flags
