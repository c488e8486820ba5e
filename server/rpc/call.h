// One call in progress: reads messages, runs what the session makes of them,
// writes responses, each while the others go on, a few messages ahead at most.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "core/runtime/pool.h"
#include "grpcpp/generic/async_generic_service.h"
#include "server/wire/admission.h"
#include "server/wire/calls_in_progress.h"
#include "server/wire/deadlines.h"
#include "server/wire/response_memory.h"
#include "server/wire/session.h"

namespace posenc::server {

// What calls share. Outlives them.
struct CallResources {
  core::ComputePool* pool;
  Admission* admission;
  ResponseMemory* memory;
  Deadlines* deadlines;
  CallsInProgress* calls;
  std::int64_t max_request_bytes;
};

class CallReactor final : public grpc::ServerGenericBidiReactor,
                          private Admission::Waiter,
                          public Deadlines::Call,
                          public std::enable_shared_from_this<CallReactor> {
 public:
  // One message each way, or streams of them.
  enum class Kind { kUnary, kStream };

  // Deletes itself when gRPC is done with it.
  static grpc::ServerGenericBidiReactor* Start(
      grpc::CallbackServerContext* context, Kind kind,
      std::unique_ptr<Session> session, const CallResources& resources);

  CallReactor(grpc::CallbackServerContext* context, Kind kind,
              std::unique_ptr<Session> session, const CallResources& resources);

 private:
  // Messages, and responses, that wait in a stream for what comes next.
  static constexpr std::size_t kAhead = 2;

  enum class Room { kNone, kWaiting, kHeld };
  enum class Action { kNone, kRead, kCompute, kWrite, kFinish };

  // gRPC's reactions.
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  void Admitted() override;
  void Refused() override;
  void Expire() override;

  void Enter();
  // Does whatever can be done now. Called after every change, without lock.
  void Step();
  Action Decide();
  void StartCompute();
  // Plans the next response, and runs it here where it is small or `here` says
  // so.
  void Plan(bool here);
  // Runs what is planned: at once, or where room for it has been claimed.
  void Run();
  void RunPlaced();
  // Names the message where there are many.
  void FailComputing(const absl::Status& error);
  absl::StatusOr<RequestMessage> TakeMessage();
  // Ends the call with this error, at once or after the responses before it.
  void Fail(absl::Status error, bool drop_responses);

  grpc::CallbackServerContext* const context_;
  const Kind kind_;
  const std::unique_ptr<Session> session_;
  const CallResources resources_;
  const bool in_process_;
  std::optional<std::int64_t> announced_;  // bytes of a message
  std::shared_ptr<CallReactor> self_;
  std::optional<Deadlines::Entry> deadline_;

  // Read by tiles.
  std::atomic<bool> stop_{false};

  std::mutex mutex_;
  Room room_ = Room::kNone;
  std::int64_t claimed_ = 0;
  int starting_ = 0;  // threads between a decision and its effect
  bool reading_ = false, read_all_ = false;
  bool computing_ = false;
  bool waiting_for_room_ = false;  // of a response: computing_ too
  bool session_busy_ = false;      // it may have more responses
  bool writing_ = false;
  bool finished_ = false;
  std::int64_t messages_ = 0;
  // The first is next.
  absl::InlinedVector<RequestMessage, kAhead> received_;
  absl::InlinedVector<grpc::ByteBuffer, kAhead> computed_;
  absl::Status error_;

  // Of the thread that computes: what it is at, and the message's index.
  std::unique_ptr<PlannedResponse> planned_;
  std::int64_t index_ = 0;

  grpc::ByteBuffer incoming_, outgoing_;
};

}  // namespace posenc::server
