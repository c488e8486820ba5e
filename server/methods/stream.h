#include "server/wire/stream_sessions.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/error.h"
#include "posenc/v1/service.pb.h"
#include "server/calls/relative.h"
#include "server/calls/rope.h"
#include "server/calls/table.h"
#include "server/wire/parsed.h"

namespace posenc::server {
namespace {

// Settings in the first message, tensors in any. The messages of a stream are
// numbered like those of the unary call.
template <typename Request>
class StreamSession : public Session {
 public:
  absl::Status Receive(RequestMessage message) final {
    absl::StatusOr<std::shared_ptr<Parsed<Request>>> parsed =
        Parse<Request>(std::move(message), fields_);
    if (!parsed.ok()) return parsed.status();
    Request* const request = &(*parsed)->request;
    if (!settings_) {
      settings_.emplace();
      CopySettings(*request, &*settings_);
    } else {
      const absl::Status none = RefuseSettings(*request);
      if (!none.ok()) return none;
      CopySettings(*settings_, request);
    }
    empty_ = !HasTensor(*request);
    if (empty_) {
      const absl::Status good = Check(*request);
      if (!good.ok()) return good;
    }
    parsed_ = *std::move(parsed);
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<PlannedResponse>> Next() final {
    if (parsed_ == nullptr) return nullptr;
    auto parsed = std::exchange(parsed_, nullptr);
    if (empty_) return ReadyResponse("");
    absl::StatusOr<TensorCall> call =
        Prepare(parsed->request, parsed->Taken(fields_));
    return Plan(std::move(call), std::move(parsed), "", options_);
  }

 protected:
  StreamSession(const SessionOptions& options, absl::Span<const int> fields)
      : options_(options), fields_(fields) {}

  static absl::Status NotFirst(absl::string_view field) {
    return core::FieldInvalid(
        field,
        "given again; the settings of a stream are in its first message only");
  }

  virtual void CopySettings(const Request& from, Request* to) = 0;
  virtual absl::Status RefuseSettings(const Request& request) = 0;
  virtual bool HasTensor(const Request& request) = 0;
  // A message without tensors.
  virtual absl::Status Check(const Request& request) = 0;
  virtual absl::StatusOr<TensorCall> Prepare(const Request& request,
                                             const TakenTensors& taken) = 0;

  const SessionOptions options_;

 private:
  const absl::Span<const int> fields_;
  std::optional<Request> settings_;
  std::shared_ptr<const Parsed<Request>> parsed_;
  bool empty_ = false;
};

class ApplyRopeStreamSession final
    : public StreamSession<v1::ApplyRopeRequest> {
 public:
  using Request = v1::ApplyRopeRequest;

  explicit ApplyRopeStreamSession(const SessionOptions& options)
      : StreamSession(options, kFields) {}

 private:
  static constexpr int kFields[] = {14, 15};

  void CopySettings(const Request& from, Request* to) override {
    if (from.has_rope()) *to->mutable_rope() = from.rope();
    to->set_layout(from.layout());
    to->set_direction(from.direction());
    if (from.has_query_scale()) {
      *to->mutable_query_scale() = from.query_scale();
    }
  }
  absl::Status RefuseSettings(const Request& request) override {
    if (request.has_rope()) return NotFirst("rope");
    if (request.layout() != v1::LAYOUT_UNSPECIFIED) return NotFirst("layout");
    if (request.direction() != v1::DIRECTION_UNSPECIFIED) {
      return NotFirst("direction");
    }
    if (request.has_query_scale()) return NotFirst("query_scale");
    return absl::OkStatus();
  }
  bool HasTensor(const Request& request) override {
    return request.has_q() || request.has_k();
  }
  absl::Status Check(const Request& request) override {
    return CheckApplyRopeSettings(request);
  }
  absl::StatusOr<TensorCall> Prepare(const Request& request,
                                     const TakenTensors& taken) override {
    return PrepareApplyRope(request, taken, options_.cache);
  }
};

class RepositionStreamSession final
    : public StreamSession<v1::RepositionRequest> {
 public:
  using Request = v1::RepositionRequest;

  explicit RepositionStreamSession(const SessionOptions& options)
      : StreamSession(options, kFields) {}

 private:
  static constexpr int kFields[] = {15};

  void CopySettings(const Request& from, Request* to) override {
    if (from.has_old_rope()) *to->mutable_old_rope() = from.old_rope();
    if (from.has_new_rope()) *to->mutable_new_rope() = from.new_rope();
    to->set_layout(from.layout());
  }
  absl::Status RefuseSettings(const Request& request) override {
    if (request.has_old_rope()) return NotFirst("old_rope");
    if (request.has_new_rope()) return NotFirst("new_rope");
    if (request.layout() != v1::LAYOUT_UNSPECIFIED) return NotFirst("layout");
    return absl::OkStatus();
  }
  bool HasTensor(const Request& request) override { return request.has_k(); }
  absl::Status Check(const Request& request) override {
    return CheckRepositionSettings(request);
  }
  absl::StatusOr<TensorCall> Prepare(const Request& request,
                                     const TakenTensors& taken) override {
    return PrepareReposition(request, taken, options_.cache);
  }
};

// One message in, the table's rows out.
class BuildTableStreamSession final : public Session {
 public:
  explicit BuildTableStreamSession(const SessionOptions& options)
      : options_(options) {}

  absl::Status Receive(RequestMessage message) override {
    if (plan_ != nullptr) {
      return core::FieldInvalid("table", "given twice; one table a call");
    }
    const auto parsed =
        Parse<v1::BuildTableStreamRequest>(std::move(message), {});
    if (!parsed.ok()) return parsed.status();
    const v1::BuildTableStreamRequest& request = (*parsed)->request;
    if (!request.has_table()) {
      return core::FieldRequired("table", "not given");
    }
    if (request.rows_per_message() < 0) {
      return core::FieldInvalid("rows_per_message",
                                absl::StrCat(request.rows_per_message(),
                                             "; must be positive, or unset"));
    }
    // One row at a time fits, or nothing does.
    absl::StatusOr<std::shared_ptr<const TablePlan>> plan =
        TablePlan::Read(request.table(), options_.max_response_bytes,
                        std::max<std::int64_t>(1, request.rows_per_message()));
    if (!plan.ok()) return core::Prefixed("table", plan.status());
    request_ = *parsed;
    plan_ = *std::move(plan);
    rows_ = request.rows_per_message();
    if (rows_ == 0) {
      absl::uint128 row = 0;
      for (const OutputTensor& output : plan_->Outputs(1)) {
        row += TensorFieldBytes(output.dtype, output.shape, output.form);
      }
      const std::int64_t bytes =
          std::min(kStreamChunkBytes, options_.max_response_bytes - 64);
      rows_ = std::max<std::int64_t>(
          1, bytes / static_cast<std::int64_t>(absl::Uint128Low64(row)));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<PlannedResponse>> Next() override {
    // A table without rows is one message too.
    if (plan_ == nullptr || (first_ > 0 && first_ >= plan_->rows()) || done_) {
      return nullptr;
    }
    const std::int64_t n = std::min(rows_, plan_->rows() - first_);
    v1::BuildTableStreamResponse response;
    if (plan_->rotary()) response.set_amplitude(plan_->amplitude());
    response.set_first_row(first_);
    absl::StatusOr<std::unique_ptr<PlannedResponse>> planned =
        PlanResponse(plan_->Call(first_, n), request_, nullptr,
                     response.SerializeAsString(), options_.max_response_bytes);
    if (!planned.ok()) return planned.status();
    first_ += n;
    done_ = n == 0;
    return planned;
  }

 private:
  const SessionOptions options_;
  std::shared_ptr<const Parsed<v1::BuildTableStreamRequest>> request_;
  std::shared_ptr<const TablePlan> plan_;  // borrows the request
  std::int64_t rows_ = 0;
  std::int64_t first_ = 0;
  bool done_ = false;
};

// One message in, the matrix' tiles out.
class BuildBiasSession final : public Session {
 public:
  explicit BuildBiasSession(const SessionOptions& options)
      : options_(options) {}

  absl::Status Receive(RequestMessage message) override {
    if (plan_ != nullptr) {
      return core::FieldInvalid("bias", "given twice; one matrix a call");
    }
    auto parsed = Parse<v1::BuildBiasRequest>(std::move(message), {});
    if (!parsed.ok()) return parsed.status();
    absl::StatusOr<std::shared_ptr<const BiasPlan>> plan =
        BiasPlan::Read((*parsed)->request, options_.max_response_bytes);
    if (!plan.ok()) return plan.status();
    request_ = *std::move(parsed);
    plan_ = *std::move(plan);
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<PlannedResponse>> Next() override {
    if (plan_ == nullptr) return nullptr;
    const std::optional<core::BiasRange> tile = plan_->Next(&place_);
    if (!tile) return nullptr;
    v1::BuildBiasResponse response;
    response.set_query_start(tile->query_start);
    response.set_key_start(tile->key_start);
    return PlanResponse(plan_->Call(*tile), request_, nullptr,
                        response.SerializeAsString(),
                        options_.max_response_bytes);
  }

 private:
  const SessionOptions options_;
  std::shared_ptr<const Parsed<v1::BuildBiasRequest>> request_;
  std::shared_ptr<const BiasPlan> plan_;  // borrows the request
  BiasPlan::Place place_;
};

}  // namespace

std::unique_ptr<Session> StartApplyRopeStream(const SessionOptions& options) {
  return std::make_unique<ApplyRopeStreamSession>(options);
}
std::unique_ptr<Session> StartRepositionStream(const SessionOptions& options) {
  return std::make_unique<RepositionStreamSession>(options);
}
std::unique_ptr<Session> StartBuildTableStream(const SessionOptions& options) {
  return std::make_unique<BuildTableStreamSession>(options);
}
std::unique_ptr<Session> StartBuildBias(const SessionOptions& options) {
  return std::make_unique<BuildBiasSession>(options);
}

}  // namespace posenc::server
