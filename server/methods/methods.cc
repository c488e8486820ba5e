#include "server/methods/methods.h"

namespace posenc::server {
namespace {

constexpr Method kMethods[] = {
    {"GetServerInfo", false, StartGetServerInfo},
    {"ResolveRope", false, StartResolveRope},
    {"BuildTable", false, StartBuildTable},
    {"BuildTableStream", true, StartBuildTableStream},
    {"BuildBias", true, StartBuildBias},
    {"BuildPositions", false, StartBuildPositions},
    {"ApplyRope", false, StartApplyRope},
    {"ApplyRopeStream", true, StartApplyRopeStream},
    {"Reposition", false, StartReposition},
    {"RepositionStream", true, StartRepositionStream},
    {"AddEncoding", false, StartAddEncoding},
    {"ScoreRelative", false, StartScoreRelative},
    {"ConvertPairing", false, StartConvertPairing},
    {"AnalyzeRope", false, StartAnalyzeRope},
};

}  // namespace

const Method* FindMethod(absl::string_view name) {
  for (const Method& method : kMethods) {
    if (method.name == name) return &method;
  }
  return nullptr;
}

absl::Span<const Method> Methods() { return kMethods; }

}  // namespace posenc::server
