// A call of the contract as JSON over HTTP: what the explorer's page asks, and
// whoever has curl.
//
// Body and answer are the contract's messages as protobuf writes them in JSON.
// The call goes through a channel of gRPC's, so that admission, limits,
// deadlines, tokens and errors are those of every other call. An error becomes
// {"error": {"code", "reason", "message", "request_id"}}, as `posenc --json`
// prints it, under the HTTP status that google.rpc.Code gives its code.

#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "grpcpp/client_context.h"
#include "posenc/v1/service.grpc.pb.h"

namespace posenc::server {

// Cells of each tensor that a table may have here: more than fit on a screen.
inline constexpr int kMaxTableCells = 512 * 256;

struct JsonCall {
  std::string method;  // "resolve"
  // Headers that become the call's metadata; empty if they were not sent.
  std::string authorization;
  std::string request_id;
  std::string traceparent;
};

struct JsonAnswer {
  int status = 200;  // of HTTP
  std::string body;
};

// How a method is to be asked.
enum class JsonMethod {
  kNone,  // there is none of this name
  kGet,   // info
  kPost,  // resolve, analyze, table, doctor
};
JsonMethod FindJsonMethod(absl::string_view name);

// Makes the call and waits for its end. `context` is new; the caller may have
// set its deadline, and may cancel it.
JsonAnswer MakeJsonCall(v1::PositionalEncodingService::StubInterface* stub,
                        const JsonCall& call, const std::string& body,
                        grpc::ClientContext* context);

// The answer to what is refused before there is a call. `code` is one of
// gRPC's.
JsonAnswer JsonError(int status, grpc::StatusCode code,
                     absl::string_view message);

}  // namespace posenc::server
