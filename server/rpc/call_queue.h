// Takes calls from gRPC as they arrive, and runs what happens to them on
// threads of its own.
//
// Past capacity most calls are refused, and most of a refusal's cost is waking
// up for it, reading a socket for it and writing to one. So one of several
// threads that has refused a call rests before it looks at the sockets again,
// and then takes what has come meanwhile together.
//
// Order: AddTo(builder), BuildAndStart(), Start(); then the server's Shutdown()
// and Wait(), then Stop().

#pragma once

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

  // Another stream waits for the next call.
  void AwaitCall();
  void Delete(PeerStream* stream);
  const PeerStream::Event* Next(bool* rest, bool* ok);
  // The event that this thread's last reaction has brought about; or null.
  const PeerStream::Event* Cached(bool* ok);
  void Run();

  Service* const service_;
  // Never asked for a call: without it, gRPC would refuse them all itself.
  grpc::AsyncGenericService calls_;
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  grpc_server* server_ = nullptr;
  bool rests_ = false;
  std::vector<std::thread> threads_;

  // Streams that are not deleted. Each is replaced before it ends, so that
  // there are none only once the server has shut down; gRPC allows no operation
  // in a queue that is shut down.
  std::mutex mutex_;
  std::condition_variable none_left_;
  int streams_ = 0;  // guarded by mutex_
};

}  // namespace posenc::server
