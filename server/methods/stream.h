// Handlers of streams.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/runtime/pieces.h"
#include "posenc/wire/split.h"
#include "server/base/errors.h"
#include "server/call/handler.h"
#include "server/call/request.h"
#include "server/convert/streamed_bytes.h"
#include "server/convert/tensor.h"
#include "server/methods/methods.h"
#include "server/methods/row_stream.h"
#include "server/methods/shared_tensors.h"
#include "server/methods/takes_long.h"

namespace posenc::server {

// Parses a message of a stream, which must not name shared memory.
template <typename Request>
absl::StatusOr<std::shared_ptr<ParsedRequest<Request>>> ParseOfStream(
    RequestMessage message) {
  auto parsed = Parse<Request>(std::move(message), {});
  if (!parsed.ok() || !(*parsed)->may_share) return parsed;
  RETURN_IF_ERROR(FindSharedParts(&(*parsed)->request).CheckNone());
  return parsed;
}

// A part of a result that is sent in several messages.
struct ResultPart {
  TensorAnswer answer;
  std::string fields;  // serialized fields that are not tensors
  bool last = false;
};

// Returns the next part of a result. Must not be called after the last part.
using NextPart = std::function<ResultPart()>;

// Handles a stream with one request, whose result is sent in parts.
// begin(request, context) checks the request and returns a NextPart, which is
// null if the result has no parts. `result` is the field of the request that
// the error about a second message names.
template <typename Request, auto begin>
class PartsStream final : public CallHandler {
 public:
  PartsStream(const MethodContext& context, const char* result)
      : context_(context), result_(result) {}

  absl::Status Receive(RequestMessage message) override {
    if (request_ != nullptr) {
      return core::FieldInvalid(result_, "given twice; one ", result_,
                                " a call");
    }
    ASSIGN_OR_RETURN(auto parsed, ParseOfStream<Request>(std::move(message)));
    context_.owned = &parsed->owned;
    context_.reserve = parsed->Claim();
    request_ = std::move(parsed);
    return absl::OkStatus();
  }
  bool TakesLong() const override {
    return next_ == nullptr && request_ != nullptr &&
           server::TakesLong(request_->request);
  }
  bool HasNext() const override { return request_ != nullptr && !done_; }
  absl::StatusOr<std::unique_ptr<PendingResponse>> Next(
      StopCheck /*stop*/) override {
    if (!HasNext()) return nullptr;
    if (next_ == nullptr) {
      ASSIGN_OR_RETURN(next_, begin(request_->request, context_));
      done_ = next_ == nullptr;
      if (done_) return nullptr;
    }
    ResultPart part = next_();
    done_ = part.last;
    return MakeResponse(std::move(part.answer), request_, nullptr,
                        std::move(part.fields),
                        context_.limits->max_response_bytes);
  }

 private:
  MethodContext context_;
  const char* const result_;
  std::shared_ptr<const ParsedRequest<Request>> request_;
  NextPart next_;  // borrows the request; null before the first answer
  bool done_ = false;
};

// Removes "call." from the field of a parser's error, so that the stream's
// errors name fields as the unary call's errors do.
inline absl::Status WithoutCall(const absl::Status& status) {
  constexpr absl::string_view kCall = "call.";
  const auto details = core::GetErrorDetails(status);
  if (!details || !absl::StartsWith(details->field, kCall)) return status;
  return WithField(status, absl::StripPrefix(details->field, kCall));
}

// Handles a stream that carries the bytes of the tensors of one unary call.
// Request has the field `call`, which the first message sets, and the field
// `data`. describe(call, bytes) adds the tensors whose bytes the stream
// carries, in the order of their fields. rotate(call, context) makes the same
// checks as the unary call, and returns the rotation.
template <typename Request, auto describe, auto rotate>
class RotationStream final : public CallHandler {
 public:
  using UnaryCall = std::decay_t<decltype(std::declval<Request>().call())>;

  explicit RotationStream(const MethodContext& context) : context_(context) {}

  absl::Status Receive(RequestMessage message) override {
    auto parsed = Parse<Request>(std::move(message), kData);
    if (!parsed.ok()) return WithoutCall(parsed.status());
    message_ = *std::move(parsed);
    claimed_ = 0;
    if (message_->request.has_call()) {
      if (begun_) {
        return core::FieldInvalid(
            "call", "given again; the first message describes the whole call");
      }
      RETURN_IF_ERROR(Describe());
    } else if (!begun_) {
      return core::FieldRequired("call", "not in the first message");
    }
    begun_ = true;
    const std::string& whole = message_->request.data();
    const wire::BorrowedBytes* const borrowed =
        message_->Borrowed(kData).Find(wire::kOwnData);
    ASSIGN_OR_RETURN(
        data_, bytes_.Take(borrowed == nullptr
                               ? core::ConstPieces(whole.data(), whole.size())
                               : core::ConstPieces(borrowed->pieces)));
    return absl::OkStatus();
  }
  absl::Status HalfClosed() override { return bytes_.CheckComplete(); }

  // Only the first answer takes long, because it resolves encodings and expands
  // all positions.
  bool TakesLong() const override { return call_ != nullptr; }

  bool HasNext() const override { return rows_ && rows_->HasNext(); }
  absl::StatusOr<std::unique_ptr<PendingResponse>> Next(
      StopCheck stop) override {
    if (!rows_ && bytes_.ids_complete()) {
      RETURN_IF_ERROR(Prepare(stop));
    }
    // The bytes of all earlier messages have been answered.
    if (const auto message = std::exchange(message_, nullptr);
        message && rows_) {
      rows_->Add(std::move(data_),
                 message->borrows ? &message->message : nullptr, message);
    }
    if (!HasNext()) return nullptr;
    return rows_->Next(context_.limits->max_response_bytes);
  }

 private:
  static constexpr int kData[] = {wire::kOwnData};

  absl::Status Describe() {
    call_ = message_;
    UnaryCall* const call = call_->request.mutable_call();
    absl::Status status;
    if (call_->may_share) status = FindSharedParts(call).CheckNone();
    if (status.ok()) status = describe(call, &bytes_);
    // While the list of ids grows, its memory may be twice as large as the ids.
    if (status.ok()) status = Keep(2 * bytes_.ids_bytes());
    return status;
  }

  absl::Status Prepare(StopCheck stop) {
    MethodContext with = context_;
    const std::vector<int> fields = TensorFields(*UnaryCall::descriptor());
    with.borrowed = BorrowedTensors(fields, bytes_.tensors(), false);
    with.owned = &call_->owned;
    with.reserve = [this](std::int64_t bytes) { return Keep(bytes); };
    with.stop = stop;
    absl::StatusOr<Rotation> rotation = rotate(call_->request.call(), with);
    if (!rotation.ok()) return rotation.status();
    rows_.emplace(*std::move(rotation));
    call_ = nullptr;
    return Keep(static_cast<std::int64_t>(rows_->kept_bytes()));
  }

  // Claims memory until the end of the call. CallMemory::ClaimMade() subtracts
  // the size of two copies of the current message, which a stream has already
  // claimed. So this function adds that size to the kept memory.
  absl::Status Keep(std::int64_t bytes) {
    RequestMessage& message = message_->message;
    kept_ += bytes;
    const std::int64_t more =
        kept_ + 2 * static_cast<std::int64_t>(message.bytes()) - claimed_;
    claimed_ += more;
    return message.ClaimMore(more);
  }

  const MethodContext context_;
  bool begun_ = false;
  StreamedBytes bytes_;
  // The first message, until the rotation is prepared; bytes_ points into it.
  std::shared_ptr<ParsedRequest<Request>> call_;
  std::optional<RowStream> rows_;  // nullopt before the rotation is prepared
  // The message that Next() answers, and its bytes of tensors.
  std::shared_ptr<ParsedRequest<Request>> message_;
  core::ConstPieces data_;
  std::int64_t kept_ = 0;     // bytes, until the end of the call
  std::int64_t claimed_ = 0;  // bytes that Keep() has claimed with message_
};

}  // namespace posenc::server
