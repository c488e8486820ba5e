// The RPCs: each checks for unknown fields, then does what calls/ has for it.
// No state but the drain flag.

#pragma once

#include <atomic>
#include <cstdint>

#include "google/protobuf/message.h"
#include "posenc/v1/service.grpc.pb.h"

namespace posenc::server {

// Their RPCs go to the generic service: see wire/bulk_service.h.
using BulkElsewhere = v1::PositionalEncodingService::WithGenericMethod_ApplyRope<
    v1::PositionalEncodingService::WithGenericMethod_ApplyRopeStream<
        v1::PositionalEncodingService::WithGenericMethod_Reposition<
            v1::PositionalEncodingService::WithGenericMethod_RepositionStream<
                v1::PositionalEncodingService::WithGenericMethod_AddEncoding<
                    v1::PositionalEncodingService::WithGenericMethod_BuildTable<
                        v1::PositionalEncodingService::
                            WithGenericMethod_BuildTableStream<
                                v1::PositionalEncodingService::
                                    WithGenericMethod_ScoreRelative<
                                        v1::PositionalEncodingService::
                                            Service>>>>>>>>;

class Service final : public BulkElsewhere {
 public:
  Service(std::int64_t max_request_bytes, std::int64_t max_response_bytes)
      : max_request_bytes_(max_request_bytes),
        max_response_bytes_(max_response_bytes) {}

  // From now on calls get UNAVAILABLE, kDraining.
  void StartDraining() { draining_.store(true); }

  grpc::Status GetServerInfo(grpc::ServerContext* context,
                             const v1::GetServerInfoRequest* request,
                             v1::GetServerInfoResponse* response) override;
  grpc::Status ResolveRope(grpc::ServerContext* context,
                           const v1::ResolveRopeRequest* request,
                           v1::ResolveRopeResponse* response) override;

  grpc::Status BuildBias(
      grpc::ServerContext* context, const v1::BuildBiasRequest* request,
      grpc::ServerWriter<v1::BuildBiasResponse>* writer) override;
  grpc::Status BuildPositions(grpc::ServerContext* context,
                              const v1::BuildPositionsRequest* request,
                              v1::BuildPositionsResponse* response) override;
  grpc::Status ConvertPairing(grpc::ServerContext* context,
                              const v1::ConvertPairingRequest* request,
                              v1::ConvertPairingResponse* response) override;
  grpc::Status AnalyzeRope(grpc::ServerContext* context,
                           const v1::AnalyzeRopeRequest* request,
                           v1::AnalyzeRopeResponse* response) override;

 private:
  // handler() after the checks that every request gets.
  template <typename Handler>
  grpc::Status Checked(const google::protobuf::Message& request,
                       Handler handler);
  // The same, with a check of the response's size after it.
  template <typename Response, typename Handler>
  grpc::Status Answer(const google::protobuf::Message& request,
                      Response* response, Handler handler);
  // prepare(): a TensorCall.
  template <typename Response, typename Prepare>
  grpc::Status AnswerTensors(grpc::ServerContext* context,
                             const google::protobuf::Message& request,
                             Response* response, Prepare prepare);

  const std::int64_t max_request_bytes_;
  const std::int64_t max_response_bytes_;
  std::atomic<bool> draining_{false};
};

}  // namespace posenc::server
