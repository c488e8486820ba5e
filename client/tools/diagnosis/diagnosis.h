// Reads the answer of DiagnoseRope as a diagnosis that can be printed.

#pragma once

#include "core/doctor/doctor.h"
#include "posenc/v1/service.pb.h"

namespace posenc::cli {

core::doctor::Diagnosis ReadDiagnosis(const v1::DiagnoseRopeResponse& response);

}  // namespace posenc::cli
