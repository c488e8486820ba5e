#include "server/reflection/reflection.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "grpc/reflection/v1/reflection.pb.h"
#include "grpcpp/support/status.h"

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
    case Request::kFileContainingExtension:  // there are no extensions
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

// Each request is answered before the next is read.
class Exchange final : public SmallCall {
 public:
  explicit Exchange(const ReflectedFiles* files) : files_(files) {}

 private:
  void OnMessage(absl::string_view message) override {
    Request request;
    if (!request.ParseFromArray(message.data(),
                                static_cast<int>(message.size()))) {
      return End(absl::InvalidArgumentError("not a ServerReflectionRequest"));
    }
    Response response;
    Answer(*files_, request, &response);
    Write(response);
  }
  void OnWritten(bool taken) override {
    if (!taken) return End(absl::CancelledError("cancelled"));
    Read();
  }
  void OnLastMessage() override { End(absl::OkStatus()); }

  const ReflectedFiles* const files_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<SmallCall>> Reflection::Make(
    absl::string_view path, std::uint64_t /*connection*/) {
  for (const char* const version : {"v1", "v1alpha"}) {
    if (path == absl::StrCat("/grpc.reflection.", version,
                             ".ServerReflection/ServerReflectionInfo")) {
      return std::shared_ptr<SmallCall>(std::make_shared<Exchange>(&files_));
    }
  }
  return std::shared_ptr<SmallCall>();
}

}  // namespace posenc::server
