// A service on the same port as the contract's service, such as KServe's. The
// server gets the service in ServerOptions, and does not know its name.

#pragma once

#include <vector>

#include "server/methods/methods.h"

namespace posenc::server {

// Thread-safe. The object must outlive its calls.
class ExtraService {
 public:
  virtual ~ExtraService() = default;
  virtual std::vector<Method> Methods() = 0;
  // Sets whether clients should call the service from now on.
  virtual void SetReady(bool ready) = 0;
};

}  // namespace posenc::server
