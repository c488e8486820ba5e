// Answers that wait on their way to a socket while the thread that made them
// has more calls at hand.
//
// gRPC writes to a connection as soon as a call is answered: a system call for
// each, which takes longer than all that we do for a small call. While one
// write to a connection is under way, though, gRPC collects what comes after it
// for the next one. So a thread lets one write of a burst go at once, and holds
// the next one back until nothing is left in its queue:
//
//   answers   1      2       3  4  5  6 .. n    the queue is empty
//   writes    1 at once      2 is held          2, then 3 to n in one
//
// Only posencd stands in for the function by which gRPC writes
// (server/grpc_writes.cc). Without it nothing is ever held.

#pragma once

#include <functional>
#include <utility>
#include <vector>

namespace posenc::server {

// One for each thread that answers calls, which makes it, and to which its
// functions belong.
class HeldWrites final {
 public:
  HeldWrites();
  ~HeldWrites();
  HeldWrites(const HeldWrites&) = delete;
  HeldWrites& operator=(const HeldWrites&) = delete;

  // While one exists, this thread's next write may be held back. Not more: gRPC
  // writes to a connection with TLS by two calls, one within the other.
  class Allowed {
   public:
    explicit Allowed(bool allowed);
    ~Allowed();
    Allowed(const Allowed&) = delete;
    Allowed& operator=(const Allowed&) = delete;
  };

  // Where the write that gRPC is about to do on this thread is to be held back;
  // null if it may go.
  static HeldWrites* ForNext();
  // `write` is called by Release(), as gRPC calls its own functions: it may
  // write, and go on with what follows a write.
  void Hold(std::function<void()> write) { held_.push_back(std::move(write)); }

  // Whether a write was let go or held since the last Release().
  bool begun() const { return begun_; }
  void Release();

 private:
  std::vector<std::function<void()>> held_;
  bool begun_ = false;
};

}  // namespace posenc::server
