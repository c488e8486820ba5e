#include "server/rpc/claim.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/error.h"
#include "posenc/wire/metadata.h"
#include "server/budget/errors.h"
#include "server/budget/transfers.h"

namespace posenc::server {
namespace {

// What a message of a stream is taken to have if nothing is announced: above
// the recommended chunk of nearly 4 MiB.
constexpr std::int64_t kStreamMessageBytes = std::int64_t{5} << 20;

// A message that has been read is not refused because others hold all of the
// budget, as long as what calls make of their messages goes beyond the budget
// by no more than this part of it.
constexpr std::int64_t kBeyondPart = 16;

}  // namespace

CallClaim::CallClaim(Admission* admission, CallerBudgets::Share* caller,
                     MessageSizes* sizes, int method, std::uint64_t peer,
                     std::int64_t max_request_bytes, bool stream, Owner* owner)
    : admission_(admission),
      caller_(caller),
      sizes_(sizes),
      method_(method),
      peer_(peer),
      max_request_bytes_(max_request_bytes),
      stream_(stream),
      owner_(owner) {}

// The lock is held while admission is asked, so that Admitted() on another
// thread finds the state that it changes.
absl::Status CallClaim::Enter(std::optional<std::int64_t> announced) {
  announced_ = announced;
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::int64_t bytes =
      stream_
          ? announced_.value_or(kStreamMessageBytes) *
                static_cast<std::int64_t>(kMessages)
          : announced_.value_or(std::min(
                max_request_bytes_,
                sizes_->Expect(method_, peer_,
                               admission_->budget() / Admission::kSmallPart)));
  const std::int64_t bounded = admission_->Bounded(bytes);
  if (!caller_->Claim(bounded)) {
    return OverBudget(absl::StrCat("the calls with this token hold all of the ",
                                   caller_->limit(),
                                   " bytes that they may have in flight"));
  }
  held_ = bounded;
  state_ = State::kWaiting;
  switch (admission_->Enter(held_, this)) {
    case Admission::Entry::kAdmitted:
      state_ = State::kInside;
      break;
    case Admission::Entry::kWaiting:
      break;
    case Admission::Entry::kNever:  // not of a claim that is bounded
    case Admission::Entry::kFull:
      state_ = State::kOutside;
      held_ = 0;
      return OverBudget("the server is full, and so is the queue before it");
  }
  return absl::OkStatus();
}

void CallClaim::Admitted() {
  const std::shared_ptr<void> keep = owner_->KeepAlive();
  bool response = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    response = std::exchange(response_waits_, false);
    state_ = State::kInside;
  }
  if (response) return owner_->OnResponseClaimed(true);
  owner_->OnEntered();
}

void CallClaim::Refused() {
  const std::shared_ptr<void> keep = owner_->KeepAlive();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    response_waits_ = false;
  }
  owner_->OnResponseClaimed(false);
}

absl::Status CallClaim::Received(std::int64_t bytes) {
  const absl::Status size =
      CheckRequest(static_cast<std::size_t>(bytes), max_request_bytes_);
  if (!size.ok()) return size;
  if (announced_ && bytes > *announced_) {
    return core::FieldInvalid(
        wire::kMessageBytes,
        absl::StrCat("a message of ", bytes, " bytes, but ", *announced_,
                     " were announced; announce the largest, or nothing"));
  }
  if (stream_) return ReceivedOfStream(bytes);
  if (!announced_) sizes_->Learn(method_, peer_, bytes);
  std::int64_t unused = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    unused = held_ - bytes;
    // If the claim has shrunk, the caller's has not.
    caller_->Add(bytes - held_ - shrunk_);
    shrunk_ = 0;
    held_ = bytes;
    if (unused < 0) admission_->ClaimHeld(-unused);
  }
  if (unused > 0) admission_->Release(unused);
  return absl::OkStatus();
}

// Room for a full line of the largest message so far.
absl::Status CallClaim::ReceivedOfStream(std::int64_t bytes) {
  const std::int64_t excess =
      announced_ ? 0 : std::max<std::int64_t>(bytes - kStreamMessageBytes, 0);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (shrunk_ > 0) {
    admission_->ClaimHeld(shrunk_, this);
    held_ += std::exchange(shrunk_, 0);
  }
  if (excess <= largest_excess_) return absl::OkStatus();
  const std::int64_t more =
      (excess - largest_excess_) * static_cast<std::int64_t>(kMessages);
  if (!admission_->TryClaim(more, this)) {
    return OverBudget(
        absl::StrCat("no room for messages of ", bytes,
                     " bytes; announce the largest to wait for room"));
  }
  caller_->Add(more);
  held_ += more;
  largest_excess_ = excess;
  return absl::OkStatus();
}

void CallClaim::AddCopied(std::int64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  caller_->Add(bytes);
  admission_->ClaimHeld(bytes);
  held_ += bytes;
}

absl::Status CallClaim::ClaimMade(std::int64_t bytes,
                                  std::int64_t message_bytes) {
  // A stream has claimed four messages, of which one is parsed at a time.
  if (stream_) bytes -= 2 * message_bytes;
  if (bytes <= Transfers::kUncountedBytes) bytes = 0;
  std::int64_t unused = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (stream_) bytes = std::max(bytes, made_);
    const std::int64_t more = bytes - made_;
    if (more > 0) {
      const absl::Status room = ClaimBeyond(
          more, "message, with what is made of it to read it,",
          "send less beside the tensors, or raise --in-flight-bytes");
      if (!room.ok()) return room;
    } else {
      unused = -more;
    }
    caller_->Add(more);
    held_ += more;
    made_ = bytes;
  }
  if (unused > 0) admission_->Release(unused);
  return absl::OkStatus();
}

absl::Status CallClaim::ClaimFinished(std::int64_t bytes) {
  if (bytes <= Transfers::kUncountedBytes) return absl::OkStatus();
  // Peers may leave many such answers unread, which are small enough for what
  // gRPC keeps of each call to count beside them.
  bytes += Transfers::kCallBytes;
  const std::lock_guard<std::mutex> lock(mutex_);
  const absl::Status room =
      ClaimBeyond(bytes, "call, with its response,", "raise --in-flight-bytes");
  if (!room.ok()) return room;
  caller_->Add(bytes);
  held_ += bytes;
  return absl::OkStatus();
}

// Expects the lock.
absl::Status CallClaim::ClaimBeyond(std::int64_t bytes, absl::string_view what,
                                    absl::string_view remedy) {
  const std::int64_t budget = admission_->budget();
  const std::int64_t beyond = budget / kBeyondPart;
  if (admission_->TryClaim(bytes, this, beyond)) return absl::OkStatus();
  const absl::Status size =
      CheckSize("", what, static_cast<std::uint64_t>(held_ + bytes),
                budget + beyond, remedy);
  if (!size.ok()) return size;
  return OverBudget(
      absl::StrCat("no room for a ", what, " of ", held_ + bytes, " bytes"));
}

void CallClaim::ExpectMore(std::int64_t holds) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::int64_t claimed = held_ + shrunk_;
  if (announced_ || stream_ || claimed == 0 || holds <= claimed) return;
  sizes_->LearnMore(method_, peer_, claimed);
}

std::int64_t CallClaim::Shrink() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (state_ != State::kInside) return 0;
  shrunk_ += held_;
  return std::exchange(held_, 0);
}

// The lock is held while admission is asked, so that what the call holds cannot
// grow in between, and so that Admitted() on another thread finds the flag set.
Admission::Entry CallClaim::ClaimResponse(std::int64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!stream_ && !caller_->Claim(bytes)) return Admission::Entry::kFull;
  const Admission::Entry entry = admission_->EnterMore(bytes, held_, this);
  response_waits_ = entry == Admission::Entry::kWaiting;
  return entry;
}

bool CallClaim::StopWaitingToEnter() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (state_ != State::kWaiting || !admission_->Leave(this)) return false;
  state_ = State::kOutside;
  held_ = 0;
  return true;
}

bool CallClaim::StopWaitingForResponse() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!response_waits_ || !admission_->Leave(this)) return false;
  response_waits_ = false;
  return true;
}

void CallClaim::Release() {
  std::int64_t held = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    held = std::exchange(held_, 0);
  }
  if (held > 0) admission_->Release(held);
}

}  // namespace posenc::server
