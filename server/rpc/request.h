// A request as the wire gave it, and what sessions make of it.

#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/container/inlined_vector.h"
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
  RequestMessage message;
  // False where there are no such tensors, or the generated parser had to take
  // the message whole.
  bool borrows = false;
  wire::SplitMessage split;

  TakenTensors Taken(absl::Span<const int> fields) const {
    if (!borrows) return TakenTensors();
    return TakenTensors(fields, split.tensors);
  }
};

template <typename Request>
absl::StatusOr<std::shared_ptr<Parsed<Request>>> Parse(
    RequestMessage message, absl::Span<const int> tensor_fields) {
  static const KnownFields kKnown(*Request::descriptor());
  auto parsed = std::make_shared<Parsed<Request>>();
  parsed->message = std::move(message);
  absl::InlinedVector<absl::Span<const char>, 4> slices;
  for (const grpc::Slice& slice : parsed->message.slices) {
    slices.emplace_back(reinterpret_cast<const char*>(slice.begin()),
                        slice.size());
  }
  bool good = wire::SplitTensors(slices, tensor_fields, &parsed->split);
  std::string small;  // what the generated code parses
  if (good) {
    small = std::move(parsed->split.rest);
    parsed->borrows = !tensor_fields.empty();
  } else {
    for (const auto slice : slices) small.append(slice.data(), slice.size());
  }
  if (!parsed->borrows) parsed->message.slices.clear();
  if (!parsed->request.ParseFromString(small)) {
    return core::FieldInvalid(
        "", "the message is not a valid protobuf message of this call");
  }
  const absl::Status known = kKnown.Check(small, parsed->request);
  if (!known.ok()) return known;
  return parsed;
}

// What a call computes must not outlive what it was parsed from.
template <typename Request>
absl::StatusOr<std::unique_ptr<PlannedResponse>> Plan(
    absl::StatusOr<TensorCall> call,
    std::shared_ptr<const Parsed<Request>> parsed, std::string fields,
    const SessionOptions& options) {
  if (!call.ok()) return call.status();
  const RequestMessage* const message =
      parsed->borrows ? &parsed->message : nullptr;
  return PlanResponse(*std::move(call), std::move(parsed), message,
                      std::move(fields), options.max_response_bytes);
}

}  // namespace posenc::server
