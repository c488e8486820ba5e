// A service beside the contract's on the same port, such as KServe's. The
// server is given it (ServerOptions), and knows none by name.

#pragma once

#include <vector>

#include "server/methods/methods.h"
#include "server/rpc/small_call.h"

namespace posenc::server {

// Some of its calls are like the contract's: they take turns and claim memory.
// The others are small calls, which are answered during a drain, too. Safe for
// many threads. Outlives its calls.
class ExtraService : public SmallService {
 public:
  virtual std::vector<Method> Methods() = 0;
  // Whether clients should call it, from now on.
  virtual void SetReady(bool ready) = 0;
};

}  // namespace posenc::server
