#include "server/calls/server_info.h"

#include <string>

#include "core/model/presets.h"
#include "core/rope/frequencies.h"
#include "core/simd/dispatch.h"
#include "server/calls/call.h"
#include "server/server.h"

namespace posenc::server {

const char kVersion[] = POSENC_VERSION;

absl::Status AnswerGetServerInfo(std::int64_t max_request_bytes,
                                 std::int64_t max_response_bytes,
                                 v1::GetServerInfoResponse* response) {
  response->set_version(kVersion);
  response->set_instruction_set(simd::ActiveKernels().name);
  v1::Limits* const limits = response->mutable_limits();
  limits->set_max_request_bytes(max_request_bytes);
  limits->set_max_response_bytes(max_response_bytes);
  limits->set_max_rotary_dim(core::kMaxRotaryDim);
  limits->set_stream_chunk_bytes(kStreamChunkBytes);
  for (const core::Preset& preset : core::Presets()) {
    response->add_presets(std::string(preset.name));
  }
  for (const v1::Dtype dtype : {v1::DTYPE_FLOAT32, v1::DTYPE_FLOAT16,
                                v1::DTYPE_BFLOAT16, v1::DTYPE_FLOAT64}) {
    response->add_tensor_dtypes(dtype);
  }
  return absl::OkStatus();
}

}  // namespace posenc::server
