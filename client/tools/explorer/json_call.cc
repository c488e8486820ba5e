#include "client/tools/explorer/json_call.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/tools/check/element.h"
#include "client/tools/files/print.h"
#include "core/interpretation/formats/gguf_rope.h"
#include "core/interpretation/presets.h"
#include "google/protobuf/util/json_util.h"
#include "server/convert/diagnosis.h"
#include "server/convert/rope.h"

namespace posenc::explorer {
namespace {

JsonAnswer ToAnswer(const absl::Status& status) {
  return {400, cli::JsonText(cli::ErrorJson(status), /*indent=*/-1)};
}

JsonAnswer ToAnswer(const google::protobuf::Message& message) {
  return {200, cli::JsonText(cli::ToJson(message), /*indent=*/-1)};
}

template <typename Message>
JsonAnswer ToAnswer(const absl::StatusOr<Message>& response) {
  return response.ok() ? ToAnswer(*response) : ToAnswer(response.status());
}

JsonAnswer Invalid(absl::string_view message) {
  return ToAnswer(absl::InvalidArgumentError(message));
}

// Reads the body as a message; INVALID_ARGUMENT says why it cannot be read.
absl::Status ReadRequest(const std::string& body,
                         google::protobuf::Message* request) {
  const auto status =
      google::protobuf::util::JsonStringToMessage(body, request);
  if (status.ok()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "body: no ", std::string(request->GetDescriptor()->full_name()), ": ",
      absl::string_view(status.message().data(), status.message().size())));
}

template <typename Request, typename Response,
          absl::StatusOr<Response> (Client::*kMethod)(const Request&,
                                                      const CallOptions&) const>
JsonAnswer Unary(const Client& client, const std::string& body) {
  Request request;
  const absl::Status read = ReadRequest(body, &request);
  if (!read.ok()) return ToAnswer(read);
  return ToAnswer((client.*kMethod)(request, {}));
}

JsonAnswer Table(const Client& client, const std::string& body) {
  const auto too_large = [] {
    return ToAnswer(absl::ResourceExhaustedError(absl::StrCat(
        "rows: more than ", kMaxTableCells,
        " cells, the most that are shown here; ask for fewer rows, or use "
        "posenc table")));
  };
  v1::BuildTableRequest request;
  const absl::Status read = ReadRequest(body, &request);
  if (!read.ok()) return ToAnswer(read);
  if (request.rows() > kMaxTableCells) return too_large();
  const absl::StatusOr<BuildTableResult> table = client.BuildTable(request);
  if (!table.ok()) return ToAnswer(table.status());
  v1::BuildTableResponse response;
  response.set_amplitude(table->amplitude);
  for (const auto* tensor : {&table->cos, &table->sin, &table->table}) {
    if (*tensor && check::ElementCount((*tensor)->shape) > kMaxTableCells)
      return too_large();
  }
  if (table->cos) *response.mutable_cos() = ToTensor(*table->cos);
  if (table->sin) *response.mutable_sin() = ToTensor(*table->sin);
  if (table->table) *response.mutable_table() = ToTensor(*table->table);
  return ToAnswer(response);
}

JsonAnswer Info(const Client& client, const std::string& /*body*/) {
  return ToAnswer(client.GetServerInfo());
}

// Converts a RopeSource with a preset to the ModelDescription of its
// configuration.
JsonAnswer Preset(const Client& /*client*/, const std::string& body) {
  v1::RopeSource source;
  const absl::Status read = ReadRequest(body, &source);
  if (!read.ok()) return ToAnswer(read);
  const core::interpretation::Preset* const preset =
      core::interpretation::FindPreset(source.preset());
  if (preset == nullptr) {
    return ToAnswer(absl::NotFoundError(absl::StrCat(
        "preset: '", source.preset().substr(0, 80), "' is unknown")));
  }
  v1::ModelDescription description;
  description.set_kind(v1::DESCRIPTION_KIND_CONFIG);
  description.set_path(source.preset());
  description.set_text(std::string(preset->config_json));
  return ToAnswer(description);
}

// Converts a DiagnoseRopeRequest to the RopeSpec of the layers with full
// attention. The only input of the request must be a GGUF file, and the length
// of the request selects one of the file's lists.
JsonAnswer Gguf(const Client& /*client*/, const std::string& body) {
  v1::DiagnoseRopeRequest request;
  const absl::Status read = ReadRequest(body, &request);
  if (!read.ok()) return ToAnswer(read);
  core::Faults faults;
  const std::vector<core::doctor::DoctorInput> inputs =
      server::ReadDescriptions(
          request, [] { return absl::OkStatus(); }, &faults);
  if (!faults.status().ok()) return Invalid(faults.status().message());
  if (inputs.size() != 1 || !inputs[0].gguf) {
    return Invalid(inputs.size() == 1 && !inputs[0].unreadable.empty()
                       ? absl::StrCat("inputs[0]: ", inputs[0].unreadable)
                       : "inputs: must be one GGUF file with keys");
  }
  const core::interpretation::GgufRope& gguf = *inputs[0].gguf;
  if (gguf.pairing == core::interpretation::GgufPairing::kNone ||
      !gguf.rotates) {
    return Invalid(absl::StrCat("inputs[0]: architecture ", gguf.architecture,
                                " does not rotate"));
  }
  const std::int64_t length =
      request.length() > 0 ? request.length() : gguf.context_length.value_or(1);
  const auto rope = core::interpretation::ResolveGguf(gguf, length, false);
  if (!rope.ok()) {
    return Invalid(absl::StrCat("inputs[0]: ", rope.status().message()));
  }
  v1::ResolveRopeResponse resolved;
  server::WriteRope(*rope, "", &resolved);
  return ToAnswer(resolved.spec());
}

struct Method {
  const char* name;
  JsonAnswer (*make)(const Client&, const std::string& body);
};
constexpr Method kMethods[] = {
    {"info", Info},
    {"resolve", Unary<v1::ResolveRopeRequest, v1::ResolveRopeResponse,
                      &Client::ResolveRope>},
    {"analyze", Unary<v1::AnalyzeRopeRequest, v1::AnalyzeRopeResponse,
                      &Client::AnalyzeRope>},
    {"table", Table},
    {"doctor", Unary<v1::DiagnoseRopeRequest, v1::DiagnoseRopeResponse,
                     &Client::DiagnoseRope>},
    {"preset", Preset},
    {"gguf", Gguf},
};

const Method* FindMethod(absl::string_view name) {
  for (const Method& method : kMethods) {
    if (name == method.name) return &method;
  }
  return nullptr;
}

}  // namespace

bool IsJsonMethod(absl::string_view name) {
  return FindMethod(name) != nullptr;
}

JsonAnswer MakeJsonCall(const Client& client, absl::string_view name,
                        const std::string& body) {
  return FindMethod(name)->make(client, body);
}

}  // namespace posenc::explorer
