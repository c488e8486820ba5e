// DiagnoseRope finds where the descriptions of a checkpoint, or their readers,
// disagree.

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "core/doctor/doctor.h"
#include "core/error.h"
#include "posenc/v1/service.pb.h"
#include "server/convert/diagnosis.h"
#include "server/methods/methods.h"
#include "server/methods/unary.h"

namespace posenc::server {
namespace {

using Request = v1::DiagnoseRopeRequest;

absl::Status Answer(const Request& request, const MethodContext& /*context*/,
                    StopCheck stop, v1::DiagnoseRopeResponse* response) {
  const core::StopAsked asked = [stop] { return stop(); };
  core::Faults faults;
  std::vector<core::doctor::DoctorInput> inputs =
      ReadDescriptions(request, asked, &faults);
  const core::doctor::DoctorOptions options = ReadDoctorOptions(request);
  faults.Note(core::doctor::CheckOptions(options));
  if (!faults.none()) return faults.status();
  absl::StatusOr<core::doctor::Diagnosis> diagnosis =
      core::doctor::Diagnose(std::move(inputs), options, asked);
  if (!diagnosis.ok()) return diagnosis.status();
  WriteDiagnosis(*diagnosis, response);
  return absl::OkStatus();
}

// About ten readers of a configuration, each compared with the reference at
// thousands of distances, take milliseconds: as long as moving 16 MiB.
std::size_t Work(const Request& request) {
  constexpr std::size_t kInput = 16 << 20;
  return kInput * static_cast<std::size_t>(request.inputs_size());
}

}  // namespace

std::unique_ptr<CallHandler> StartDiagnoseRope(const MethodContext& context) {
  return StartMessageCall<Request, v1::DiagnoseRopeResponse, Answer, Work>(
      context);
}

}  // namespace posenc::server
