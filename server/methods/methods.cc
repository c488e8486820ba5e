#include "server/methods/methods.h"

#include <vector>

namespace posenc::server {
namespace {

constexpr char kService[] = "posenc.v1.PositionalEncodingService";

// The order is that of service.proto.
const std::vector<Method>& All() {
  static const auto* const all = new std::vector<Method>{
      {{kService, "GetServerInfo"}, StartGetServerInfo},
      {{kService, "ResolveRope"}, StartResolveRope},
      {{kService, "BuildTable"}, StartBuildTable},
      {{kService, "BuildTableStream", true}, StartBuildTableStream},
      {{kService, "BuildBias", true}, StartBuildBias},
      {{kService, "BuildPositions"}, StartBuildPositions},
      {{kService, "ApplyRope"}, StartApplyRope},
      {{kService, "ApplyRopeStream", true}, StartApplyRopeStream},
      {{kService, "Reposition"}, StartReposition},
      {{kService, "RepositionStream", true}, StartRepositionStream},
      {{kService, "AddEncoding"}, StartAddEncoding},
      {{kService, "ScoreRelative"}, StartScoreRelative},
      {{kService, "ConvertPairing"}, StartConvertPairing},
      {{kService, "AnalyzeRope"}, StartAnalyzeRope},
      {{kService, "DiagnoseRope"}, StartDiagnoseRope},
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
