// Numbers as people write them in configurations.

#pragma once

#include <string>

namespace posenc::core::interpretation {

// "500000" where NumberText has "5e+05"; else the same.
std::string PlainNumber(double value);

}  // namespace posenc::core::interpretation
