#include "server/reflection/reflection.h"

#include <string>

#include "grpc/reflection/v1/reflection.grpc.pb.h"
#include "grpc/reflection/v1alpha/reflection.grpc.pb.h"

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
  response->Clear();
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

// Bytes of a request: a name, and the host, which the answer repeats. More is
// not kept, as nothing else bounds what calls of reflection hold.
constexpr std::size_t kMostBytes = 4 << 10;

// One call: each request is answered before the next is read.
class Exchange final : public grpc::ServerBidiReactor<Request, Response> {
 public:
  explicit Exchange(const ReflectedFiles* files) : files_(files) {
    StartRead(&request_);
  }
  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    if (request_.ByteSizeLong() > kMostBytes) {
      Request().Swap(&request_);
      return Finish(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                                 "a request of reflection over 4 KiB"));
    }
    Answer(*files_, request_, &response_);
    StartWrite(&response_);
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::CANCELLED);
    StartRead(&request_);
  }
  void OnDone() override { delete this; }

 private:
  const ReflectedFiles* const files_;
  Request request_;
  Response response_;
};

// Of either name.
template <typename Named>
class Service final : public Named::CallbackService {
 public:
  explicit Service(const ReflectedFiles* files) : files_(files) {}
  grpc::ServerBidiReactor<Request, Response>* ServerReflectionInfo(
      grpc::CallbackServerContext* /*context*/) override {
    return new Exchange(files_);
  }

 private:
  const ReflectedFiles* const files_;
};

}  // namespace

Reflection::Reflection()
    : v1_(std::make_unique<Service<grpc::reflection::v1::ServerReflection>>(
          &files_)),
      v1alpha_(std::make_unique<
               Service<grpc::reflection::v1alpha::ServerReflection>>(&files_)) {
}

Reflection::~Reflection() = default;

}  // namespace posenc::server
