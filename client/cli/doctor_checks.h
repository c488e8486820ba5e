// The list of doctor's checks, which `posenc doctor --checks` prints and the
// reference is made of: ids, severities, texts, threads.

#pragma once

namespace posenc::cli {

void PrintDoctorChecks(bool json);

}  // namespace posenc::cli
