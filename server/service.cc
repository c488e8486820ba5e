#include "server/service.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/error.h"
#include "server/budget/errors.h"
#include "server/convert/status.h"
#include "server/memory/heap.h"
#include "server/methods/methods.h"
#include "server/version.h"

namespace posenc::server {
namespace {

// Bytes of encodings that are kept: some 70 models of 64 pairs, or a few of the
// widest.
constexpr std::size_t kCacheBytes = 16 << 20;

// Threads that compute leave a busy processor to those that take and refuse
// calls: what these cannot refuse waits in the sockets, in front of what could
// be answered. At ten steps compute threads weigh a tenth. On one processor
// with tables of 256 KiB and deadlines of 50 ms, 60,000 calls a second, 3, 10
// and 19 steps gave 4,000, 6,600 and 5,700 good calls a second in one run, with
// refusals within 50, 6 and 5 ms.
constexpr int kComputeNiceness = 10;

// The heap keeps so much for small things.
constexpr std::size_t kLittleFreed = 4 << 20;

std::size_t Excess(std::size_t whole, std::size_t part) {
  return whole > part ? whole - part : 0;
}

// The header of that name; none if there are several, which differ or are one
// too many.
absl::string_view Authorization(const CallHeaders& headers) {
  absl::string_view value;
  int found = 0;
  for (const grpc_metadata& header : headers.metadata()) {
    if (CallHeaders::View(header.key) != "authorization") continue;
    value = CallHeaders::View(header.value);
    ++found;
  }
  return found == 1 ? value : "";
}

// Counts bytes as HTTP/2 does, without gRPC's own headers (":authority", "te").
absl::Status CheckMetadata(const CallHeaders& headers, std::int64_t limit) {
  constexpr std::size_t kOfEach = 32;  // RFC 9113, section 6.5.2
  std::size_t bytes = headers.method().size() + kOfEach;
  for (const grpc_metadata& header : headers.metadata()) {
    bytes += GRPC_SLICE_LENGTH(header.key) + GRPC_SLICE_LENGTH(header.value) +
             kOfEach;
  }
  return CheckSize("", "metadata", bytes, limit,
                   "send less, or raise --max-metadata-bytes");
}

std::vector<Method> WithContracts(std::vector<Method> more) {
  const absl::Span<const Method> contracts = Methods();
  std::vector<Method> all(contracts.begin(), contracts.end());
  std::move(more.begin(), more.end(), std::back_inserter(all));
  return all;
}

// A newer client may ask for what this version has not.
absl::Status NoSuchMethod(absl::string_view path) {
  return absl::UnimplementedError(
      absl::StrCat("no such method: ", path, "; this is posencd ", kVersion));
}

}  // namespace

RpcService::RpcService(const Limits& limits,
                       const ConnectionLimits& connections,
                       CallObserver* observer, const TokenFile* tokens,
                       SharedFiles* shared_files, std::vector<Method> more)
    : methods_(WithContracts(std::move(more))),
      draining_answer_(core::MakeError(
          absl::StatusCode::kUnavailable, core::ErrorReason::kDraining, "",
          "the server is draining; retry elsewhere")),
      too_many_calls_(TooManyCalls()),
      too_many_inferences_(
          AsTold({.full_is_unavailable = true}, TooManyCalls())),
      limits_(limits),
      max_metadata_bytes_(connections.max_metadata_bytes),
      tokens_(tokens),
      shared_files_(shared_files),
      open_calls_(connections.max_concurrent_streams),
      cache_(kCacheBytes),
      admission_(std::make_shared<Admission>(
          limits.in_flight_bytes,
          static_cast<std::size_t>(limits.max_waiting))),
      buffers_(admission_),
      bytes_per_token_(limits.in_flight_bytes_per_token),
      sizes_(static_cast<int>(methods_.size())),
      deadlines_(limits.default_deadline),
      turns_(limits.threads, static_cast<std::size_t>(limits.max_waiting),
             static_cast<int>(methods_.size())),
      used_at_start_(UsedMemory()),
      other_at_start_(Excess(ResidentMemory(), used_at_start_)),
      transfers_(
          admission_.get(), [this] { return MeasureHeld(); },
          [this](std::int64_t held) { ReturnExcess(held); }),
      pool_(limits.threads, kComputeNiceness),
      resources_{&pool_,      admission_.get(), &callers_, &sizes_,
                 &transfers_, &turns_,          &buffers_, &deadlines_,
                 &calls_,     &limits_,         observer} {
  for (std::size_t i = 0; i < methods_.size(); ++i) {
    by_path_.emplace(
        absl::StrCat("/", methods_[i].service, "/", methods_[i].name),
        static_cast<int>(i));
  }
}

RpcService::Answer::Answer(absl::Status error)
    : status(std::move(error)),
      ending(Call::EndingOf(status)),
      reason(ReasonName(status)) {}

void RpcService::SetLimits(const Limits& limits) {
  const auto max_waiting = static_cast<std::size_t>(limits.max_waiting);
  admission_->SetLimits(std::max<std::int64_t>(limits.in_flight_bytes, 1),
                        max_waiting);
  turns_.SetMaxWaiting(max_waiting);
  deadlines_.SetTime(limits.default_deadline);
  bytes_per_token_.store(limits.in_flight_bytes_per_token);
}

std::int64_t RpcService::MeasureHeld() const {
  return static_cast<std::int64_t>(UsedMemory() + buffers_.used()) -
         static_cast<std::int64_t>(used_at_start_);
}

// What is free between blocks in use stays in the heap and counts as free after
// it was returned, too: it is not returned again and again.
void RpcService::ReturnExcess(std::int64_t held) {
  const std::int64_t left =
      std::max<std::int64_t>(admission_->budget() - held, 0);
  buffers_.KeepAtMost(static_cast<std::size_t>(left));
  const std::size_t freed = FreedMemory();
  if (freed < excess_freed_) excess_freed_ = freed;
  if (static_cast<std::int64_t>(freed + buffers_.kept()) <= left ||
      freed <= excess_freed_ + kLittleFreed) {
    return;
  }
  ReturnFreedMemory();
  excess_freed_ = FreedMemory();
}

std::size_t RpcService::IdleMemory() const {
  return Excess(ResidentMemory(), other_at_start_ + UsedMemory() +
                                      buffers_.used() + buffers_.kept());
}

// What is claimed is not always held: a sender that stalls holds nothing.
void RpcService::ReturnUnneededMemory() {
  constexpr int kLooks = 10;
  turns_.ForgetIdlePeers();
  most_held_ = std::max(most_held_, MeasureHeld());
  if (++looks_ < kLooks) return;
  looks_ = 0;
  const auto needed = static_cast<std::size_t>(
      std::min(admission_->TakePeak(), std::exchange(most_held_, 0)));
  buffers_.KeepAtMost(needed);
  // What is in pieces between blocks in use cannot be returned, and is not
  // tried again until fewer are in use. Memory that calls free after the
  // return counts as such pieces, too.
  const std::size_t used = UsedMemory();
  if (used + kLittleFreed < used_at_return_) idle_ = 0;
  if (IdleMemory() <= needed + idle_ + kLittleFreed) return;
  used_at_return_ = used;
  ReturnFreedMemory();
  idle_ = IdleMemory();
}

const RpcService::Answer* RpcService::Refuse(
    const CallSpec& spec, const Call::Arrival& arrival) const {
  if (draining_.load()) return &draining_answer_;
  if (!Call::IsTooLate(arrival, spec, resources_)) return nullptr;
  return spec.full_is_unavailable ? &too_many_inferences_ : &too_many_calls_;
}

void RpcService::Observe(const Answer& answer, const CallSpec& spec,
                         const CallHeaders& headers) const {
  CallObserver* const observer = resources_.observer;
  if (observer == nullptr) return;
  observer->Started(spec.name, spec.stream);
  CallRecord record = RecordOf(headers, spec, answer.status, answer.reason);
  record.started = absl::Now();
  observer->Finished(record);
}

void RpcService::Send(const Answer& answer, const CallSpec& spec,
                      PeerStream* stream) const {
  Observe(answer, spec, stream->headers());
  stream->Finish(answer.ending);
}

// Clients in this process, who have no connection, may have any number.
bool RpcService::IsTooMany(PeerStream* stream, const CallSpec& spec) {
  const CallHeaders& headers = stream->headers();
  const absl::string_view peer = headers.peer();
  const bool is_unix = absl::StartsWith(peer, "unix:");
  if (!is_unix && !absl::StartsWith(peer, "ipv")) return false;
  bool far = false;
  OpenCalls::Place place = open_calls_.Enter(spec.peer, is_unix, &far);
  if (!place.empty()) {
    stream->HoldPlace(std::move(place));
    return false;
  }
  Observe(too_many_calls_, spec, headers);
  if (far && end_connection_) end_connection_(peer);
  stream->Drop();
  return true;
}

absl::Status RpcService::Identify(const CallHeaders& headers,
                                  CallSpec* spec) const {
  if (tokens_ == nullptr) return absl::OkStatus();
  absl::StatusOr<Caller> caller =
      tokens_->Check(spec->name, Authorization(headers));
  if (!caller.ok()) return caller.status();
  spec->caller = std::move(caller->name);
  // Behind an edge all callers come over the same connections.
  if (!spec->caller.empty()) {
    spec->peer = absl::HashOf(spec->caller);
    spec->caller_bytes = caller->in_flight_bytes > 0 ? caller->in_flight_bytes
                                                     : bytes_per_token_.load();
  }
  return absl::OkStatus();
}

void RpcService::BeginSmall(PeerStream* stream, CallSpec spec) const {
  const absl::string_view path = stream->headers().method();
  absl::Status none = NoSuchMethod(path);
  for (SmallService* const service : small_services_) {
    auto made = service->Make(path, spec.peer);
    if (!made.ok()) return Send(Answer(made.status()), spec, stream);
    if (const std::shared_ptr<SmallCall> call = *std::move(made)) {
      if (call->needs_token()) {
        spec = call->spec();
        absl::Status known = Identify(stream->headers(), &spec);
        if (!known.ok()) return Send(Answer(std::move(known)), spec, stream);
      }
      return call->Start(stream, {resources_.transfers, resources_.deadlines,
                                  resources_.observer});
    }
    absl::Status why = service->WhyNot(path);
    if (!why.ok()) none = std::move(why);
  }
  Send(Answer(std::move(none)), spec, stream);
}

CallSharing RpcService::SharingOf(const CallHeaders& headers) const {
  CallSharing sharing;
  if (shared_files_ == nullptr) return sharing;
  sharing.files = shared_files_;
  sharing.allowed = shared_files_->Allows(headers.peer());
  // gRPC's clients count the tries of their retry policy here.
  sharing.repeated = headers.Find("grpc-previous-rpc-attempts").has_value();
  return sharing;
}

void RpcService::Begin(PeerStream* stream) {
  const CallHeaders& headers = stream->headers();
  CallSpec spec;
  spec.peer = headers.peer_id();
  if (IsTooMany(stream, spec)) return;
  // gRPC 1.51 tells peers this limit and does not always keep to it.
  absl::Status metadata = CheckMetadata(headers, max_metadata_bytes_);
  if (!metadata.ok()) return Send(Answer(std::move(metadata)), spec, stream);
  const auto found = by_path_.find(headers.method());
  if (found == by_path_.end()) return BeginSmall(stream, std::move(spec));
  const Method& method = methods_[found->second];
  spec.service = method.service;
  spec.name = method.name;
  spec.method = found->second;
  spec.stream = method.stream;
  spec.full_is_unavailable = method.full_is_unavailable;
  absl::Status known = Identify(headers, &spec);
  if (!known.ok()) return Send(Answer(std::move(known)), spec, stream);
  const Call::Arrival arrival = Call::ArrivalOf(headers, spec, resources_);
  if (const Answer* const refused = Refuse(spec, arrival)) {
    return Send(*refused, spec, stream);
  }
  Call::Start(stream, std::move(spec), arrival,
              method.start({&limits_, &cache_, SharingOf(headers), &headers}),
              resources_);
}

void RpcService::Gone(const PeerStream& stream) {
  const auto found = by_path_.find(stream.headers().method());
  if (found == by_path_.end()) return;
  const Method& method = methods_[found->second];
  CallSpec spec;
  spec.service = method.service;
  spec.name = method.name;
  spec.stream = method.stream;
  Observe(gone_, spec, stream.headers());
}

void RpcService::Refused(std::chrono::nanoseconds spent) {
  turns_.AddRefusing(1e-9 * static_cast<double>(spent.count()));
}

void RpcService::Tell(ServerStatus* status) const {
  const Turns::State turns = turns_.state();
  const RopeCache::State cache = cache_.state();
  status->budget_bytes = admission_->budget();
  status->claimed_bytes = admission_->claimed();
  status->held_bytes = admission_->held();
  status->calls_in_progress = calls_.count();
  status->calls_in_service = static_cast<std::int64_t>(turns.in_service);
  status->calls_waiting =
      static_cast<std::int64_t>(turns.waiting + admission_->waiting());
  status->kept_bytes = static_cast<std::int64_t>(buffers_.kept());
  status->cache_bytes = static_cast<std::int64_t>(cache.bytes);
  status->cache_hits = cache.hits;
  status->cache_misses = cache.misses;
  for (std::size_t i = 0; i < turns.shares.size(); ++i) {
    status->mean_shares.emplace_back(methods_[i].name, turns.shares[i]);
  }
}

}  // namespace posenc::server
