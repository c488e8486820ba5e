// What a call's headers say about when and whether it may be served.

#include <algorithm>
#include <optional>

#include "server/rpc/call.h"

namespace posenc::server {
namespace {

// For the order of turns, calls whose deadline is later, or that have none, are
// taken to have this one.
constexpr absl::Duration kNoDeadline = absl::Minutes(5);

}  // namespace

Turns::Request Call::TurnRequest(const CallHeaders& headers,
                                 const CallSpec& spec,
                                 const CallResources& resources,
                                 std::optional<std::int64_t> announced,
                                 absl::Duration age) {
  const double now = resources.turns->Now();
  Turns::Request request;
  request.kind = CallCosts::KindOf(spec.method, announced);
  request.peer = spec.peer;
  request.announced = announced.value_or(0);
  // Without a deadline of its own, a call has the server's.
  const absl::Duration imposed =
      std::min(resources.deadlines->time() - age, kNoDeadline);
  request.deadline = now + absl::ToDoubleSeconds(imposed);
  if (headers.has_deadline()) {
    request.deadline =
        now + absl::ToDoubleSeconds(headers.TimeLeft() - headers.waited());
  }
  return request;
}

Call::Arrival Call::ArrivalOf(const CallHeaders& headers, const CallSpec& spec,
                              const CallResources& resources) {
  Arrival arrival = {
      AnnouncedBytes(headers, resources.limits->max_request_bytes), {}};
  if (!spec.stream && arrival.announced.ok()) {
    arrival.turn = TurnRequest(headers, spec, resources, *arrival.announced,
                               absl::ZeroDuration());
  }
  return arrival;
}

bool Call::IsTooLate(const Arrival& arrival, const CallSpec& spec,
                     const CallResources& resources) {
  return !spec.stream && arrival.announced.ok() &&
         resources.turns->Refuses(arrival.turn);
}

}  // namespace posenc::server
