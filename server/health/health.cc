#include "server/health/health.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/error.h"
#include "grpc/health/v1/health.pb.h"

namespace posenc::server {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

// The name that is asked for; none if the message is no request.
std::optional<std::string> NameOf(absl::string_view message) {
  HealthCheckRequest request;
  if (!request.ParseFromArray(message.data(),
                              static_cast<int>(message.size()))) {
    return std::nullopt;
  }
  return std::move(*request.mutable_service());
}

HealthCheckResponse Answer(std::optional<bool> serving) {
  HealthCheckResponse response;
  response.set_status(!serving   ? HealthCheckResponse::SERVICE_UNKNOWN
                      : *serving ? HealthCheckResponse::SERVING
                                 : HealthCheckResponse::NOT_SERVING);
  return response;
}

absl::Status TooManyWatches(const std::string& why) {
  return core::MakeError(absl::StatusCode::kResourceExhausted,
                         core::ErrorReason::kOverloaded, "", why);
}

absl::Status NoRequest() {
  return absl::InvalidArgumentError("no HealthCheckRequest has come");
}

}  // namespace

class Health::CheckCall final : public SmallCall {
 public:
  explicit CheckCall(const Health* health) : health_(health) {}

 private:
  void OnMessage(absl::string_view message) override {
    const std::optional<std::string> name = NameOf(message);
    if (!name) return End(NoRequest());
    const std::optional<bool> serving = health_->Find(*name);
    if (!serving) return End(absl::NotFoundError("service name unknown"));
    WriteLast(Answer(serving));
  }
  void OnWritten(bool /*taken*/) override {}  // WriteLast() alone is used
  void OnLastMessage() override { End(NoRequest()); }

  const Health* const health_;
};

// Under the lock: writing_, while an answer is under way; what has changed
// meanwhile is told after it. ended_, once End() is decided on. The call ends
// when no answer is under way.
class Health::WatchCall final : public SmallCall {
 public:
  WatchCall(Health* health, std::uint64_t connection)
      : health_(health), connection_(connection) {}

  // Tells what the name is, if that was not the last thing told.
  void Tell() {
    std::optional<bool> serving;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!name_ || writing_ || ended_) return;
      serving = health_->Find(*name_);
      if (told_ && *told_ == serving) return;
      told_ = serving;
      writing_ = true;
    }
    Write(Answer(serving));
  }

 private:
  void OnMessage(absl::string_view message) override {
    std::optional<std::string> name = NameOf(message);
    if (!name) return End(NoRequest());
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      name_ = std::move(name);
    }
    health_->Add(this);
    Tell();
  }
  void OnWritten(bool taken) override {
    bool end = false;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      writing_ = false;
      end = ended_ = ended_ || cancelled_ || !taken;
    }
    if (end) return End(absl::CancelledError("cancelled"));
    Tell();
  }
  void OnLastMessage() override { End(NoRequest()); }
  void OnCancel() override {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      cancelled_ = true;
      // Whoever reads or writes ends the call.
      if (!name_ || writing_ || ended_) return;
      ended_ = true;
    }
    End(absl::CancelledError("cancelled"));
  }
  void OnEnd() override { health_->Remove(this, connection_); }

  Health* const health_;
  const std::uint64_t connection_;
  std::mutex mutex_;
  std::optional<std::string> name_;          // none: the request has not come
  std::optional<std::optional<bool>> told_;  // none: nothing yet
  bool writing_ = false, cancelled_ = false, ended_ = false;
};

std::optional<bool> Health::Find(const std::string& name) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto at = serving_.find(name);
  if (at == serving_.end()) return std::nullopt;
  return at->second;
}

void Health::Add(WatchCall* watch) {
  const std::lock_guard<std::mutex> lock(mutex_);
  watches_.insert(watch);
}

void Health::Remove(WatchCall* watch, std::uint64_t connection) {
  const std::lock_guard<std::mutex> lock(mutex_);
  watches_.erase(watch);
  --made_;
  const auto of_connection = made_by_.find(connection);
  if (--of_connection->second == 0) made_by_.erase(of_connection);
}

void Health::SetMostWatches(std::int64_t most) {
  const std::lock_guard<std::mutex> lock(mutex_);
  most_ = most;
}

absl::StatusOr<std::shared_ptr<SmallCall>> Health::MakeWatch(
    std::uint64_t connection) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (made_ >= most_) {
    return TooManyWatches(absl::StrCat(
        "the server has ", made_, " watches already, as many as connections ",
        "may be (--max-connections)"));
  }
  std::int64_t& of_connection = made_by_[connection];
  if (of_connection >= most_of_connection_) {
    return TooManyWatches(absl::StrCat(
        "the connection has ", of_connection,
        " watches already, half of its calls (--max-concurrent-streams)"));
  }
  ++of_connection;
  ++made_;
  return std::make_shared<WatchCall>(this, connection);
}

void Health::Set(const std::string& name, bool serving) {
  std::vector<std::shared_ptr<SmallCall>> keep;
  std::vector<WatchCall*> watches;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    serving_[name] = serving;
    for (WatchCall* const watch : watches_) {
      keep.push_back(watch->shared_from_this());
      watches.push_back(watch);
    }
  }
  for (WatchCall* const watch : watches) watch->Tell();
}

absl::StatusOr<std::shared_ptr<SmallCall>> Health::Make(
    absl::string_view path, std::uint64_t connection) {
  if (path == "/grpc.health.v1.Health/Check") {
    return std::make_shared<CheckCall>(this);
  }
  if (path == "/grpc.health.v1.Health/Watch") return MakeWatch(connection);
  return std::shared_ptr<SmallCall>();
}

}  // namespace posenc::server
