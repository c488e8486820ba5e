// Runs the handler of a call without a socket: from the bytes of its messages
// to those of its answers. Every result except an answer or a valid status is a
// finding.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "grpc/grpc.h"
#include "server/call/handler.h"
#include "server/convert/status.h"
#include "server/memory/response_buffers.h"
#include "server/scheduling/admission.h"
#include "server/scheduling/limits.h"

namespace posenc::server {

inline constexpr std::int64_t kMaxBytes = std::int64_t{1} << 20;
inline constexpr std::size_t kCacheBytes = std::size_t{1} << 20;
// The number of responses of one call that are computed.
inline constexpr int kMaxResponses = 4;

// Refuses memory that a call may not have.
class SmallClaimer final : public RequestMessage::Claimer {
 public:
  absl::Status ClaimMade(std::int64_t bytes,
                         std::int64_t /*message*/) override {
    return bytes <= 8 * kMaxBytes
               ? absl::OkStatus()
               : absl::ResourceExhaustedError("more than the budget");
  }
};

inline RequestMessage Message(absl::string_view bytes,
                              std::size_t slice_bytes) {
  std::vector<grpc::Slice> slices;
  const std::size_t step = slice_bytes == 0 ? bytes.size() : slice_bytes;
  for (std::size_t i = 0; i < bytes.size(); i += step) {
    const std::size_t n = std::min(step, bytes.size() - i);
    slices.emplace_back(bytes.data() + i, n);  // a copy
  }
  static SmallClaimer claimer;
  return RequestMessage(std::move(slices), true, &claimer);
}

inline void Judge(const absl::Status& status) {
  // No request may cause an error of the server.
  const bool fair = status.code() != absl::StatusCode::kInternal &&
                    status.code() != absl::StatusCode::kUnknown;
  if (fair) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::abort();
}

// Returns false if the response cannot be computed.
inline bool Compute(PendingResponse* pending, Admission* admission,
                    ResponseBuffers* buffers) {
  const std::int64_t bytes = pending->bytes_to_claim();
  if (bytes > 0 && !admission->TryClaim(bytes)) return false;
  const absl::Status allocated = pending->Allocate(buffers);
  if (!allocated.ok()) {
    admission->Release(pending->bytes_to_claim());
    return false;
  }
  const auto go_on = [] { return absl::OkStatus(); };
  for (std::int64_t tile = 0; tile < pending->tiles(); ++tile) {
    const absl::Status computed = pending->Compute(tile, go_on);
    Judge(computed);
    if (!computed.ok()) return false;
  }
  grpc::ByteBuffer response;
  const absl::Status finished = pending->Finish(&response);
  Judge(finished);
  return finished.ok();
}

// Runs a call with these messages.
inline void RunHandler(CallHandler* handler,
                       const std::vector<RequestMessage*>& messages) {
  const auto admission = std::make_shared<Admission>(8 * kMaxBytes, 16);
  ResponseBuffers buffers(admission);
  const auto go_on = [] { return absl::OkStatus(); };
  for (RequestMessage* const message : messages) {
    const absl::Status received = handler->Receive(std::move(*message));
    Judge(received);
    if (!received.ok()) return;
    for (int i = 0; i < kMaxResponses; ++i) {
      auto pending = handler->Next(go_on);
      Judge(pending.status());
      if (!pending.ok()) return;
      if (*pending == nullptr) break;
      if (!Compute(pending->get(), admission.get(), &buffers)) return;
    }
  }
  Judge(handler->HalfClosed());
}

// Returns limits so small that the server refuses large requests, instead of
// computing slowly.
inline Limits SmallLimits() {
  Limits limits;
  limits.max_request_bytes = limits.max_response_bytes = kMaxBytes;
  limits.in_flight_bytes = 8 * kMaxBytes;
  limits.threads = 1;
  return WithDefaults(limits);
}

}  // namespace posenc::server
