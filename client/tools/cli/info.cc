// `posenc info`: version, limits and presets of the server.

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/tools/arguments/connection.h"
#include "client/tools/check/element.h"
#include "client/tools/cli/commands.h"
#include "client/tools/files/print.h"
#include "client/tools/files/status.h"
#include "core/base/text.h"

namespace posenc::cli {
namespace {

absl::Status RunInfo(const GlobalFlags& globals) {
  ASSIGN_OR_RETURN(const Connection connection, Connection::Open(globals));
  ASSIGN_OR_RETURN(const auto info, connection.client().GetServerInfo());
  if (globals.json) {
    PrintJson(ToJson(info));
    return absl::OkStatus();
  }
  absl::PrintF("posenc %s, %s\n", info.version(),
               globals.server.empty() ? "inside this process" : globals.server);
  PrintFact("instruction set", info.instruction_set());
  PrintFact("largest request",
            core::SizeText(info.limits().max_request_bytes()));
  PrintFact("largest response",
            core::SizeText(info.limits().max_response_bytes()));
  PrintFact("largest rotary_dim", absl::StrCat(info.limits().max_rotary_dim()));
  PrintFact(
      "dtypes",
      absl::StrJoin(info.tensor_dtypes(), " ", [](std::string* out, int dtype) {
        *out += check::DtypeName(static_cast<v1::Dtype>(dtype));
      }));
  std::printf("  presets");
  // Three columns of 24 characters fit into a line of 80.
  for (int i = 0; i < info.presets_size(); ++i) {
    std::printf("%s%-24s", i % 3 == 0 ? "\n    " : " ",
                info.presets(i).c_str());
  }
  std::printf("\n");
  return absl::OkStatus();
}

}  // namespace

Command AddInfo(CLI::App* /*app*/, const GlobalFlags* globals) {
  return [globals] { return RunInfo(*globals); };
}

}  // namespace posenc::cli
