// Descriptions of a checkpoint as core's inputs, and its diagnosis as a
// response.

#pragma once

#include <vector>

#include "core/doctor/doctor.h"
#include "core/error.h"
#include "core/rope/kept.h"
#include "posenc/v1/service.pb.h"

namespace posenc::server {

// What is wrong with the messages is noted, of fields such as
// "inputs[1].tables[0].tensor.dtype"; what is wrong with a description that
// they hold is in its input. `stop` is asked while GGUF headers are read.
std::vector<core::doctor::DoctorInput> ReadDescriptions(
    const v1::DiagnoseRopeRequest& request, const core::StopAsked& stop,
    core::Faults* faults);

core::doctor::DoctorOptions ReadDoctorOptions(
    const v1::DiagnoseRopeRequest& request);

// Bytes of texts that are no UTF-8, as names in a GGUF file may be, become
// U+FFFD.
void WriteDiagnosis(const core::doctor::Diagnosis& diagnosis,
                    v1::DiagnoseRopeResponse* response);

}  // namespace posenc::server
