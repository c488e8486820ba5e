#include "server/service/service.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "server/base/errors.h"
#include "server/base/steady_time.h"
#include "server/base/version.h"
#include "server/memory/heap.h"

namespace posenc::server {
namespace {

// Size of the cache of encodings: about 70 models of 64 pairs, or a few of the
// widest models.
constexpr std::size_t kCacheBytes = 16 << 20;

// Bytes of free memory that may stay in the heap, for small allocations.
constexpr std::size_t kLittleFreed = 4 << 20;

std::size_t Excess(std::size_t whole, std::size_t part) {
  return whole > part ? whole - part : 0;
}

// Returns the header `authorization`, or "" if there is not exactly one.
absl::string_view Authorization(const CallHeaders& headers) {
  const auto [first, last] = headers.metadata().equal_range("authorization");
  if (std::distance(first, last) != 1) return "";
  return CallHeaders::View(first->second);
}

// Returns an error if the metadata exceed `limit`. Counts bytes as HTTP/2 does,
// but without gRPC's own headers (":authority", "te").
absl::Status CheckMetadata(const CallHeaders& headers, std::int64_t limit) {
  constexpr std::size_t kOfEach = 32;  // RFC 9113, section 6.5.2
  std::size_t bytes = headers.method().size() + kOfEach;
  for (const auto& [name, value] : headers.metadata()) {
    bytes += name.size() + value.size() + kOfEach;
  }
  return CheckSize("", "metadata", bytes, limit,
                   "send less, or raise --max-metadata-bytes");
}

// The error names the version, because a newer client may call a newer method.
absl::Status NoSuchMethod(absl::string_view path) {
  return absl::UnimplementedError(
      absl::StrCat("no such method: ", path, "; this is posencd ", kVersion));
}

}  // namespace

RpcService::RpcService(const Limits& limits,
                       const ConnectionLimits& connections,
                       std::vector<CallObserver*> observers,
                       const Credentials* credentials,
                       SharedFiles* shared_files, std::vector<Method> methods)
    : methods_(std::move(methods)),
      max_metadata_bytes_(connections.max_metadata_bytes),
      credentials_(credentials),
      shared_files_(shared_files),
      open_calls_(connections.max_concurrent_streams),
      cache_(kCacheBytes),
      bytes_per_token_(limits.in_flight_bytes_per_token),
      other_at_start_(Excess(ResidentMemory(), UsedMemory())),
      resources_(limits, static_cast<int>(methods_.size()),
                 std::move(observers)) {
  for (std::size_t i = 0; i < methods_.size(); ++i) {
    by_path_.emplace(
        absl::StrCat("/", methods_[i].service, "/", methods_[i].name),
        static_cast<int>(i));
  }
}

void RpcService::SetLimits(const Limits& limits) {
  const auto max_waiting = static_cast<std::size_t>(limits.max_waiting);
  resources_.admission->SetLimits(
      std::max<std::int64_t>(limits.in_flight_bytes, 1), max_waiting);
  resources_.places.SetMaxWaiting(max_waiting);
  resources_.default_deadline_ns.store(
      absl::ToInt64Nanoseconds(limits.default_deadline));
  bytes_per_token_.store(limits.in_flight_bytes_per_token);
}

bool RpcService::AwaitNoCalls(absl::Duration timeout) const {
  constexpr absl::Duration kInterval = absl::Milliseconds(2);
  const absl::Time end = SteadyNow() + timeout;
  while (resources_.calls.load() > 0) {
    if (SteadyNow() >= end) return false;
    absl::SleepFor(kInterval);
  }
  return true;
}

std::size_t RpcService::IdleMemory() const {
  return Excess(ResidentMemory(), other_at_start_ + UsedMemory() +
                                      resources_.buffers.used() +
                                      resources_.buffers.kept());
}

void RpcService::ReturnUnneededMemory() {
  constexpr int kLooks = 10;
  if (++looks_ < kLooks) return;
  looks_ = 0;
  const auto needed =
      static_cast<std::size_t>(resources_.admission->TakePeak());
  resources_.buffers.KeepAtMost(needed);
  // Free memory between used blocks cannot be returned. `idle_` is the size of
  // the idle memory that was left after the last attempt. The next attempt
  // comes only when the idle memory is larger than `idle_`. When fewer bytes
  // are in use, more memory can be returned, so `idle_` is set to 0.
  const std::size_t used = UsedMemory();
  if (used + kLittleFreed < used_at_return_) idle_ = 0;
  if (IdleMemory() <= needed + idle_ + kLittleFreed) return;
  used_at_return_ = used;
  ReturnFreedMemory();
  idle_ = IdleMemory();
}

absl::Status RpcService::Identify(const CallHeaders& headers,
                                  CallSpec* spec) const {
  ASSIGN_OR_RETURN(Caller caller,
                   credentials_->Check(spec->name, Authorization(headers)));
  spec->caller = std::move(caller.name);
  // Behind a proxy, callers share connections. So all calls with one token are
  // one party (Places).
  if (!spec->caller.empty()) {
    spec->party = absl::HashOf(spec->caller);
    spec->caller_bytes = caller.in_flight_bytes > 0 ? caller.in_flight_bytes
                                                    : bytes_per_token_.load();
  }
  return absl::OkStatus();
}

absl::Status RpcService::Route(const CallHeaders& headers, CallSpec* spec,
                               OpenCalls::Slot* slot,
                               std::unique_ptr<CallHandler>* handler) {
  // Clients in this process have no connection, and may have any number of
  // calls.
  if (headers.peer_kind() != PeerKind::kInProcess) {
    bool far = false;
    *slot = open_calls_.Open(headers.peer_id(),
                             headers.peer_kind() == PeerKind::kUnix, &far);
    if (far && end_connection_) end_connection_(headers.peer());
    if (slot->empty()) return TooManyCalls();
  }
  // gRPC 1.51 announces this limit to peers, but does not always enforce it.
  RETURN_IF_ERROR(CheckMetadata(headers, max_metadata_bytes_));
  const auto found = by_path_.find(headers.method());
  if (found == by_path_.end()) return NoSuchMethod(headers.method());
  const Method& method = methods_[static_cast<std::size_t>(found->second)];
  static_cast<MethodTraits&>(*spec) = method;
  spec->method = found->second;
  if (method.needs_token) RETURN_IF_ERROR(Identify(headers, spec));
  if (!method.exempt && draining_.load()) {
    return core::MakeError(absl::StatusCode::kUnavailable,
                           core::ErrorReason::kDraining, "",
                           "the server is draining; retry elsewhere");
  }
  CallSharing sharing;
  if (shared_files_ != nullptr) {
    sharing.files = shared_files_;
    sharing.allowed = shared_files_->Allows(headers.peer_kind());
    // gRPC's clients send the number of previous attempts in this header.
    sharing.repeated = headers.Find("grpc-previous-rpc-attempts").has_value();
  }
  ASSIGN_OR_RETURN(
      *handler, method.start({&resources_.limits, &cache_, sharing, &headers}));
  return absl::OkStatus();
}

void RpcService::FillIn(ServerStatus* status) const {
  const Places::State places = resources_.places.state();
  const RopeCache::State cache = cache_.state();
  status->budget_bytes = resources_.admission->budget();
  status->claimed_bytes = resources_.admission->claimed();
  status->calls_in_progress = resources_.calls.load();
  status->calls_in_service = static_cast<std::int64_t>(places.at_work);
  status->calls_limit = static_cast<std::int64_t>(places.limit);
  status->calls_waiting = static_cast<std::int64_t>(
      places.waiting + resources_.admission->waiting());
  status->kept_bytes = static_cast<std::int64_t>(resources_.buffers.kept());
  status->cache_bytes = static_cast<std::int64_t>(cache.bytes);
  status->cache_hits = cache.hits;
  status->cache_misses = cache.misses;
}

}  // namespace posenc::server
