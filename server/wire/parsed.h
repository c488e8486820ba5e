// A request as the wire gave it, and what sessions make of it.

#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/error.h"
#include "posenc/wire/split.h"
#include "server/calls/call.h"
#include "server/unknown_fields.h"
#include "server/wire/plan.h"
#include "server/wire/session.h"
#include "server/wire/sessions.h"

namespace posenc::server {

// A message whose small fields are parsed and whose tensor bytes are borrowed.
template <typename Request>
struct Parsed {
  Request request;
  // Null where nothing is borrowed: there are no such tensors, or the generated
  // parser had to take the message whole.
  std::shared_ptr<const RequestMessage> message;
  wire::SplitMessage split;

  TakenTensors Taken(absl::Span<const int> fields) const {
    if (message == nullptr) return TakenTensors();
    return TakenTensors(fields, split.tensors);
  }
};

template <typename Request>
absl::StatusOr<std::shared_ptr<Parsed<Request>>> Parse(
    RequestMessage message, absl::Span<const int> tensor_fields) {
  auto parsed = std::make_shared<Parsed<Request>>();
  auto kept = std::make_shared<const RequestMessage>(std::move(message));
  std::vector<absl::Span<const char>> slices;
  for (const grpc::Slice& slice : kept->slices) {
    slices.emplace_back(reinterpret_cast<const char*>(slice.begin()),
                        slice.size());
  }
  bool good = wire::SplitTensors(slices, tensor_fields, &parsed->split);
  if (good) {
    good = parsed->request.ParseFromString(parsed->split.rest);
    std::string().swap(parsed->split.rest);
    if (!tensor_fields.empty()) parsed->message = std::move(kept);
  } else {
    std::string whole;
    for (const auto slice : slices) whole.append(slice.data(), slice.size());
    good = parsed->request.ParseFromString(whole);
  }
  if (!good) {
    return core::FieldInvalid(
        "", "the message is not a valid protobuf message of this call");
  }
  const absl::Status known = RefuseUnknown(parsed->request);
  if (!known.ok()) return known;
  return parsed;
}

// What a call computes must not outlive what it was parsed from.
template <typename Request>
absl::StatusOr<PlannedResponse> Plan(
    absl::StatusOr<TensorCall> call,
    const std::shared_ptr<const Parsed<Request>>& parsed, std::string fields,
    const SessionOptions& options, ResponseMemory* memory) {
  if (!call.ok()) return call.status();
  call->keep = std::make_shared<
      std::pair<std::shared_ptr<const void>, std::shared_ptr<const void>>>(
      std::move(call->keep), parsed);
  return PlanResponse(*std::move(call), parsed->message, std::move(fields),
                      options.max_response_bytes, memory);
}

}  // namespace posenc::server
