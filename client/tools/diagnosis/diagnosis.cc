#include "client/tools/diagnosis/diagnosis.h"

#include <utility>

namespace posenc::cli {
namespace {

core::doctor::InputReport ReadReport(const v1::DescriptionReport& in) {
  return {.path = in.path(),
          .kind = static_cast<core::doctor::InputKind>(in.kind()),
          .model_type = in.model_type(),
          .content_hash = in.content_hash(),
          .unreadable = in.unreadable(),
          .spec = in.spec()};
}

core::doctor::Verdict ReadVerdict(const v1::ReaderVerdict& in) {
  return {.name = in.name(),
          .says = in.says(),
          .first_distance = in.first_distance(),
          .kept_at_length = in.kept_at_length(),
          .first_angle = in.first_angle(),
          .amplitude_ratio = in.amplitude_ratio(),
          .worst_pair = in.worst_pair(),
          .least_kept = in.least_kept()};
}

core::doctor::Finding ReadFinding(const v1::Finding& in) {
  core::doctor::Finding out;
  out.id = in.id();
  out.severity = static_cast<core::doctor::Severity>(in.severity());
  out.message = in.message();
  out.fix = in.fix();
  out.inputs.assign(in.inputs().begin(), in.inputs().end());
  out.keys.assign(in.keys().begin(), in.keys().end());
  if (in.layers_size() > 0) {
    out.layers.emplace(in.layers().begin(), in.layers().end());
  }
  for (const v1::ReaderVerdict& reader : in.readers()) {
    out.readers.push_back(ReadVerdict(reader));
  }
  out.see.assign(in.see().begin(), in.see().end());
  return out;
}

}  // namespace

core::doctor::Diagnosis ReadDiagnosis(
    const v1::DiagnoseRopeResponse& response) {
  core::doctor::Diagnosis diagnosis;
  for (const v1::DescriptionReport& report : response.inputs()) {
    diagnosis.inputs.push_back(ReadReport(report));
  }
  for (const v1::Finding& finding : response.findings()) {
    diagnosis.findings.push_back(ReadFinding(finding));
  }
  diagnosis.length = response.length();
  return diagnosis;
}

}  // namespace posenc::cli
