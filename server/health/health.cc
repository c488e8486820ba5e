#include "server/health/health.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "grpc/health/v1/health.pb.h"
#include "server/call/handler.h"
#include "server/call/small_answer.h"

namespace posenc::server {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

// Returns the requested name, or nullopt if the message is malformed.
std::optional<std::string> NameOf(const std::string& message) {
  HealthCheckRequest request;
  if (!request.ParseFromString(message)) return std::nullopt;
  return std::move(*request.mutable_service());
}

std::string Answer(std::optional<bool> serving) {
  HealthCheckResponse response;
  response.set_status(!serving   ? HealthCheckResponse::SERVICE_UNKNOWN
                      : *serving ? HealthCheckResponse::SERVING
                                 : HealthCheckResponse::NOT_SERVING);
  return response.SerializeAsString();
}

absl::Status TooManyWatches(const std::string& why) {
  return core::MakeError(absl::StatusCode::kResourceExhausted,
                         core::ErrorReason::kOverloaded, "", why);
}

absl::Status NoRequest() {
  return absl::InvalidArgumentError("no HealthCheckRequest has come");
}

}  // namespace

// Health::mutex_ guards told_ and waiter_.
class Health::Watch final : public CallHandler {
 public:
  Watch(Health* health, std::uint64_t connection)
      : health_(health), connection_(connection) {}
  ~Watch() override { health_->Remove(this); }

  absl::Status Receive(RequestMessage message) override {
    name_ = NameOf(message.Joined());
    return name_ ? absl::OkStatus() : NoRequest();
  }
  absl::StatusOr<std::unique_ptr<PendingResponse>> Next(
      StopCheck /*stop*/) override {
    if (!name_ || !health_->HasNews(this, nullptr)) return nullptr;
    return std::make_unique<PendingResponse>(Answer(*told_));
  }
  bool WaitsForNews() const override { return name_.has_value(); }
  std::optional<absl::Status> AwaitNews(Waiter* waiter) override {
    if (health_->HasNews(this, waiter)) return absl::OkStatus();
    return std::nullopt;
  }
  bool StopWaiting() override { return health_->StopWaiting(this); }

 private:
  friend class Health;
  Health* const health_;
  const std::uint64_t connection_;
  std::optional<std::string> name_;  // none: no request yet
  // The state that was sent last; nullopt if no state was sent yet.
  std::optional<std::optional<bool>> told_;
  Waiter* waiter_ = nullptr;  // null: it does not wait
};

std::optional<bool> Health::Find(const std::string& name) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto at = serving_.find(name);
  if (at == serving_.end()) return std::nullopt;
  return at->second;
}

void Health::Remove(Watch* watch) {
  const std::lock_guard<std::mutex> lock(mutex_);
  watches_.erase(watch);
  const auto of_connection = by_connection_.find(watch->connection_);
  if (--of_connection->second == 0) by_connection_.erase(of_connection);
}

// If `waiter` is null, the caller sends the state next. So this function also
// stores the state as sent.
bool Health::HasNews(Watch* watch, Waiter* waiter) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto at = serving_.find(*watch->name_);
  const std::optional<bool> serving =
      at == serving_.end() ? std::nullopt : std::optional<bool>(at->second);
  if (!watch->told_ || *watch->told_ != serving) {
    if (waiter == nullptr) watch->told_ = serving;
    return true;
  }
  watch->waiter_ = waiter;
  return false;
}

bool Health::StopWaiting(Watch* watch) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(watch->waiter_, nullptr) != nullptr;
}

void Health::SetMostWatches(std::int64_t most) {
  const std::lock_guard<std::mutex> lock(mutex_);
  most_ = most;
}

absl::StatusOr<std::unique_ptr<CallHandler>> Health::StartWatch(
    std::uint64_t connection) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto made = static_cast<std::int64_t>(watches_.size());
  if (made >= most_) {
    return TooManyWatches(absl::StrCat(
        "the server has ", made, " watches already, the limit of connections ",
        "(--max-connections)"));
  }
  std::int64_t& of_connection = by_connection_[connection];
  if (of_connection >= most_of_connection_) {
    return TooManyWatches(absl::StrCat(
        "the connection has ", of_connection,
        " watches already, half of its calls (--max-concurrent-streams)"));
  }
  ++of_connection;
  auto watch = std::make_unique<Watch>(this, connection);
  watches_.insert(watch.get());
  return watch;
}

void Health::Set(const std::string& name, bool serving) {
  const std::lock_guard<std::mutex> lock(mutex_);
  serving_[name] = serving;
  for (Watch* const watch : watches_) {
    if (watch->waiter_ == nullptr || *watch->name_ != name) continue;
    std::exchange(watch->waiter_, nullptr)->Resume(absl::OkStatus());
  }
}

std::vector<Method> Health::Methods() {
  const auto check =
      [this](const std::string& message) -> absl::StatusOr<std::string> {
    const std::optional<std::string> name = NameOf(message);
    if (!name) return NoRequest();
    const std::optional<bool> serving = Find(*name);
    if (!serving) return absl::NotFoundError("service name unknown");
    return Answer(serving);
  };
  Method method;
  method.service = "grpc.health.v1.Health";
  method.name = "Check";
  method.start = [check](const MethodContext& /*context*/) {
    return std::make_unique<SmallAnswer>(check);
  };
  method.exempt = true;
  method.needs_token = method.observed = false;
  Method watch = method;
  watch.name = "Watch";
  watch.stream = true;
  watch.start = [this](const MethodContext& context) {
    return StartWatch(context.call->peer_id());
  };
  return {method, watch};
}

}  // namespace posenc::server
