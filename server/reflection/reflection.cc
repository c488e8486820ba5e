#include "server/reflection/reflection.h"

#include <memory>
#include <set>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/base/error.h"
#include "google/protobuf/descriptor.pb.h"
#include "grpc/health/v1/health.pb.h"
#include "grpc/reflection/v1/reflection.pb.h"
#include "grpcpp/support/status.h"
#include "posenc/rpc/status.pb.h"
#include "posenc/v1/errors.pb.h"
#include "posenc/v1/service.pb.h"
#include "server/call/small_answer.h"

namespace posenc::server {
namespace {

using Request = grpc::reflection::v1::ServerReflectionRequest;
using Response = grpc::reflection::v1::ServerReflectionResponse;
namespace pb = google::protobuf;

// Largest number of calls at the same time. No memory is claimed for their
// answers, which have up to 21 KiB.
constexpr int kMostCalls = 64;

// Replaces the types posenc.rpc.* of fields by google.rpc.*.
void RenameTypes(pb::DescriptorProto* message) {
  for (pb::FieldDescriptorProto& field : *message->mutable_field()) {
    absl::string_view type = field.type_name();
    if (absl::ConsumePrefix(&type, ".posenc.rpc.")) {
      field.set_type_name(absl::StrCat(".google.rpc.", type));
    }
  }
  for (pb::DescriptorProto& nested : *message->mutable_nested_type()) {
    RenameTypes(&nested);
  }
}

// Returns the messages of error details under the names google.rpc.*, which
// errors use. Our messages posenc.rpc.* have the same wire format.
pb::FileDescriptorProto ErrorDetails() {
  pb::FileDescriptorProto file;
  rpc::ErrorInfo::descriptor()->file()->CopyTo(&file);
  file.set_name("google/rpc/error_details.proto");
  file.set_package("google.rpc");
  for (pb::DescriptorProto& message : *file.mutable_message_type()) {
    RenameTypes(&message);
  }
  return file;
}

// Returns the reflection service under its older name, with the messages of the
// newer service.
pb::FileDescriptorProto OlderReflection() {
  const pb::FileDescriptor& newer =
      *grpc::reflection::v1::ServerReflectionRequest::descriptor()->file();
  pb::FileDescriptorProto file;
  newer.CopyTo(&file);
  file.set_name("grpc/reflection/v1alpha/reflection.proto");
  file.set_package("grpc.reflection.v1alpha");
  file.clear_message_type();
  file.add_dependency(newer.name());
  return file;
}

// Adds a file's descriptor after the descriptors of its imports.
void Collect(const pb::FileDescriptor& file,
             std::set<const pb::FileDescriptor*>* seen,
             std::vector<std::string>* files) {
  if (!seen->insert(&file).second) return;
  for (int i = 0; i < file.dependency_count(); ++i) {
    Collect(*file.dependency(i), seen, files);
  }
  pb::FileDescriptorProto proto;
  file.CopyTo(&proto);
  file.CopyJsonNameTo(&proto);
  files->push_back(proto.SerializeAsString());
}

void SetError(grpc::StatusCode code, const char* message, Response* response) {
  auto* const error = response->mutable_error_response();
  error->set_error_code(code);
  error->set_error_message(message);
}

}  // namespace

Reflection::Reflection(const pb::ServiceDescriptor* more) {
  // The linker keeps descriptors only if some code refers to their generated
  // code, as descriptor() does.
  const pb::FileDescriptor& errors = *rpc::ErrorInfo::descriptor()->file();
  for (int i = 0; i < errors.dependency_count(); ++i) {
    Add(*errors.dependency(i));
  }
  Build(ErrorDetails());
  Add(*grpc::reflection::v1::ServerReflectionRequest::descriptor()->file());
  Build(OlderReflection());
  Add(*v1::ErrorReason_descriptor()->file());
  Add(*v1::GetServerInfoRequest::descriptor()->file());
  Add(*grpc::health::v1::HealthCheckRequest::descriptor()->file());
  if (more != nullptr) Add(*more->file());
}

void Reflection::Add(const pb::FileDescriptor& file) {
  if (pool_.FindFileByName(std::string(file.name())) != nullptr) return;
  for (int i = 0; i < file.dependency_count(); ++i) Add(*file.dependency(i));
  pb::FileDescriptorProto proto;
  file.CopyTo(&proto);
  Build(proto);
}

void Reflection::Build(const pb::FileDescriptorProto& proto) {
  const pb::FileDescriptor& file = *pool_.BuildFile(proto);
  std::set<const pb::FileDescriptor*> seen;
  Collect(file, &seen, &files_[&file]);
  for (int i = 0; i < file.service_count(); ++i) {
    services_.emplace_back(file.service(i)->full_name());
  }
}

const pb::FileDescriptor* Reflection::Holding(const std::string& symbol) const {
  const pb::FileDescriptor* const file = pool_.FindFileContainingSymbol(symbol);
  if (file == nullptr || pool_.FindOneofByName(symbol) != nullptr) {
    return nullptr;
  }
  const bool is_package = absl::StartsWith(absl::StrCat(file->package(), "."),
                                           absl::StrCat(symbol, "."));
  return is_package ? nullptr : file;
}

absl::StatusOr<std::string> Reflection::Answer(
    const std::string& message) const {
  Request request;
  if (!request.ParseFromString(message)) {
    return absl::InvalidArgumentError("not a ServerReflectionRequest");
  }
  Response response;
  // `file` is null if no file matches.
  const auto answer = [this, &response](const pb::FileDescriptor* file) {
    if (file == nullptr) {
      return SetError(grpc::StatusCode::NOT_FOUND, "not known to this server",
                      &response);
    }
    for (const std::string& bytes : files_.at(file)) {
      response.mutable_file_descriptor_response()->add_file_descriptor_proto(
          bytes);
    }
  };
  response.set_valid_host(request.host());
  *response.mutable_original_request() = request;
  switch (request.message_request_case()) {
    case Request::kFileByFilename:
      answer(pool_.FindFileByName(request.file_by_filename()));
      break;
    case Request::kFileContainingSymbol:
      answer(Holding(request.file_containing_symbol()));
      break;
    case Request::kFileContainingExtension:  // the contract has no extensions
      answer(nullptr);
      break;
    case Request::kAllExtensionNumbersOfType:
      if (Holding(request.all_extension_numbers_of_type()) == nullptr) {
        answer(nullptr);
        break;
      }
      response.mutable_all_extension_numbers_response()->set_base_type_name(
          request.all_extension_numbers_of_type());
      break;
    case Request::kListServices:
      for (const std::string& service : services_) {
        response.mutable_list_services_response()->add_service()->set_name(
            service);
      }
      break;
    case Request::MESSAGE_REQUEST_NOT_SET:
      SetError(grpc::StatusCode::INVALID_ARGUMENT, "asks for nothing",
               &response);
      break;
  }
  return response.SerializeAsString();
}

std::vector<Method> Reflection::Methods() {
  std::vector<Method> methods;
  for (const char* const service :
       {"grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection"}) {
    const auto start = [this](const MethodContext& /*context*/)
        -> absl::StatusOr<std::unique_ptr<CallHandler>> {
      const std::shared_ptr<void> open(nullptr, [this](void*) { --calls_; });
      if (++calls_ > kMostCalls) {
        return core::MakeError(
            absl::StatusCode::kResourceExhausted,
            core::ErrorReason::kOverloaded, "",
            absl::StrCat(kMostCalls, " reflection calls are already open"));
      }
      return std::make_unique<SmallAnswer>(
          [this, open](const std::string& message) { return Answer(message); });
    };
    methods.push_back({{.service = service,
                        .name = "ServerReflectionInfo",
                        .stream = true,
                        .exempt = true,
                        .observed = false},
                       start,
                       false});
  }
  return methods;
}

}  // namespace posenc::server
