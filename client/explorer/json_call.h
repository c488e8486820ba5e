// Calls of the contract as JSON over HTTP, which the explorer's page makes.
//
// Body and answer are the contract's messages as protobuf writes them in JSON.
// An error is {"error": {"code", "reason", "message", "request_id"}}, as
// `posenc --json` prints it, under the HTTP status that google.rpc.Code gives
// its code.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "posenc/client.h"

namespace posenc::explorer {

// Cells of each tensor that a table may have here: more than fit on a screen.
inline constexpr int kMaxTableCells = 512 * 256;

struct JsonAnswer {
  int status = 200;  // of HTTP
  std::string body;
};

// How a method is asked for.
enum class JsonMethod {
  kNone,  // no method has this name
  kGet,   // info
  kPost,  // resolve, analyze, table, doctor, preset, gguf
};
JsonMethod FindJsonMethod(absl::string_view name);

// Makes the call and waits for its end. Any thread may call this.
JsonAnswer MakeJsonCall(const Client& client, absl::string_view method,
                        const std::string& body);

}  // namespace posenc::explorer
