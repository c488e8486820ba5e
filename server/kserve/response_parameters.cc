#include "server/kserve/response_parameters.h"

#include <vector>

#include "server/kserve/json.h"

namespace posenc::server {
namespace {

namespace pb = google::protobuf;
using pb::FieldDescriptor;

void Set(const pb::Message& response, const FieldDescriptor& field,
         inference::InferParameter* parameter) {
  const pb::Reflection& from = *response.GetReflection();
  if (field.is_repeated()) {
    return parameter->set_string_param(WriteJson(response, field));
  }
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return parameter->set_bool_param(from.GetBool(response, &field));
    case FieldDescriptor::CPPTYPE_INT32:
      return parameter->set_int64_param(from.GetInt32(response, &field));
    case FieldDescriptor::CPPTYPE_INT64:
      return parameter->set_int64_param(from.GetInt64(response, &field));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return parameter->set_double_param(from.GetDouble(response, &field));
    case FieldDescriptor::CPPTYPE_STRING:
      return parameter->set_string_param(from.GetString(response, &field));
    default:
      return parameter->set_string_param(WriteJson(response, field));
  }
}

}  // namespace

void AddParameters(
    const pb::Message& response,
    pb::Map<std::string, inference::InferParameter>* parameters) {
  std::vector<const FieldDescriptor*> fields;
  response.GetReflection()->ListFields(response, &fields);
  for (const FieldDescriptor* const field : fields) {
    Set(response, *field, &(*parameters)[field->name()]);
  }
}

}  // namespace posenc::server
