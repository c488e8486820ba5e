// Writes a line of the log for each call that may be of interest.

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "server/call/call_observer.h"
#include "server/log/log.h"
#include "server/log/rate_limit.h"

namespace posenc::server {

// A sample of the successful calls is written at level info. Failures that are
// the server's fault are written at level info. After the first hundred, at
// most 10 a second are written, and "suppressed" counts the others. Failures
// that are the client's fault are written at level debug.
class CallLog final : public CallObserver {
 public:
  // Writes a `fraction` (0 to 1) of the successful calls, evenly spread.
  CallLog(std::shared_ptr<Log> log, double fraction);

  void set_fraction(double fraction) { fraction_ = fraction; }

  void Finished(const CallRecord& record) override;

 private:
  bool Sampled();

  const std::shared_ptr<Log> log_;
  std::atomic<double> fraction_;
  std::atomic<std::int64_t> succeeded_ = 0;
  RateLimit failures_;
};

}  // namespace posenc::server
