#include "server/kserve/metadata.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "server/kserve/datatypes.h"

namespace posenc::server {
namespace {

// The usual one.
absl::string_view DatatypeOf(const ModelTensor& tensor) {
  return tensor.datatypes.substr(0, tensor.datatypes.find(','));
}

void Tell(const ModelTensor& tensor,
          inference::ModelMetadataResponse::TensorMetadata* to) {
  to->set_name(std::string(tensor.name));
  to->set_datatype(std::string(DatatypeOf(tensor)));
  for (int i = 0; i < tensor.rank; ++i) to->add_shape(-1);
}

template <typename ConfigTensor>
void Configure(const ModelTensor& tensor, ConfigTensor* to) {
  to->set_name(std::string(tensor.name));
  to->set_data_type(ConfigTypeOf(DatatypeOf(tensor)));
  for (int i = 0; i < tensor.rank; ++i) to->add_dims(-1);
}

}  // namespace

inference::ModelMetadataResponse MetadataOf(const Model& model) {
  inference::ModelMetadataResponse metadata;
  metadata.set_name(std::string(model.name));
  metadata.add_versions(std::string(kModelVersion));
  metadata.set_platform(std::string(kModelPlatform));
  const auto describe = [&metadata](const ModelTensor& tensor) {
    (*metadata.mutable_properties())[absl::StrCat(tensor.name, ".datatypes")] =
        std::string(tensor.datatypes);
  };
  for (const ModelInput& input : model.inputs) {
    Tell(input, metadata.add_inputs());
    describe(input);
  }
  for (const ModelOutput& output : model.outputs) {
    if (!output.listed) continue;
    Tell(output, metadata.add_outputs());
    describe(output);
  }
  return metadata;
}

inference::ModelConfig ConfigOf(const Model& model) {
  inference::ModelConfig config;
  config.set_name(std::string(model.name));
  config.set_platform(std::string(kModelPlatform));
  config.set_backend(std::string(kModelPlatform));
  for (const ModelInput& input : model.inputs) {
    inference::ModelInput* const to = config.add_input();
    Configure(input, to);
    to->set_optional(input.optional);
  }
  for (const ModelOutput& output : model.outputs) {
    if (output.listed) Configure(output, config.add_output());
  }
  config.mutable_model_transaction_policy()->set_decoupled(false);
  return config;
}

}  // namespace posenc::server
