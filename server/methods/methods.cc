#include "server/methods/methods.h"

#include <vector>

namespace posenc::server {
namespace {

constexpr char kService[] = "posenc.v1.PositionalEncodingService";

// In the order of service.proto.
const std::vector<Method>& All() {
  static const auto* const all = new std::vector<Method>{
      {kService, "GetServerInfo", false, StartGetServerInfo},
      {kService, "ResolveRope", false, StartResolveRope},
      {kService, "BuildTable", false, StartBuildTable},
      {kService, "BuildTableStream", true, StartBuildTableStream},
      {kService, "BuildBias", true, StartBuildBias},
      {kService, "BuildPositions", false, StartBuildPositions},
      {kService, "ApplyRope", false, StartApplyRope},
      {kService, "ApplyRopeStream", true, StartApplyRopeStream},
      {kService, "Reposition", false, StartReposition},
      {kService, "RepositionStream", true, StartRepositionStream},
      {kService, "AddEncoding", false, StartAddEncoding},
      {kService, "ScoreRelative", false, StartScoreRelative},
      {kService, "ConvertPairing", false, StartConvertPairing},
      {kService, "AnalyzeRope", false, StartAnalyzeRope},
      {kService, "DiagnoseRope", false, StartDiagnoseRope},
  };
  return *all;
}

}  // namespace

const Method* FindMethod(absl::string_view name) {
  for (const Method& method : All()) {
    if (method.name == name) return &method;
  }
  return nullptr;
}

absl::Span<const Method> Methods() { return All(); }

}  // namespace posenc::server
