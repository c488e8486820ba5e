#include <cctype>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "client/flags/status_macros.h"
#include "client/load/workload.h"
#include "google/protobuf/message.h"
#include "google/protobuf/util/json_util.h"
#include "inference/inference.pb.h"
#include "posenc/client.h"

namespace posenc::load {
namespace {

namespace pb = google::protobuf;
using inference::InferParameter;
using inference::ModelInferRequest;
using pb::FieldDescriptor;

// Returns "apply_rope" for "ApplyRope".
std::string ModelOf(const std::string& rpc) {
  std::string model;
  for (const char c : rpc) {
    if (std::isupper(static_cast<unsigned char>(c)) && !model.empty()) {
      model += '_';
    }
    model += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return model;
}

const char* DatatypeOf(v1::Dtype dtype) {
  switch (dtype) {
    case v1::DTYPE_FLOAT16:
      return "FP16";
    case v1::DTYPE_BFLOAT16:
      return "BF16";
    case v1::DTYPE_FLOAT64:
      return "FP64";
    case v1::DTYPE_FLOAT8_E4M3FN:
      return "FP8E4M3";
    case v1::DTYPE_FLOAT8_E5M2:
      return "FP8E5M2";
    default:
      return "FP32";
  }
}

// Sets a parameter; handles only the types of fields in the workload's
// requests.
absl::Status SetParameter(const pb::Message& from, const FieldDescriptor& field,
                          InferParameter* to) {
  const pb::Reflection& reflection = *from.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_MESSAGE: {
      std::string json;
      if (!pb::util::MessageToJsonString(reflection.GetMessage(from, &field),
                                         &json)
               .ok()) {
        return absl::InternalError("a field that has no JSON");
      }
      to->set_string_param(json);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_ENUM:
      to->set_string_param(reflection.GetEnum(from, &field)->name());
      return absl::OkStatus();
    case FieldDescriptor::CPPTYPE_INT32:
      to->set_int64_param(reflection.GetInt32(from, &field));
      return absl::OkStatus();
    case FieldDescriptor::CPPTYPE_INT64:
      to->set_int64_param(reflection.GetInt64(from, &field));
      return absl::OkStatus();
    default:
      return absl::UnimplementedError(
          absl::StrCat("--protocol: no parameter for ", field.full_name()));
  }
}

absl::StatusOr<ModelInferRequest> InferenceOf(const Case& one,
                                              const pb::Message& native) {
  ModelInferRequest request;
  request.set_model_name(ModelOf(one.rpc));
  std::vector<const FieldDescriptor*> fields;
  native.GetReflection()->ListFields(native, &fields);
  for (const FieldDescriptor* const field : fields) {
    if (field->message_type() != v1::Tensor::descriptor()) {
      RETURN_IF_ERROR(SetParameter(
          native, *field, &(*request.mutable_parameters())[field->name()]));
      continue;
    }
    const auto& tensor = static_cast<const v1::Tensor&>(
        native.GetReflection()->GetMessage(native, field));
    auto* const input = request.add_inputs();
    input->set_name(field->name());
    input->set_datatype(DatatypeOf(tensor.dtype()));
    *input->mutable_shape() = tensor.shape();
    request.add_raw_input_contents(tensor.data());
  }
  return request;
}

// Returns the tensors of the native answer, one after the other; for
// ResolveRope, its list of frequencies.
absl::StatusOr<std::string> TensorsOf(const Case& one,
                                      const std::string& answer) {
  ASSIGN_OR_RETURN(const auto native,
                   ParseMessage(one.rpc + "Response", answer));
  if (one.rpc != "ResolveRope") return TensorBytes(*native);
  const auto& numbers =
      static_cast<const v1::ResolveRopeResponse&>(*native).inv_freq();
  return std::string(reinterpret_cast<const char*>(numbers.data()),
                     static_cast<std::size_t>(numbers.size()) * sizeof(double));
}

}  // namespace

absl::Status TurnIntoInferences(const std::function<absl::StatusOr<std::string>(
                                    const Case&, const Request&)>& ask,
                                std::vector<Case>* workload) {
  for (Case& one : *workload) {
    one.method = "/inference.GRPCInferenceService/ModelInfer";
    for (Request& request : one.requests) {
      ASSIGN_OR_RETURN(
          const auto native,
          ParseMessage(one.rpc + "Request", BytesOf(request.message)));
      ASSIGN_OR_RETURN(const auto inference, InferenceOf(one, *native));
      SetMessage(inference.SerializeAsString(), &request);
      if (request.answer.empty()) continue;
      ASSIGN_OR_RETURN(const auto tensors, TensorsOf(one, request.answer));
      ASSIGN_OR_RETURN(std::string answer, ask(one, request));
      inference::ModelInferResponse response;
      if (!response.ParseFromString(answer)) {
        return absl::DataLossError(
            absl::StrCat(one.name, ": an answer that cannot be parsed"));
      }
      std::string raw;
      for (const std::string& bytes : response.raw_output_contents()) {
        raw += bytes;
      }
      if (raw != tensors) {
        return absl::DataLossError(absl::StrCat(
            one.name, ": ModelInfer's tensors differ from the native RPC's"));
      }
      request.answer = std::move(answer);
    }
  }
  return absl::OkStatus();
}

}  // namespace posenc::load
