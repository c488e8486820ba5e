// `posenc info`: version, limits and presets of the server.

#include <algorithm>
#include <cstdio>

#include "client/check/element.h"
#include "client/cli/commands.h"
#include "client/cli/connection.h"
#include "client/cli/print.h"

namespace posenc::cli {
namespace {

absl::Status RunInfo(const GlobalFlags& globals) {
  const absl::StatusOr<Connection> connection = Connection::Open(globals);
  if (!connection.ok()) return connection.status();
  const absl::StatusOr<v1::GetServerInfoResponse> info =
      connection->client().GetServerInfo();
  if (!info.ok()) return info.status();
  if (globals.json) {
    PrintJson(ToJson(*info));
    return absl::OkStatus();
  }
  std::printf(
      "posenc %s, %s\n", info->version().c_str(),
      globals.server.empty() ? "inside this process" : globals.server.c_str());
  std::printf("  %-20s %s\n", "instruction set",
              info->instruction_set().c_str());
  std::printf("  %-20s %s\n", "largest request",
              BytesText(info->limits().max_request_bytes()).c_str());
  std::printf("  %-20s %s\n", "largest response",
              BytesText(info->limits().max_response_bytes()).c_str());
  std::printf("  %-20s %lld\n", "largest rotary_dim",
              static_cast<long long>(info->limits().max_rotary_dim()));
  std::printf("  %-20s", "dtypes");
  for (const int dtype : info->tensor_dtypes()) {
    std::printf(" %s", check::DtypeName(static_cast<v1::Dtype>(dtype)).c_str());
  }
  std::printf("\n  presets");
  // Three columns of 24 characters fit into a line of 80.
  for (int i = 0; i < info->presets_size(); ++i) {
    std::printf("%s%-24s", i % 3 == 0 ? "\n    " : " ",
                info->presets(i).c_str());
  }
  std::printf("\n");
  return absl::OkStatus();
}

}  // namespace

Command AddInfo(CLI::App* /*app*/, const GlobalFlags* globals) {
  return [globals] { return RunInfo(*globals); };
}

}  // namespace posenc::cli
