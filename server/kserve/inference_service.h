// KServe's service, inference.GRPCInferenceService, with what Triton adds to
// it: for clients of the Open Inference Protocol. ModelInfer and
// ModelStreamInfer are calls like the contract's; everything that asks about
// the server is a small call, which is answered during a drain, too.

#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/kserve/inference.h"
#include "server/methods/methods.h"
#include "server/rpc/small_call.h"

namespace posenc::server {

// Safe for many threads. Outlives its calls.
class InferenceService final : public SmallService {
 public:
  // ModelInfer and ModelStreamInfer.
  std::vector<Method> InferMethods();

  // What ServerReady and ModelReady say from now on.
  void SetReady(bool ready) { ready_.store(ready); }

  absl::StatusOr<std::shared_ptr<SmallCall>> Make(
      absl::string_view path, std::uint64_t connection) override;
  absl::Status WhyNot(absl::string_view path) const override;

 private:
  class AskCall;
  struct Question;
  static absl::Span<const Question> Questions();

  Inference::Counts counts_{Models().size()};
  std::atomic<bool> ready_{false};
};

}  // namespace posenc::server
