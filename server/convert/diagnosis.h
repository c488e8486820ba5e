// Converts descriptions of a checkpoint to core's inputs, and core's diagnosis
// to a response.

#pragma once

#include <vector>

#include "core/base/error.h"
#include "core/doctor/doctor.h"
#include "core/rope/kept.h"
#include "posenc/v1/service.pb.h"

namespace posenc::server {

// Reads the descriptions of a request. Notes their faults in `faults`, with
// fields such as "inputs[1].tables[0].tensor.dtype". If a GGUF file cannot be
// read, the reason is stored in `DoctorInput::unreadable` instead. Calls `stop`
// while reading GGUF headers.
std::vector<core::doctor::DoctorInput> ReadDescriptions(
    const v1::DiagnoseRopeRequest& request, const core::StopAsked& stop,
    core::Faults* faults);

core::doctor::DoctorOptions ReadDoctorOptions(
    const v1::DiagnoseRopeRequest& request);

// Writes the diagnosis to the response. Bytes that are not UTF-8, for example
// in names of a GGUF file, become U+FFFD.
void WriteDiagnosis(const core::doctor::Diagnosis& diagnosis,
                    v1::DiagnoseRopeResponse* response);

}  // namespace posenc::server
