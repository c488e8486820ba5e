// GetServerInfo returns version, instruction set, limits, presets and dtypes.

#include <string>

#include "core/interpretation/presets.h"
#include "core/rope/frequencies.h"
#include "core/simd/dispatch.h"
#include "posenc/v1/service.pb.h"
#include "server/base/version.h"
#include "server/methods/methods.h"
#include "server/methods/shared_tensors.h"

namespace posenc::server {

absl::Status AnswerGetServerInfo(const v1::GetServerInfoRequest& /*request*/,
                                 const MethodContext& context,
                                 StopCheck /*stop*/,
                                 v1::GetServerInfoResponse* response) {
  response->set_version(kVersion);
  response->set_instruction_set(simd::ActiveKernels().name);
  v1::Limits* const limits = response->mutable_limits();
  limits->set_max_request_bytes(context.limits->max_request_bytes);
  limits->set_max_response_bytes(context.limits->max_response_bytes);
  limits->set_max_rotary_dim(core::kMaxRotaryDim);
  limits->set_stream_chunk_bytes(kStreamChunkBytes);
  if (SharedTensors::CheckAllowed(context.sharing).ok()) {
    const SharedFiles& files = *context.sharing.files;
    v1::SharedMemoryInfo* const shared = response->mutable_shared_memory();
    shared->set_directory(files.directory());
    shared->set_prefix(files.prefix());
    shared->set_max_bytes(files.max_bytes());
  }
  for (const core::interpretation::Preset& preset :
       core::interpretation::Presets()) {
    response->add_presets(std::string(preset.name));
  }
  for (const v1::Dtype dtype :
       {v1::DTYPE_FLOAT32, v1::DTYPE_FLOAT16, v1::DTYPE_BFLOAT16,
        v1::DTYPE_FLOAT64, v1::DTYPE_FLOAT8_E4M3FN, v1::DTYPE_FLOAT8_E5M2,
        v1::DTYPE_INT8}) {
    response->add_tensor_dtypes(dtype);
  }
  return absl::OkStatus();
}

}  // namespace posenc::server
