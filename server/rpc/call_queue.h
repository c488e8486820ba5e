// Takes calls from gRPC as they arrive, and runs what happens to them on
// threads of its own.
//
// Past capacity most calls are refused, and most of a refusal's cost is waking
// up for it, reading a socket for it and writing to one. So a thread that has
// refused a call, and finds the sockets empty, rests before it looks at them
// again, and then takes what has come meanwhile together. A thread that finds
// them empty no more tells how long calls may have waited in them.
//
// Order: AddTo(builder), BuildAndStart(), Start(); then the server's Shutdown()
// and Wait(), then Stop().

#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "grpcpp/completion_queue.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "server/rpc/peer_stream.h"

namespace posenc::server {

class CallQueue {
 public:
  class Service {
   public:
    // A call's headers have come. Refuses it (Finish()), or sets a reactor that
    // answers it.
    virtual void Begin(PeerStream* stream) = 0;
    // A call's headers have come, but its peer is gone.
    virtual void Gone(const PeerStream& stream) = 0;
    // Of a thread's time, so much went into refusing calls.
    virtual void Refused(std::chrono::nanoseconds spent) = 0;

   protected:
    ~Service() = default;
  };

  // Threads of a server that computes on so many.
  static int ThreadsFor(int compute_threads);

  explicit CallQueue(Service* service) : service_(service) {}
  ~CallQueue() { Stop(); }

  // Adds the queue, as what gets every call that no other service has.
  void AddTo(grpc::ServerBuilder* builder);
  // Begins to take the server's calls. The server lives until Stop().
  void Start(grpc::Server* server, int threads);
  // Waits until every call has ended: the server cancels them when it shuts
  // down, but does not wait for what we still do about them. May be called
  // again, and if nothing was started.
  void Stop();

 private:
  friend class PeerStream;

  // Of one thread.
  struct Looks;

  // Whether gRPC's operations may be started on this thread. If the queue has
  // one thread, they are its own: whoever else starts one while that thread
  // works on the same connection leaves its work to a thread of gRPC's
  // executor, which costs more than most calls.
  bool MayOperate() const;
  // Another stream waits for the next call.
  void AwaitCall();
  void Delete(PeerStream* stream);
  const PeerStream::Event* Next(Looks* looks, bool* ok);
  const PeerStream::Event* React(const PeerStream::Event& event, Looks* looks,
                                 bool* ok);
  // The event that this thread's last reaction has brought about; or null.
  const PeerStream::Event* Cached(bool* ok);
  void Run();

  Service* const service_;
  // Never asked for a call: without it, gRPC would refuse them all itself.
  grpc::AsyncGenericService calls_;
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  grpc_server* server_ = nullptr;
  std::atomic<std::thread::id> only_thread_{};
  // A call has ended without our doing since a thread looked.
  std::atomic<bool> call_cancelled_{false};
  std::vector<std::thread> threads_;

  // Streams that are not deleted. Each is replaced before it ends, so that
  // there are none only once the server has shut down; gRPC allows no operation
  // in a queue that is shut down.
  std::mutex mutex_;
  std::condition_variable none_left_;
  int streams_ = 0;  // guarded by mutex_
  // Memory of streams that were deleted, for the next ones. Guarded by mutex_.
  std::vector<void*> spare_;
};

}  // namespace posenc::server
