// Calls of the contract as JSON over HTTP, for the explorer's page.
//
// The body of a request and the answer are messages of the contract in
// protobuf's JSON format. An error is {"error": {"code", "reason", "message",
// "request_id"}}, as in `posenc --json`, with the HTTP status 400.

#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "posenc/client.h"

namespace posenc::explorer {

// Limit on the number of cells of a table's tensor. A screen shows fewer cells.
inline constexpr int kMaxTableCells = 512 * 256;

struct JsonAnswer {
  int status = 200;  // of HTTP
  std::string body;
};

// Methods are info, resolve, analyze, table, doctor, preset and gguf.
bool IsJsonMethod(absl::string_view name);

// Makes the call of a method and waits until it has ended. Can be called from
// any thread.
JsonAnswer MakeJsonCall(const Client& client, absl::string_view method,
                        const std::string& body);

}  // namespace posenc::explorer
