#include "server/admin/json_call.h"

#include <algorithm>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "core/model/gguf_rope.h"
#include "core/model/presets.h"
#include "google/protobuf/util/json_util.h"
#include "nlohmann/json.hpp"
#include "posenc/compat.h"
#include "posenc/rpc/status.pb.h"
#include "server/convert/diagnosis.h"
#include "server/convert/rope.h"

namespace posenc::server {
namespace {

using Stub = v1::PositionalEncodingService::StubInterface;

struct Asked {
  Stub* stub;
  const std::string& body;
  const std::string& request_id;
  grpc::ClientContext* context;
};

// google/rpc/code.proto says which status of HTTP a code is.
int HttpStatus(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::OK:
      return 200;
    case grpc::StatusCode::INVALID_ARGUMENT:
    case grpc::StatusCode::FAILED_PRECONDITION:
    case grpc::StatusCode::OUT_OF_RANGE:
      return 400;
    case grpc::StatusCode::UNAUTHENTICATED:
      return 401;
    case grpc::StatusCode::PERMISSION_DENIED:
      return 403;
    case grpc::StatusCode::NOT_FOUND:
      return 404;
    case grpc::StatusCode::ABORTED:
    case grpc::StatusCode::ALREADY_EXISTS:
      return 409;
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return 429;
    case grpc::StatusCode::CANCELLED:
      return 499;
    case grpc::StatusCode::UNIMPLEMENTED:
      return 501;
    case grpc::StatusCode::UNAVAILABLE:
      return 503;
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return 504;
    default:  // UNKNOWN, INTERNAL, DATA_LOSS
      return 500;
  }
}

std::string ErrorBody(grpc::StatusCode code, absl::string_view reason,
                      absl::string_view message, absl::string_view request_id) {
  nlohmann::ordered_json error = {
      {"code", absl::StatusCodeToString(static_cast<absl::StatusCode>(code))},
      {"reason", std::string(reason)},
      {"message", std::string(message)}};
  if (!request_id.empty()) error["request_id"] = std::string(request_id);
  const nlohmann::ordered_json body = {{"error", std::move(error)}};
  // dump() throws at bytes that are no UTF-8; they are replaced instead.
  return body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// What gRPC's status says in its details (server/convert/status.h).
JsonAnswer FromStatus(const grpc::Status& status, absl::string_view message,
                      const std::string& request_id) {
  rpc::Status rich;
  rpc::ErrorInfo info;
  if (rich.ParseFromString(status.error_details())) {
    for (const google::protobuf::Any& detail : rich.details()) {
      if (absl::EndsWith(detail.type_url(), "/google.rpc.ErrorInfo") &&
          info.ParseFromString(detail.value())) {
        break;
      }
    }
  }
  return {HttpStatus(status.error_code()),
          ErrorBody(status.error_code(), info.reason(), message, request_id)};
}

// A name for the call in the server's log.
std::string RandomId() {
  std::random_device device;
  return absl::StrFormat("%08x%08x", device(), device());
}

JsonAnswer Invalid(absl::string_view message) {
  return JsonError(400, grpc::StatusCode::INVALID_ARGUMENT, message);
}

bool NamesSharedMemory(const google::protobuf::Message& message) {
  if (message.GetDescriptor() == v1::SharedMemory::descriptor()) return true;
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  return std::any_of(fields.begin(), fields.end(), [&](const auto* field) {
    if (field->cpp_type() !=
        google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE) {
      return false;
    }
    if (!field->is_repeated()) {
      return NamesSharedMemory(reflection.GetMessage(message, field));
    }
    for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
      if (NamesSharedMemory(reflection.GetRepeatedMessage(message, field, i))) {
        return true;
      }
    }
    return false;
  });
}

// The server would otherwise expect the largest message that it takes.
void Announce(const google::protobuf::Message& request,
              grpc::ClientContext* context) {
  context->AddMetadata("posenc-message-bytes",
                       absl::StrCat(request.ByteSizeLong()));
}

// Reads the body as a message. False: `answer` says why not.
bool ReadRequest(const std::string& body, google::protobuf::Message* request,
                 JsonAnswer* answer) {
  const auto status =
      google::protobuf::util::JsonStringToMessage(body, request);
  if (!status.ok()) {
    *answer = Invalid(absl::StrCat(
        "body: no ", request->GetDescriptor()->full_name(), ": ",
        absl::string_view(status.message().data(), status.message().size())));
    return false;
  }
  // Whoever reaches this port by HTTP is not on a unix socket of the server's.
  if (NamesSharedMemory(*request)) {
    *answer = JsonError(403, grpc::StatusCode::PERMISSION_DENIED,
                        "shared memory cannot be named over HTTP");
    return false;
  }
  return true;
}

JsonAnswer ToAnswer(const grpc::Status& status, const Asked& asked,
                    const google::protobuf::Message& response) {
  if (!status.ok()) {
    return FromStatus(status, status.error_message(), asked.request_id);
  }
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  compat::PrintDefaults(&options);
  JsonAnswer answer;
  const auto written = google::protobuf::util::MessageToJsonString(
      response, &answer.body, options);
  if (written.ok()) return answer;
  return JsonError(500, grpc::StatusCode::INTERNAL,
                   "the answer cannot be written as JSON");
}

template <typename Request, typename Response,
          grpc::Status (Stub::*kMethod)(grpc::ClientContext*, const Request&,
                                        Response*)>
JsonAnswer Unary(const Asked& asked) {
  Request request;
  JsonAnswer answer;
  if (!ReadRequest(asked.body, &request, &answer)) return answer;
  Announce(request, asked.context);
  Response response;
  const grpc::Status status =
      (asked.stub->*kMethod)(asked.context, request, &response);
  return ToAnswer(status, asked, response);
}

std::int64_t Cells(const v1::Tensor& tensor) {
  std::int64_t cells = 1;
  for (const std::int64_t extent : tensor.shape()) cells *= extent;
  return cells;
}

// Asks for the table as a stream. A table that may be shown fits into the
// stream's first message, and of any other no more than that is computed.
JsonAnswer Table(const Asked& asked) {
  v1::BuildTableStreamRequest request;
  JsonAnswer answer;
  if (!ReadRequest(asked.body, request.mutable_table(), &answer)) return answer;
  Announce(request, asked.context);
  const auto reader = asked.stub->BuildTableStream(asked.context, request);
  v1::BuildTableStreamResponse first, second;
  bool fits = true;
  if (reader->Read(&first)) {
    for (const v1::Tensor* tensor :
         {&first.cos(), &first.sin(), &first.table()}) {
      fits = fits && Cells(*tensor) <= kMaxTableCells;
    }
    if (fits) fits = !reader->Read(&second);
  }
  if (!fits) asked.context->TryCancel();
  const grpc::Status status = reader->Finish();
  if (!fits) {
    return JsonError(
        429, grpc::StatusCode::RESOURCE_EXHAUSTED,
        absl::StrCat("rows: more than ", kMaxTableCells,
                     " cells, the most that are told over HTTP; ask for fewer "
                     "rows, or call BuildTable"));
  }
  if (!status.ok()) {
    // The table is a field of the stream's message, and not of the body.
    const std::string text = status.error_message();
    absl::string_view message = text;
    absl::ConsumePrefix(&message, "table.");
    return FromStatus(status, message, asked.request_id);
  }
  v1::BuildTableResponse response;
  response.set_amplitude(first.amplitude());
  if (first.has_cos())
    *response.mutable_cos() = std::move(*first.mutable_cos());
  if (first.has_sin())
    *response.mutable_sin() = std::move(*first.mutable_sin());
  if (first.has_table()) {
    *response.mutable_table() = std::move(*first.mutable_table());
  }
  return ToAnswer(status, asked, response);
}

JsonAnswer Info(const Asked& asked) {
  v1::GetServerInfoResponse response;
  const grpc::Status status = asked.stub->GetServerInfo(
      asked.context, v1::GetServerInfoRequest(), &response);
  return ToAnswer(status, asked, response);
}

// What is asked of no RPC is public and costs no more than reading a header. A
// call of GetServerInfo before it says whether the caller may ask.
JsonAnswer Admitted(const Asked& asked) {
  v1::GetServerInfoResponse ignored;
  const grpc::Status status = asked.stub->GetServerInfo(
      asked.context, v1::GetServerInfoRequest(), &ignored);
  return ToAnswer(status, asked, ignored);
}

// RopeSource with a preset -> the ModelDescription of its configuration.
JsonAnswer Preset(const Asked& asked) {
  v1::RopeSource source;
  JsonAnswer answer;
  if (!ReadRequest(asked.body, &source, &answer)) return answer;
  answer = Admitted(asked);
  if (answer.status != 200) return answer;
  const core::Preset* const preset = core::FindPreset(source.preset());
  if (preset == nullptr) {
    return JsonError(404, grpc::StatusCode::NOT_FOUND,
                     absl::StrCat("preset: '", source.preset().substr(0, 80),
                                  "' is unknown"));
  }
  v1::ModelDescription description;
  description.set_kind(v1::DESCRIPTION_KIND_CONFIG);
  description.set_path(source.preset());
  description.set_text(std::string(preset->config_json));
  return ToAnswer(grpc::Status::OK, asked, description);
}

// DiagnoseRopeRequest with a GGUF file as its only input, and the length that
// its lists are chosen for -> the RopeSpec of its layers with full attention.
JsonAnswer Gguf(const Asked& asked) {
  v1::DiagnoseRopeRequest request;
  JsonAnswer answer;
  if (!ReadRequest(asked.body, &request, &answer)) return answer;
  answer = Admitted(asked);
  if (answer.status != 200) return answer;
  core::Faults faults;
  const std::vector<core::DoctorInput> inputs = ReadDescriptions(
      request, [] { return absl::OkStatus(); }, &faults);
  if (!faults.status().ok()) return Invalid(faults.status().message());
  if (inputs.size() != 1 || !inputs[0].gguf) {
    return Invalid(inputs.size() == 1 && !inputs[0].unreadable.empty()
                       ? absl::StrCat("inputs[0]: ", inputs[0].unreadable)
                       : "inputs: must be one GGUF file with keys");
  }
  const core::GgufRope& gguf = *inputs[0].gguf;
  if (gguf.pairing == core::GgufPairing::kNone) {
    return Invalid(absl::StrCat("inputs[0]: architecture ", gguf.architecture,
                                " does not rotate"));
  }
  const std::int64_t length =
      request.length() > 0 ? request.length() : gguf.context_length.value_or(1);
  const auto rope = core::ResolveGguf(gguf, length, false);
  if (!rope.ok()) {
    return Invalid(absl::StrCat("inputs[0]: ", rope.status().message()));
  }
  v1::ResolveRopeResponse resolved;
  WriteRope(*rope, "", &resolved);
  return ToAnswer(grpc::Status::OK, asked, resolved.spec());
}

struct Method {
  const char* name;
  JsonMethod kind;
  JsonAnswer (*make)(const Asked&);
};
constexpr Method kMethods[] = {
    {"info", JsonMethod::kGet, Info},
    {"resolve", JsonMethod::kPost,
     Unary<v1::ResolveRopeRequest, v1::ResolveRopeResponse,
           &Stub::ResolveRope>},
    {"analyze", JsonMethod::kPost,
     Unary<v1::AnalyzeRopeRequest, v1::AnalyzeRopeResponse,
           &Stub::AnalyzeRope>},
    {"table", JsonMethod::kPost, Table},
    {"doctor", JsonMethod::kPost,
     Unary<v1::DiagnoseRopeRequest, v1::DiagnoseRopeResponse,
           &Stub::DiagnoseRope>},
    {"preset", JsonMethod::kPost, Preset},
    {"gguf", JsonMethod::kPost, Gguf},
};

}  // namespace

JsonMethod FindJsonMethod(absl::string_view name) {
  for (const Method& method : kMethods) {
    if (name == method.name) return method.kind;
  }
  return JsonMethod::kNone;
}

JsonAnswer MakeJsonCall(Stub* stub, const JsonCall& call,
                        const std::string& body, grpc::ClientContext* context) {
  const std::string id = call.request_id.empty() ? RandomId() : call.request_id;
  context->AddMetadata("x-request-id", id);
  if (!call.authorization.empty()) {
    context->AddMetadata("authorization", call.authorization);
  }
  if (!call.traceparent.empty()) {
    context->AddMetadata("traceparent", call.traceparent);
  }
  for (const Method& method : kMethods) {
    if (call.method == method.name) {
      return method.make({stub, body, id, context});
    }
  }
  return JsonError(404, grpc::StatusCode::NOT_FOUND, "there is no such method");
}

JsonAnswer JsonError(int status, grpc::StatusCode code,
                     absl::string_view message) {
  return {status, ErrorBody(code, "", message, "")};
}

}  // namespace posenc::server
