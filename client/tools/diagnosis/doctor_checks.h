// Prints the list of doctor's checks, for `posenc doctor --checks` and the
// reference documentation: ids, severities, texts and issue threads.

#pragma once

namespace posenc::cli {

void PrintDoctorChecks(bool json);

}  // namespace posenc::cli
