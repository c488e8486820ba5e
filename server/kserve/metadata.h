// What the service tells of models: ModelMetadata and ModelConfig.

#pragma once

#include "inference/inference.pb.h"
#include "server/kserve/models.h"

namespace posenc::server {

inference::ModelMetadataResponse MetadataOf(const Model& model);
inference::ModelConfig ConfigOf(const Model& model);

}  // namespace posenc::server
