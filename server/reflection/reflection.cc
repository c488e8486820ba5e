#include "server/reflection/reflection.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "grpc/reflection/v1/reflection.pb.h"
#include "grpcpp/support/status.h"
#include "server/methods/small_answer.h"

namespace posenc::server {
namespace {

using Request = grpc::reflection::v1::ServerReflectionRequest;
using Response = grpc::reflection::v1::ServerReflectionResponse;

void AnswerFiles(const ReflectedFiles::Files* files, Response* response) {
  if (files == nullptr) {
    auto* const error = response->mutable_error_response();
    error->set_error_code(grpc::StatusCode::NOT_FOUND);
    error->set_error_message("not known to this server");
    return;
  }
  for (const std::string& file : *files) {
    response->mutable_file_descriptor_response()->add_file_descriptor_proto(
        file);
  }
}

void Answer(const ReflectedFiles& files, const Request& request,
            Response* response) {
  response->set_valid_host(request.host());
  *response->mutable_original_request() = request;
  switch (request.message_request_case()) {
    case Request::kFileByFilename:
      return AnswerFiles(files.Named(request.file_by_filename()), response);
    case Request::kFileContainingSymbol:
      return AnswerFiles(files.Holding(request.file_containing_symbol()),
                         response);
    case Request::kFileContainingExtension:  // the contract has none
      return AnswerFiles(nullptr, response);
    case Request::kAllExtensionNumbersOfType:
      if (files.Holding(request.all_extension_numbers_of_type()) == nullptr) {
        return AnswerFiles(nullptr, response);
      }
      response->mutable_all_extension_numbers_response()->set_base_type_name(
          request.all_extension_numbers_of_type());
      return;
    case Request::kListServices:
      for (const std::string& service : files.services()) {
        response->mutable_list_services_response()->add_service()->set_name(
            service);
      }
      return;
    case Request::MESSAGE_REQUEST_NOT_SET:
      break;
  }
  auto* const error = response->mutable_error_response();
  error->set_error_code(grpc::StatusCode::INVALID_ARGUMENT);
  error->set_error_message("asks for nothing");
}

}  // namespace

std::vector<Method> Reflection::Methods() {
  const auto answer =
      [this](const std::string& message) -> absl::StatusOr<std::string> {
    Request request;
    if (!request.ParseFromString(message)) {
      return absl::InvalidArgumentError("not a ServerReflectionRequest");
    }
    Response response;
    Answer(files_, request, &response);
    return response.SerializeAsString();
  };
  std::vector<Method> methods;
  for (const char* const service :
       {"grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection"}) {
    Method method;
    method.service = service;
    method.name = "ServerReflectionInfo";
    method.stream = true;
    method.start = [answer](const MethodContext& /*context*/) {
      return std::make_unique<SmallAnswer>(answer);
    };
    method.exempt = true;
    method.needs_token = method.observed = false;
    methods.push_back(std::move(method));
  }
  return methods;
}

}  // namespace posenc::server
