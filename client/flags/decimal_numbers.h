// Whole numbers that are given as flags. CLI11 reads 010 as 8 and 0x10 as 16,
// and takes the nearest number that fits for one that does not.

#pragma once

#include "CLI/CLI.hpp"

namespace posenc::flags {

// Has every flag that takes a whole number (N, DIM, HEADS, ..), of the commands
// of `app` too, refuse what is no decimal number of 64 bits with a sign, or
// begins with a zero. To be called when all flags are there.
void WantDecimalNumbers(CLI::App* app);

}  // namespace posenc::flags
