#include "server/reflection/reflection.h"

#include <memory>
#include <set>
#include <utility>

#include "absl/status/statusor.h"
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

// Limit for calls at the same time. Their answers, of up to 21 KiB, are not
// claimed.
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

// files: null if no file matches.
void AnswerFiles(const std::vector<std::string>* files, Response* response) {
  if (files == nullptr) {
    return SetError(grpc::StatusCode::NOT_FOUND, "not known to this server",
                    response);
  }
  for (const std::string& file : *files) {
    response->mutable_file_descriptor_response()->add_file_descriptor_proto(
        file);
  }
}

}  // namespace

Reflection::Reflection(const pb::ServiceDescriptor* more) {
  pb::DescriptorPool renamed(pb::DescriptorPool::generated_pool());
  Add(*renamed.BuildFile(ErrorDetails()));
  Add(*renamed.BuildFile(OlderReflection()));
  // The linker keeps descriptors only if some code refers to their generated
  // code, as descriptor() does.
  Add(*v1::ErrorReason_descriptor()->file());
  for (const pb::Descriptor* const any_of_file :
       {v1::GetServerInfoRequest::descriptor(),
        grpc::health::v1::HealthCheckRequest::descriptor(),
        grpc::reflection::v1::ServerReflectionRequest::descriptor()}) {
    Add(*any_of_file->file());
  }
  if (more != nullptr) Add(*more->file());
}

void Reflection::Add(const pb::FileDescriptor& file) {
  const auto [at, added] = by_name_.try_emplace(std::string(file.name()));
  if (!added) return;
  std::set<const pb::FileDescriptor*> seen;
  Collect(file, &seen, &at->second);
  const Files* const files = &at->second;
  for (int i = 0; i < file.message_type_count(); ++i) {
    AddSymbols(*file.message_type(i), files);
  }
  for (int i = 0; i < file.enum_type_count(); ++i) {
    AddSymbols(*file.enum_type(i), files);
  }
  for (int i = 0; i < file.service_count(); ++i) {
    const pb::ServiceDescriptor& service = *file.service(i);
    services_.emplace_back(service.full_name());
    by_symbol_[std::string(service.full_name())] = files;
    for (int m = 0; m < service.method_count(); ++m) {
      by_symbol_[std::string(service.method(m)->full_name())] = files;
    }
  }
  for (int i = 0; i < file.dependency_count(); ++i) Add(*file.dependency(i));
}

void Reflection::AddSymbols(const pb::Descriptor& message, const Files* files) {
  by_symbol_[std::string(message.full_name())] = files;
  for (int i = 0; i < message.field_count(); ++i) {
    by_symbol_[std::string(message.field(i)->full_name())] = files;
  }
  for (int i = 0; i < message.nested_type_count(); ++i) {
    AddSymbols(*message.nested_type(i), files);
  }
  for (int i = 0; i < message.enum_type_count(); ++i) {
    AddSymbols(*message.enum_type(i), files);
  }
}

void Reflection::AddSymbols(const pb::EnumDescriptor& type,
                            const Files* files) {
  by_symbol_[std::string(type.full_name())] = files;
  for (int i = 0; i < type.value_count(); ++i) {
    by_symbol_[std::string(type.value(i)->full_name())] = files;
  }
}

const Reflection::Files* Reflection::Holding(const std::string& symbol) const {
  const auto at = by_symbol_.find(symbol);
  return at == by_symbol_.end() ? nullptr : at->second;
}

absl::StatusOr<std::string> Reflection::Answer(
    const std::string& message) const {
  Request request;
  if (!request.ParseFromString(message)) {
    return absl::InvalidArgumentError("not a ServerReflectionRequest");
  }
  Response response;
  response.set_valid_host(request.host());
  *response.mutable_original_request() = request;
  switch (request.message_request_case()) {
    case Request::kFileByFilename: {
      const auto at = by_name_.find(request.file_by_filename());
      AnswerFiles(at == by_name_.end() ? nullptr : &at->second, &response);
      break;
    }
    case Request::kFileContainingSymbol:
      AnswerFiles(Holding(request.file_containing_symbol()), &response);
      break;
    case Request::kFileContainingExtension:  // the contract has no extensions
      AnswerFiles(nullptr, &response);
      break;
    case Request::kAllExtensionNumbersOfType:
      if (Holding(request.all_extension_numbers_of_type()) == nullptr) {
        AnswerFiles(nullptr, &response);
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
    Method method;
    method.service = service;
    method.name = "ServerReflectionInfo";
    method.stream = true;
    method.start = [this](const MethodContext& /*context*/)
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
    method.exempt = true;
    method.needs_token = method.observed = false;
    methods.push_back(std::move(method));
  }
  return methods;
}

}  // namespace posenc::server
