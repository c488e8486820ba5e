// Prints the list of doctor's checks, for `posenc doctor --checks` and the
// reference: ids, severities, texts, threads.

#pragma once

namespace posenc::cli {

void PrintDoctorChecks(bool json);

}  // namespace posenc::cli
