// Makes the calls of a Client: selects connections and deadlines, limits sizes,
// and sends and receives the tensors.
//
// There are three kinds of calls. All kinds use a generic stub, so that the
// bytes of tensors are sent without a copy, and are copied only once when they
// arrive:
// - Answer(): a unary call without tensors. Bulk(): a unary call with tensors.
// - StreamBytes(): a bidirectional stream that carries the bytes of tensors.
// - Receive(): one small request, and a stream of bulk responses.
//
// Calls is shared by all copies of a Client and is safe for any number of
// threads. A call runs in its caller's thread from beginning to end; no lock is
// held while it waits for the server.

#pragma once

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
#include "client/cpp/connection/channels.h"
#include "client/cpp/tensors/bulk_message.h"
#include "client/cpp/tensors/regions.h"
#include "grpcpp/client_context.h"
#include "posenc/client.h"

namespace posenc {

// Returns RESOURCE_EXHAUSTED if a message of `bytes` bytes has 2 GiB or more,
// because protobuf would abort or overflow before it sends such a message.
absl::Status CheckBytes(std::int64_t bytes);

// Returns true if a message is over a limit of the server or the client. A
// smaller message may then succeed, but a retry of the same message cannot.
// Returns false for the error of a busy server.
bool TooLarge(const absl::Status& status);

// The options of a call that may make several requests. Each request gets the
// time that remains of CallOptions::timeout. If this timeout is unset, the
// client's timeout applies to each request separately.
class WholeCall {
 public:
  explicit WholeCall(const CallOptions& options);
  CallOptions Rest() const;

 private:
  const CallOptions& options_;
  const absl::Time end_;
};

// Returns RESOURCE_EXHAUSTED if a result of this size exceeds the machine's
// memory: a kernel that overcommits memory would kill the process while the
// result is written.
absl::Status CheckMemory(std::int64_t bytes);

class Calls {
 public:
  explicit Calls(const ClientOptions& options);
  Calls(std::shared_ptr<grpc::Channel> channel, absl::Duration timeout);

  Regions& regions() { return regions_; }
  // ApplyRope and Reposition send a request with more bytes than this as a
  // stream.
  std::int64_t stream_above_bytes() const { return stream_above_bytes_; }

  // Sets the deadline, request id and traceparent of a context. Returns the
  // request id. Fails if the timeout is not positive, or if the client's
  // credentials cannot be used.
  absl::StatusOr<std::string> Begin(const CallOptions& options,
                                    grpc::ClientContext* context) const;

  // Makes the error for the caller from the error of a call that the server or
  // gRPC ended. Adds the request id. Adds the target if no server answered, and
  // the versions of client and server if the server does not know the request.
  // To learn the server's version, Ended() sends a request, which ends at the
  // latest at `deadline`, the deadline of the failed call.
  absl::Status Ended(const absl::Status& status, const std::string& request_id,
                     std::chrono::system_clock::time_point deadline) const;

  // Makes a unary call without tensors, and returns the response.
  template <typename Response>
  absl::StatusOr<Response> Answer(const char* name,
                                  const google::protobuf::Message& request,
                                  const CallOptions& options) {
    Response response;
    const absl::Status status =
        Bulk(name, request, {}, &response, {}, options).status();
    if (!status.ok()) return status;
    return response;
  }

  // Makes a unary call with tensors, which are not set in `request`. The call
  // sends only the places of tensors in regions (v1::SharedMemory), or their
  // bytes if the server shares no memory with this client. `response` gets
  // everything except the tensors' bytes, which go to the outputs of `wanted`.
  // `expected_bytes` is the approximate size of a response that is larger than
  // the request; 0 for other responses.
  absl::StatusOr<ReceivedTensors> Bulk(const std::string& name,
                                       const google::protobuf::Message& request,
                                       absl::Span<const TensorField> sent,
                                       google::protobuf::Message* response,
                                       absl::Span<const WantedTensor> wanted,
                                       const CallOptions& options,
                                       std::int64_t expected_bytes = 0);

  // Runs a stream of bytes: sends `first`, then the bytes of `next` in messages
  // of a few MiB, until `next` returns no bytes. If `lend` is true, the bytes
  // are not copied and must stay valid until the call returns; otherwise they
  // must stay valid until `next` is called again. `take` gets the bytes of all
  // responses, piece by piece. `next` and `take` are called in this thread. The
  // first error of either function ends the call and is returned.
  absl::Status StreamBytes(const std::string& name,
                           const google::protobuf::Message& first,
                           const NextBytes& next, bool lend,
                           const TakeBytes& take, const CallOptions& options);

  // Sends `request` and gives every response to `take`, in this thread. During
  // `take`, the tensors with the field numbers `numbers` are still in gRPC's
  // memory. The first error of `take` ends the call and is returned.
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
        name, bytes,
        [&](grpc::ByteBuffer* next, Loans* loans) -> absl::StatusOr<bool> {
          if (std::exchange(asked, true)) return false;
          *next = FrameMessage(request, {}, loans);
          return true;
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
  // If `once` is true, gRPC never retries the call.
  absl::StatusOr<ReceivedTensors> SendUnary(
      const std::string& name, const google::protobuf::Message& request,
      absl::Span<const TensorField> sent, google::protobuf::Message* response,
      absl::Span<const WantedTensor> wanted, std::int64_t expected_bytes,
      bool once, const CallOptions& options);

  // Makes the next message of a stream; returns false after the last message.
  using NextMessage =
      std::function<absl::StatusOr<bool>(grpc::ByteBuffer* next, Loans* loans)>;
  using TakeResponse = std::function<absl::Status(const grpc::ByteBuffer&)>;

  // `announced` is the size of the largest message.
  absl::Status RunStream(const std::string& name, std::int64_t announced,
                         const NextMessage& next, const TakeResponse& take,
                         const CallOptions& options);

  // Asks the server for its version, and waits at most until `deadline`.
  // Returns "; the server is posencd 0.1.0, this client is 0.2.0", or "" if
  // both versions are the same. If the server's version cannot be read, the
  // text has only the client's version.
  std::string VersionsText(
      std::chrono::system_clock::time_point deadline) const;

  // Waits until gRPC has returned all lent memory. The call must be over.
  void Recall(const Loans& loans, Channels::Lease lease);

  Channels channels_;
  const absl::Duration timeout_;
  const std::string request_id_, traceparent_;  // defaults of the calls
  const std::int64_t max_message_bytes_;
  const std::int64_t stream_above_bytes_;
  Regions regions_;
};

}  // namespace posenc
