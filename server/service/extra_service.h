// A service in addition to the contract's, on the same port, such as KServe's.
// The server gets such services in ServerOptions, and does not know their
// names.

#pragma once

#include <vector>

#include "server/methods/methods.h"

namespace posenc::server {

// Safe for many threads. Must outlive its calls.
class ExtraService {
 public:
  virtual ~ExtraService() = default;
  virtual std::vector<Method> Methods() = 0;
  // Sets whether clients should call the service from now on.
  virtual void SetReady(bool ready) = 0;
};

}  // namespace posenc::server
