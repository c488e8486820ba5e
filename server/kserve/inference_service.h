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
#include "server/extra_service.h"
#include "server/kserve/inference.h"
#include "server/kserve/regions.h"
#include "server/methods/methods.h"
#include "server/shared/shared_files.h"

namespace posenc::server {

// Safe for many threads. Outlives its calls.
class InferenceService final : public ExtraService {
 public:
  // shared_files: outlives this; null if no memory is shared.
  explicit InferenceService(SharedFiles* shared_files);

  // ModelInfer and ModelStreamInfer.
  std::vector<Method> Methods() override;

  // What ServerReady and ModelReady say from now on.
  void SetReady(bool ready) override { ready_.store(ready); }

  absl::StatusOr<std::shared_ptr<SmallCall>> Make(
      absl::string_view path, std::uint64_t connection) override;
  absl::Status WhyNot(absl::string_view path) const override;

 private:
  class AskCall;
  struct Question;
  static absl::Span<const Question> Questions();

  SharedFiles* const shared_files_;
  const std::unique_ptr<Regions> regions_;  // null: no memory is shared
  Inference::Counts counts_{Models().size()};
  std::atomic<bool> ready_{false};
};

}  // namespace posenc::server
