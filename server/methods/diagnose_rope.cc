// DiagnoseRope finds where the descriptions of a checkpoint, or their readers,
// disagree.

#include <cstdint>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/doctor/doctor.h"
#include "posenc/v1/service.pb.h"
#include "server/convert/diagnosis.h"
#include "server/convert/unknown_fields.h"
#include "server/methods/methods.h"

namespace posenc::server {

absl::Status AnswerDiagnoseRope(const v1::DiagnoseRopeRequest& request,
                                const MethodContext& context, StopCheck stop,
                                v1::DiagnoseRopeResponse* response) {
  const core::StopAsked asked = [stop] { return stop(); };
  std::size_t text = 0;
  for (const v1::ModelDescription& input : request.inputs()) {
    text += input.text().size();
  }
  const absl::Status room =
      context.reserve(static_cast<std::int64_t>(kTextGrowth * text));
  if (!room.ok()) return room;
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

}  // namespace posenc::server
