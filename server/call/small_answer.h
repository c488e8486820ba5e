// Handler of small RPCs that are not in the contract: health, reflection, and
// KServe's RPCs about the server and its models. Each message gets one answer
// immediately.

#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/status_macros.h"
#include "server/call/handler.h"

namespace posenc::server {

class SmallAnswer final : public CallHandler {
 public:
  // A function that returns the serialized answer to a message.
  using Answer =
      std::function<absl::StatusOr<std::string>(const std::string& message)>;

  explicit SmallAnswer(Answer answer) : answer_(std::move(answer)) {}

  absl::Status Receive(RequestMessage message) override {
    message_ = message.Joined();
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<PendingResponse>> Next(
      StopCheck /*stop*/) override {
    if (!message_) return nullptr;
    ASSIGN_OR_RETURN(std::string answer,
                     answer_(*std::exchange(message_, std::nullopt)));
    return std::make_unique<PendingResponse>(std::move(answer));
  }

 private:
  const Answer answer_;
  std::optional<std::string> message_;
};

}  // namespace posenc::server
