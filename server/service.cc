#include "server/service.h"

#include <chrono>
#include <new>
#include <stdexcept>
#include <string>

#include "core/error.h"
#include "core/model/presets.h"
#include "core/simd/dispatch.h"
#include "server/calls/call.h"
#include "server/calls/positions.h"
#include "server/calls/relative.h"
#include "server/calls/rope.h"
#include "server/server.h"
#include "server/status.h"
#include "server/unknown_fields.h"

namespace posenc::server {

const char kVersion[] = POSENC_VERSION;

namespace {

// Whether the caller still waits.
absl::Status Waiting(const grpc::ServerContext& context) {
  if (context.deadline() <= std::chrono::system_clock::now()) {
    return absl::DeadlineExceededError("the call's deadline has passed");
  }
  if (context.IsCancelled()) return absl::CancelledError("the caller is gone");
  return absl::OkStatus();
}

}  // namespace

template <typename Handler>
grpc::Status Service::Checked(const google::protobuf::Message& request,
                              Handler handler) {
  const auto answer = [&]() -> absl::Status {
    if (draining_.load()) {
      return core::MakeError(absl::StatusCode::kUnavailable,
                             core::ErrorReason::kDraining, "",
                             "the server is draining; retry elsewhere");
    }
    absl::Status status =
        CheckRequest(request.ByteSizeLong(), max_request_bytes_);
    if (status.ok()) status = RefuseUnknown(request);
    return status.ok() ? handler() : status;
  };
  try {
    return ToGrpcStatus(answer());
  } catch (const std::bad_alloc&) {
    return ToGrpcStatus(OutOfMemory());
  } catch (const std::length_error&) {  // more than a container can hold
    return ToGrpcStatus(OutOfMemory());
  }
}

template <typename Response, typename Handler>
grpc::Status Service::Answer(const google::protobuf::Message& request,
                             Response* response, Handler handler) {
  return Checked(request, [&]() -> absl::Status {
    const absl::Status status = handler();
    if (!status.ok()) return status;
    return CheckResponse(response->ByteSizeLong(), max_response_bytes_);
  });
}

template <typename Response, typename Prepare>
grpc::Status Service::AnswerTensors(grpc::ServerContext* context,
                                    const google::protobuf::Message& request,
                                    Response* response, Prepare prepare) {
  return Answer(request, response, [&] {
    return AnswerWithTensors(
        prepare(), max_response_bytes_, [context] { return Waiting(*context); },
        response);
  });
}

grpc::Status Service::GetServerInfo(grpc::ServerContext*,
                                    const v1::GetServerInfoRequest* request,
                                    v1::GetServerInfoResponse* response) {
  return Answer(*request, response, [&] {
    response->set_version(kVersion);
    response->set_instruction_set(simd::ActiveKernels().name);
    v1::Limits* const limits = response->mutable_limits();
    limits->set_max_request_bytes(max_request_bytes_);
    limits->set_max_response_bytes(max_response_bytes_);
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
  });
}

grpc::Status Service::ResolveRope(grpc::ServerContext*,
                                  const v1::ResolveRopeRequest* request,
                                  v1::ResolveRopeResponse* response) {
  return Answer(*request, response,
                [&] { return AnswerResolveRope(*request, response); });
}

grpc::Status Service::BuildBias(
    grpc::ServerContext* context, const v1::BuildBiasRequest* request,
    grpc::ServerWriter<v1::BuildBiasResponse>* writer) {
  return Checked(*request, [&] {
    return AnswerBuildBias(
        *request, max_response_bytes_, [context] { return Waiting(*context); },
        [writer](const v1::BuildBiasResponse& tile) {
          return writer->Write(tile);
        });
  });
}

grpc::Status Service::BuildPositions(grpc::ServerContext*,
                                     const v1::BuildPositionsRequest* request,
                                     v1::BuildPositionsResponse* response) {
  return Answer(*request, response, [&] {
    return AnswerBuildPositions(*request, max_response_bytes_, response);
  });
}

grpc::Status Service::ConvertPairing(grpc::ServerContext* context,
                                     const v1::ConvertPairingRequest* request,
                                     v1::ConvertPairingResponse* response) {
  return AnswerTensors(context, *request, response,
                       [&] { return PrepareConvertPairing(*request); });
}

grpc::Status Service::AnalyzeRope(grpc::ServerContext*,
                                  const v1::AnalyzeRopeRequest* request,
                                  v1::AnalyzeRopeResponse* response) {
  return Answer(*request, response,
                [&] { return AnswerAnalyzeRope(*request, response); });
}

}  // namespace posenc::server
