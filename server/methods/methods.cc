#include "server/methods/methods.h"

#include <vector>

#include "server/methods/unary.h"

namespace posenc::server {
namespace {

constexpr char kService[] = "posenc.v1.PositionalEncodingService";

}  // namespace

// The methods are in the order of service.proto.
absl::Span<const Method> Methods() {
  static const auto* const all = new std::vector<Method>{
      {{kService, "GetServerInfo"}, StartUnary<AnswerGetServerInfo>},
      {{kService, "ResolveRope"}, StartUnary<AnswerResolveRope>},
      {{kService, "BuildTable"}, StartUnary<AnswerBuildTable>},
      {{kService, "BuildTableStream", true}, StartBuildTableStream},
      {{kService, "BuildBias", true}, StartBuildBias},
      {{kService, "BuildPositions"}, StartUnary<AnswerBuildPositions>},
      {{kService, "ApplyRope"}, StartUnary<AnswerApplyRope>},
      {{kService, "ApplyRopeStream", true}, StartApplyRopeStream},
      {{kService, "Reposition"}, StartUnary<AnswerReposition>},
      {{kService, "RepositionStream", true}, StartRepositionStream},
      {{kService, "AddEncoding"}, StartUnary<AnswerAddEncoding>},
      {{kService, "ScoreRelative"}, StartUnary<AnswerScoreRelative>},
      {{kService, "ConvertPairing"}, StartUnary<AnswerConvertPairing>},
      {{kService, "AnalyzeRope"}, StartUnary<AnswerAnalyzeRope>},
      {{kService, "DiagnoseRope"}, StartUnary<AnswerDiagnoseRope>},
  };
  return *all;
}

const Method* FindMethod(absl::string_view name) {
  for (const Method& method : Methods()) {
    if (method.name == name) return &method;
  }
  return nullptr;
}

}  // namespace posenc::server
