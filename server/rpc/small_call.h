// A call of a service beside the contract's, health or reflection, or that asks
// KServe's service about itself: messages of 4 KiB at most, no turn, and no
// claim of memory.
//
// It begins at its headers, as the contract's calls do, so that a message that
// stops half-way is bounded in the same ways: by Deadlines in time, whatever
// deadline the client has set, and by Transfers in memory. They end the call at
// gRPC's side, and the operation under way fails.
//
// One operation of gRPC's is under way at a time, started in the reaction to
// the one before, so that no lock is needed. A service that starts one at
// another time sees to that itself.
//
// Lifetime: gRPC keeps a plain pointer until OnDone(). The call owns itself
// until then; whoever ends it from another thread holds another reference.

#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"
#include "grpcpp/support/byte_buffer.h"
#include "server/budget/deadlines.h"
#include "server/budget/transfers.h"
#include "server/rpc/call_observer.h"
#include "server/rpc/call_spec.h"
#include "server/rpc/peer_stream.h"

namespace posenc::server {

class SmallCall : public PeerStream::Reactor,
                  public std::enable_shared_from_this<SmallCall>,
                  private Transfers::Owner,
                  private Deadlines::Owner {
 public:
  // What bounds messages under way, and who is told of the call. Outlive it.
  struct Bounds {
    Transfers* transfers;
    Deadlines* deadlines;
    CallObserver* observer;  // null: nobody wants to know
  };

  // Whether the caller must show a token, where callers must.
  bool needs_token() const { return needs_token_; }
  // What observers are told of it. The name is empty if they are not.
  const CallSpec& spec() const { return spec_; }

  // Reads the first message. To be called once, on a call made with
  // make_shared.
  void Start(PeerStream* stream, const Bounds& bounds);

 protected:
  // A call that observers are not told of, and that needs no token.
  SmallCall() = default;
  SmallCall(const CallSpec& spec, bool needs_token)
      : spec_(spec), needs_token_(needs_token) {}

  // A message has come, whole. Starts the next operation, or arranges for it.
  virtual void OnMessage(absl::string_view message) = 0;
  // What Write() was given has been taken, or never will be. Likewise.
  virtual void OnWritten(bool taken) = 0;
  // No message comes any more.
  virtual void OnLastMessage() = 0;
  // gRPC has forgotten the call.
  virtual void OnEnd() {}

  // Whom the call is from, while gRPC has not forgotten it.
  std::string Peer() const { return stream_->headers().peer(); }

  // The operations.
  void Read();
  void Write(const google::protobuf::Message& message);
  void WriteLast(const google::protobuf::Message& message);
  void End(const absl::Status& status);

 private:
  void OnReadDone(bool ok) final;
  void OnWriteDone(bool ok) final;
  void OnDone() final;

  std::shared_ptr<void> KeepAlive() final { return shared_from_this(); }
  std::uint64_t PeerId() const final { return stream_->headers().peer_id(); }
  void ShrinkClaim(std::uint64_t /*message*/) final {}  // there is none
  void ExpectMore(std::uint64_t /*message*/, std::int64_t /*holds*/) final {}
  bool CutOff(Transfers::Direction direction, std::uint64_t message,
              const absl::Status& why) final;
  void Expire() final;

  void Observe();
  // The message as it goes out, counted.
  grpc::ByteBuffer Sent(const google::protobuf::Message& message);
  void BeginTransfer(Transfers::Direction direction);
  void EndTransfer();
  // Ends the call at gRPC's side, whatever is under way there.
  void Cancel(const absl::Status& why);

  const CallSpec spec_ = {};
  const bool needs_token_ = false;
  PeerStream* stream_ = nullptr;
  Bounds bounds_ = {};
  CallRecord record_;    // what is known before the end
  absl::Status status_;  // what the peer was told
  std::shared_ptr<SmallCall> self_;
  Transfers::Message message_;
  std::optional<Deadlines::Entry> deadline_;

  std::mutex mutex_;
  bool done_ = false;  // stream_ is gone
};

// A service of such calls.
class SmallService {
 public:
  virtual ~SmallService() = default;
  // A call of this path ("/grpc.health.v1.Health/Check") over this connection;
  // null if the service has none. An error refuses the call at its headers.
  virtual absl::StatusOr<std::shared_ptr<SmallCall>> Make(
      absl::string_view path, std::uint64_t connection) = 0;
  // Why there is none, if that is known better than that there is none.
  virtual absl::Status WhyNot(absl::string_view /*path*/) const {
    return absl::OkStatus();
  }
};

}  // namespace posenc::server
