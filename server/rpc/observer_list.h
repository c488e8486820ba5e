// Passes each call on to several observers.

#pragma once

#include <utility>
#include <vector>

#include "server/rpc/call_observer.h"

namespace posenc::server {

// The observers outlive this.
class ObserverList final : public CallObserver {
 public:
  explicit ObserverList(std::vector<CallObserver*> observers)
      : observers_(std::move(observers)) {}

  void Started(absl::string_view method, bool stream) override {
    for (CallObserver* const observer : observers_) {
      observer->Started(method, stream);
    }
  }
  void Finished(const CallRecord& record) override {
    for (CallObserver* const observer : observers_) observer->Finished(record);
  }

 private:
  const std::vector<CallObserver*> observers_;
};

}  // namespace posenc::server
