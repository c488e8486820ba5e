// How a Client makes its calls: over which connection, with which deadline, in
// how many bytes, and what becomes of the tensors on both ways.
//
// There are four kinds of calls:
// - Call(): a small unary call over the generated stub.
// - Bulk(): a unary call with tensors. It goes over a generic stub, so that the
//   tensors' bytes are sent without a copy, and copied once when they come.
// - Stream(): a bidirectional stream of bulk messages.
// - Receive(): one small request, a stream of bulk responses.
// A client that was made of a stub alone has the first two only, and copies
// tensors as the generated code does.
//
// Calls is shared by all copies of a Client and is safe for any number of
// threads. A call runs in its caller's thread from beginning to end; no lock is
// held while it waits for the server.

#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "bulk_message.h"
#include "channels.h"
#include "grpcpp/client_context.h"
#include "posenc/client.h"
#include "regions.h"

namespace posenc {

using Stub = v1::PositionalEncodingService::StubInterface;

// Keeps the server's google.rpc.Status as a payload (status_type.h).
absl::Status ToAbsl(const grpc::Status& status);

// The error with the id of the call that it ended, unless it has one: a
// stream's callback may have made calls of its own.
absl::Status WithRequestId(absl::Status status, const std::string& request_id);

// DEADLINE_EXCEEDED if the timeout is over already; infinity sets none.
absl::Status SetDeadline(absl::Duration timeout, grpc::ClientContext* context);

// RESOURCE_EXHAUSTED from 2 GiB on: protobuf would abort or wrap around before
// any server sees the message.
absl::Status CheckBytes(std::int64_t bytes);

// True if a message is over a limit of the server's or ours, rather than that
// the server is busy: less at a time may then help, and asking again does not.
bool TooLarge(const absl::Status& status);

// The options of a call that may make several requests: each of these gets what
// remains of the call's own timeout. The client's counts for each request anew.
class WholeCall {
 public:
  explicit WholeCall(const CallOptions& options);
  CallOptions Rest() const;

 private:
  const CallOptions& options_;
  const absl::Time end_;
};

// OK if a result of so many bytes can be put together here. RESOURCE_EXHAUSTED
// if the bytes exceed the machine's memory: a kernel that overcommits memory
// would end the process while the result is written.
absl::Status CheckMemory(std::int64_t bytes);

// The tensors of a unary request, and the size of the whole message.
struct SentTensors {
  std::vector<TensorField> fields;
  std::int64_t message_bytes = 0;
};

// The tensors of a unary response, and the memory for them.
struct WantedTensors {
  std::vector<int> fields;   // numbers
  std::vector<Output> into;  // one for each
  // About how many bytes come back, if more than are sent.
  std::int64_t expected_bytes = 0;
  // Bytes that each tensor will have, if that is known; else negative, or
  // empty. Memory of this size may be the server's to write.
  std::vector<std::int64_t> exactly;
  // Of which type and shape each tensor must be; unset, or empty: not known.
  std::vector<absl::optional<TensorView>> like;
};

// A message of a stream. Everything is borrowed until it has been written.
struct StreamMessage {
  const google::protobuf::Message* message = nullptr;
  std::vector<TensorField> tensors;
  // Keeps the tensors' bytes alive until gRPC lets go of them; if it is unset
  // they must stay until the call returns.
  std::shared_ptr<const void> owner;
};

class Client::Calls {
 public:
  explicit Calls(const ClientOptions& options);
  Calls(std::shared_ptr<grpc::Channel> channel, absl::Duration timeout);
  Calls(std::shared_ptr<Stub> stub, absl::Duration timeout);

  Stub* stub() const { return stub_.get(); }
  Regions& regions() { return regions_; }
  bool can_stream() const { return channels_ != nullptr; }
  std::int64_t max_message_bytes() const { return max_message_bytes_; }
  // Larger messages go as a stream if their tensors can be cut.
  std::int64_t stream_above_bytes() const { return stream_above_bytes_; }

  absl::Duration timeout(const CallOptions& options) const {
    return options.timeout.value_or(timeout_);
  }

  // Size of a stream's messages: what the server recommends, never more than a
  // message may have. Asks the server if it has not told yet; threads that come
  // at the same time each ask for themselves, so that none waits for another's
  // timeout. An error only if the deadline passes: the stream would wait for as
  // long again.
  absl::StatusOr<std::int64_t> ChunkBytes(const CallOptions& options);

  // Whether an encoding has several position axes. Presets and configurations
  // are resolved by the server.
  absl::StatusOr<bool> SeveralAxes(const v1::RopeSource& rope,
                                   const CallOptions& options);

  // To be called for each context: sets the deadline, and what names the call.
  // Returns its request id. Fails if the deadline is over, or if the client's
  // credentials are of no use.
  absl::StatusOr<std::string> Begin(const CallOptions& options,
                                    grpc::ClientContext* context) const;

  // What the caller is told of a call that the server, or gRPC, ended so: adds
  // the request id, the target of a server that is not there, and what versions
  // the two sides have if the server does not know what was asked. For that the
  // server is asked until `deadline`, the call's own, at most.
  absl::Status Ended(const absl::Status& status, const std::string& request_id,
                     std::chrono::system_clock::time_point deadline) const;

  // `method` is one of the stub's unary ones.
  template <typename Method, typename Request, typename Response>
  absl::Status Call(Method method, const Request& request,
                    const CallOptions& options, Response* response) const {
    grpc::ClientContext context;
    const absl::StatusOr<std::string> id = Begin(options, &context);
    if (!id.ok()) return id.status();
    const absl::Status status =
        CheckBytes(static_cast<std::int64_t>(request.ByteSizeLong()));
    if (!status.ok()) return WithRequestId(status, *id);
    return Ended(ToAbsl((stub_.get()->*method)(&context, request, response)),
                 *id, context.deadline());
  }

  // The same, with the response as the result.
  template <typename Request, typename Response>
  absl::StatusOr<Response> Answer(
      grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                   Response*),
      const Request& request, const CallOptions& options) const {
    Response response;
    const absl::Status status = Call(method, request, options, &response);
    if (!status.ok()) return status;
    return response;
  }

  // The same with tensors, which are not set in `request`. `name` and `method`
  // are of one RPC: which of them is needed depends on what this client was
  // made of. `response` gets everything but the tensors' bytes, which go to
  // `wanted.into`.
  template <typename Method, typename Request, typename Response>
  absl::StatusOr<ReceivedTensors> Bulk(const char* name, Method method,
                                       Request* request,
                                       const SentTensors& sent,
                                       Response* response,
                                       const WantedTensors& wanted,
                                       const CallOptions& options) {
    if (channels_ != nullptr) {
      return BulkUnary(name, *request, sent, response, wanted, options);
    }
    absl::Status status = CheckBytes(sent.message_bytes);
    if (!status.ok()) return status;
    SetTensors(sent.fields, request);
    status = Call(method, *request, options, response);
    if (!status.ok()) return status;
    return TakeTensors(ReceivedMessage::Of(wanted.fields, response),
                       wanted.into, wanted.like);
  }

  // Gives the next message of a stream; false if there is none.
  using NextMessage = std::function<absl::StatusOr<bool>(StreamMessage*)>;
  // Takes the next response.
  using TakeResponse = std::function<absl::Status(const grpc::ByteBuffer&)>;

  // Runs a bidirectional stream, which answers every message with one response.
  // `announced` bounds the size of its messages and is told to the server; 0
  // leaves that out. Both functions are called in this thread; their first
  // error ends the call and is returned.
  absl::Status Stream(const char* name, std::int64_t announced,
                      const NextMessage& next, const TakeResponse& take,
                      const CallOptions& options) {
    return RunStream(name, announced, /*one_to_one=*/true, next, take, options);
  }

  // Sends `request` and gives every response to `take`, in this thread, with
  // the tensors of its fields `numbers` still in gRPC's memory. The first error
  // of `take` ends the call and is returned.
  template <typename Response, typename Take>
  absl::Status Receive(const char* name,
                       const google::protobuf::Message& request,
                       const std::vector<int>& numbers, const Take& take,
                       const CallOptions& options) {
    const std::int64_t bytes = MessageBytes(request, {});
    const absl::Status status = CheckBytes(bytes);
    if (!status.ok()) return status;
    bool asked = false;
    return RunStream(
        name, bytes, /*one_to_one=*/false,
        [&](StreamMessage* next) -> absl::StatusOr<bool> {
          next->message = &request;
          return !std::exchange(asked, true);
        },
        [&](const grpc::ByteBuffer& buffer) -> absl::Status {
          Response response;
          const absl::StatusOr<ReceivedMessage> received =
              ReceivedMessage::Parse(buffer, numbers, &response);
          if (!received.ok()) return received.status();
          return take(response, *received);
        },
        options);
  }

 private:
  // Passes by place what lies in regions, and sends it if the server does not
  // take it so.
  absl::StatusOr<ReceivedTensors> BulkUnary(
      const char* name, const google::protobuf::Message& request,
      const SentTensors& sent, google::protobuf::Message* response,
      const WantedTensors& wanted, const CallOptions& options);
  // once: never sent again.
  absl::StatusOr<ReceivedTensors> SendUnary(
      const char* name, const google::protobuf::Message& request,
      const SentTensors& sent, google::protobuf::Message* response,
      const WantedTensors& wanted, bool once, const CallOptions& options);

  absl::Status RunStream(const char* name, std::int64_t announced,
                         bool one_to_one, const NextMessage& next,
                         const TakeResponse& take, const CallOptions& options);

  // "; the server is posencd 0.1.0, this client 0.2.0": asks the server, until
  // `deadline` at most. Empty if both are the same.
  std::string VersionsText(
      std::chrono::system_clock::time_point deadline) const;

  // Returns when everything lent has come back. The call is over.
  void Recall(const Loans& loans, Channels::Lease lease);

  const std::unique_ptr<Channels> channels_;  // null if there is a stub only
  const std::shared_ptr<Stub> stub_;
  const absl::Duration timeout_;
  const std::string request_id_, traceparent_;  // of calls without their own
  const std::int64_t max_message_bytes_;
  const std::int64_t stream_above_bytes_;
  Regions regions_;

  std::atomic<std::int64_t> chunk_bytes_{0};  // 0: the server has not told
};

}  // namespace posenc
