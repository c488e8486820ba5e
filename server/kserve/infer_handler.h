// The handlers of ModelInfer and ModelStreamInfer.

#pragma once

#include <memory>

#include "server/kserve/inference.h"
#include "server/methods/methods.h"
#include "server/rpc/handler.h"

namespace posenc::server {

inline constexpr char kInferenceService[] = "inference.GRPCInferenceService";

// counts, regions (may be null): outlive the handlers.
std::unique_ptr<CallHandler> StartModelInfer(const MethodContext& context,
                                             Inference::Counts* counts,
                                             Regions* regions);
std::unique_ptr<CallHandler> StartModelStreamInfer(const MethodContext& context,
                                                   Inference::Counts* counts,
                                                   Regions* regions);

}  // namespace posenc::server
