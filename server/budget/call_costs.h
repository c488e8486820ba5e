// What calls of each kind cost the machine, learned from those that have ended.
//
// Calls are of one kind if they are of the same RPC and announce about as many
// bytes, up to a power of two; calls that announce nothing are a kind of their
// own. The cost of a call is its share: the time for which the whole server
// would have worked for it alone. With n calls in service, each gets 1/n of the
// server, so that a share is the integral of 1/n over the time that the call
// was in service. Time by the clock alone would count what its neighbours cost.

#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace posenc::server {

// Not safe for many threads: Turns guards it.
class CallCosts {
 public:
  // Methods are numbered [0, methods).
  explicit CallCosts(int methods);

  // A call that moves no more than this may count as cheap. A share is measured
  // roughly, bytes are not: at 14,000 calls a second for tables of 256 KiB, 1.1
  // times the capacity, a server that took these for cheap now and then refused
  // none, and answered 5,000 in time instead of 12,800 (one run, when a refusal
  // cost half as much again).
  static constexpr std::int64_t kCheapBytes = 64 << 10;

  // The kind of a call, for the functions below.
  static int KindOf(int method, std::optional<std::int64_t> announced);

  // Seconds of share, and bytes of requests and responses: the geometric mean
  // of the last 32 calls of the kind. What an RPC has to do may differ by
  // orders of magnitude for requests of the same size, and one table of
  // gigabytes must not make every table expensive. Before the first call has
  // ended, a guess.
  double share(int kind) const;
  double bytes(int kind) const;
  bool known(int kind) const { return of_[kind].calls > 0; }

  // Whether refusing such a call would cost about as much as answering it. Not
  // before the first has ended, and never if it announces a large message, or
  // calls of its kind get large ones. A kind becomes cheap while the server is
  // calm, and stays so until it seems to cost much more: past the capacity,
  // shares of small calls seem larger, and to refuse them all costs more than
  // to answer them all.
  bool cheap(int kind) const;

  // A call of the kind has ended. `calm`: none of the kind was refused lately.
  void Learn(int kind, double measured, std::int64_t moved, bool calm);

  // The mean share of a method's calls, over its kinds, each with its weight.
  double ShareOfMethod(int method) const;

 private:
  struct Cost {
    double log_share = 0;  // means of natural logarithms
    double log_bytes = 0;
    int calls = 0;  // that the means are over, 32 at most
    bool cheap = false;
  };

  std::vector<Cost> of_;
};

}  // namespace posenc::server
