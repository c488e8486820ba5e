#include "server/wire/sessions.h"

#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>

#include "core/rope/analyze.h"
#include "posenc/v1/service.pb.h"
#include "server/calls/positions.h"
#include "server/calls/relative.h"
#include "server/calls/rope.h"
#include "server/calls/server_info.h"
#include "server/calls/table.h"
#include "server/wire/parsed.h"
#include "server/wire/stream_sessions.h"

namespace posenc::server {
namespace {

// One message in, one out.
template <typename Request>
class UnarySession : public Session {
 public:
  absl::Status Receive(RequestMessage message) final {
    absl::StatusOr<std::shared_ptr<Parsed<Request>>> parsed =
        Parse<Request>(std::move(message), fields_);
    if (!parsed.ok()) return parsed.status();
    parsed_ = *std::move(parsed);
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<PlannedResponse>> Next() final {
    if (parsed_ == nullptr) return nullptr;
    auto parsed = std::exchange(parsed_, nullptr);
    std::string fields;
    absl::StatusOr<TensorCall> call =
        Prepare(parsed->request, parsed->Taken(fields_), &fields);
    return Plan(std::move(call), std::move(parsed), std::move(fields),
                options_);
  }

 protected:
  UnarySession(const SessionOptions& options, absl::Span<const int> fields)
      : options_(options), fields_(fields) {}

  virtual absl::StatusOr<TensorCall> Prepare(const Request& request,
                                             const TakenTensors& taken,
                                             std::string* fields) = 0;

  const SessionOptions options_;

 private:
  const absl::Span<const int> fields_;
  std::shared_ptr<const Parsed<Request>> parsed_;
};

// A call whose tensor fields, by number, are borrowed. `prepare` takes the
// cache of resolved encodings too, where its call needs one.
template <typename Request, auto prepare, int... fields>
class TensorSession final : public UnarySession<Request> {
 public:
  explicit TensorSession(const SessionOptions& options)
      : UnarySession<Request>(options, kFields) {}

 private:
  static constexpr int kFields[] = {fields...};

  absl::StatusOr<TensorCall> Prepare(const Request& request,
                                     const TakenTensors& taken,
                                     std::string*) override {
    if constexpr (std::is_invocable_v<decltype(prepare), const Request&,
                                      const TakenTensors&, RopeCache*>) {
      return prepare(request, taken, this->options_.cache);
    } else {
      return prepare(request, taken);
    }
  }
};

using ApplyRopeSession =
    TensorSession<v1::ApplyRopeRequest, PrepareApplyRope, 14, 15>;
using RepositionSession =
    TensorSession<v1::RepositionRequest, PrepareReposition, 15>;
using AddEncodingSession =
    TensorSession<v1::AddEncodingRequest, PrepareAddEncoding, 15>;
using ScoreRelativeSession =
    TensorSession<v1::ScoreRelativeRequest, PrepareScoreRelative, 14, 15>;

using ConvertPairingSession =
    TensorSession<v1::ConvertPairingRequest, PrepareConvertPairing, 15>;

// A call whose response has other fields too, which `prepare` sets.
template <typename Request, typename Response, auto prepare>
class FieldsSession final : public UnarySession<Request> {
 public:
  explicit FieldsSession(const SessionOptions& options)
      : UnarySession<Request>(options, {}) {}

 private:
  absl::StatusOr<TensorCall> Prepare(const Request& request,
                                     const TakenTensors&,
                                     std::string* fields) override {
    Response response;
    absl::StatusOr<TensorCall> call;
    if constexpr (std::is_invocable_v<decltype(prepare), const Request&,
                                      std::int64_t, Response*>) {
      call = prepare(request, this->options_.max_response_bytes, &response);
    } else {
      call = prepare(request, &response);
    }
    *fields = response.SerializeAsString();
    return call;
  }
};

using BuildTableSession =
    FieldsSession<v1::BuildTableRequest, v1::BuildTableResponse,
                  PrepareBuildTable>;
using BuildPositionsSession =
    FieldsSession<v1::BuildPositionsRequest, v1::BuildPositionsResponse,
                  PrepareBuildPositions>;

// How long a small answer takes, in bytes that could be moved meanwhile.
template <typename Request>
std::size_t Work(const Request& /*request*/) {
  return 0;
}
std::size_t Work(const v1::AnalyzeRopeRequest& request) {
  // Sines and cosines of about 64 pairs.
  constexpr std::int64_t kBytesPerDistance = 1024;
  const std::int64_t step = std::max<std::int64_t>(1, request.distance_step());
  return kBytesPerDistance *
         std::clamp<std::int64_t>(request.max_distance() / step, 0,
                                  core::kMaxDistances);
}

// A small message in, a small message out.
template <typename Request, typename Response, auto answer>
class MessageSession final : public Session {
 public:
  explicit MessageSession(const SessionOptions& options) : options_(options) {}

  absl::Status Receive(RequestMessage message) override {
    absl::StatusOr<std::shared_ptr<Parsed<Request>>> parsed =
        Parse<Request>(std::move(message), {});
    if (!parsed.ok()) return parsed.status();
    parsed_ = *std::move(parsed);
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<PlannedResponse>> Next() override {
    if (parsed_ == nullptr) return nullptr;
    return std::make_unique<Answer>(std::exchange(parsed_, nullptr), options_);
  }

 private:
  class Answer final : public PlannedResponse {
   public:
    Answer(std::shared_ptr<const Parsed<Request>> parsed,
           const SessionOptions& options)
        : parsed_(std::move(parsed)), options_(options) {
      tiles_ = 1;
      work_bytes_ = Work(parsed_->request);
    }
    absl::Status Run(std::int64_t /*tile*/, StopCheck stop) override {
      absl::Status status =
          answer(parsed_->request, options_, stop, &response_);
      if (!status.ok()) return status;
      return CheckResponse(response_.ByteSizeLong(),
                           options_.max_response_bytes);
    }
    void Finish(grpc::ByteBuffer* response) override {
      const grpc::Slice slice(response_.SerializeAsString());
      grpc::ByteBuffer(&slice, 1).Swap(response);
    }

   private:
    const std::shared_ptr<const Parsed<Request>> parsed_;
    const SessionOptions options_;
    Response response_;
  };

  const SessionOptions options_;
  std::shared_ptr<const Parsed<Request>> parsed_;
};

absl::Status ServerInfo(const v1::GetServerInfoRequest&,
                        const SessionOptions& options, StopCheck,
                        v1::GetServerInfoResponse* response) {
  return AnswerGetServerInfo(options.max_request_bytes,
                             options.max_response_bytes, response);
}
absl::Status Resolve(const v1::ResolveRopeRequest& request,
                     const SessionOptions&, StopCheck,
                     v1::ResolveRopeResponse* response) {
  return AnswerResolveRope(request, response);
}
absl::Status Analyze(const v1::AnalyzeRopeRequest& request,
                     const SessionOptions&, StopCheck stop,
                     v1::AnalyzeRopeResponse* response) {
  return AnswerAnalyzeRope(request, stop, response);
}

using GetServerInfoSession =
    MessageSession<v1::GetServerInfoRequest, v1::GetServerInfoResponse,
                   ServerInfo>;
using ResolveRopeSession =
    MessageSession<v1::ResolveRopeRequest, v1::ResolveRopeResponse, Resolve>;
using AnalyzeRopeSession =
    MessageSession<v1::AnalyzeRopeRequest, v1::AnalyzeRopeResponse, Analyze>;

template <typename Kind>
std::unique_ptr<Session> Start(const SessionOptions& options) {
  return std::make_unique<Kind>(options);
}

constexpr Method kMethods[] = {
    {"GetServerInfo", false, Start<GetServerInfoSession>},
    {"ResolveRope", false, Start<ResolveRopeSession>},
    {"BuildTable", false, Start<BuildTableSession>},
    {"BuildTableStream", true, StartBuildTableStream},
    {"BuildBias", true, StartBuildBias},
    {"BuildPositions", false, Start<BuildPositionsSession>},
    {"ApplyRope", false, Start<ApplyRopeSession>},
    {"ApplyRopeStream", true, StartApplyRopeStream},
    {"Reposition", false, Start<RepositionSession>},
    {"RepositionStream", true, StartRepositionStream},
    {"AddEncoding", false, Start<AddEncodingSession>},
    {"ScoreRelative", false, Start<ScoreRelativeSession>},
    {"ConvertPairing", false, Start<ConvertPairingSession>},
    {"AnalyzeRope", false, Start<AnalyzeRopeSession>},
};

}  // namespace

const Method* FindMethod(absl::string_view name) {
  for (const Method& method : kMethods) {
    if (method.name == name) return &method;
  }
  return nullptr;
}

}  // namespace posenc::server
