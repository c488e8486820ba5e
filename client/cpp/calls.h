// How the calls of a Client are made.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "bulk_message.h"
#include "channels.h"
#include "grpcpp/client_context.h"
#include "posenc/client.h"

namespace posenc {

using Stub = v1::PositionalEncodingService::StubInterface;

absl::Status ToAbsl(const grpc::Status& status);

absl::Status SetDeadline(absl::Duration timeout, grpc::ClientContext* context);

// Protobuf would abort or wrap around beyond 2 GiB - 1, before any server sees
// it.
absl::Status CheckBytes(std::int64_t bytes);

// A bulk call's request, and where its response's tensors go.
struct BulkRequest {
  const google::protobuf::Message* message;
  std::vector<TensorField> tensors;
  std::shared_ptr<const void> owner;  // of the tensors' bytes
};
struct BulkResponse {
  google::protobuf::Message* message;
  std::vector<int> tensors;  // field numbers
  std::vector<Output> into;  // one for each
};

class Client::Calls {
 public:
  explicit Calls(const ClientOptions& options);
  Calls(std::shared_ptr<grpc::Channel> channel, absl::Duration timeout);
  Calls(std::shared_ptr<Stub> stub, absl::Duration timeout);

  Stub* stub() const { return stub_.get(); }
  bool can_stream() const { return channels_ != nullptr; }
  std::int64_t max_message_bytes() const { return max_message_bytes_; }

  absl::Duration timeout(const CallOptions& options) const {
    return options.timeout.value_or(timeout_);
  }

  // Whether a message of so many bytes goes as a stream instead.
  bool MustStream(std::int64_t bytes,
                  absl::Span<const TensorField> tensors) const;

  // What the server recommends, asked for once; never more than a message.
  std::int64_t ChunkBytes();

  // Whether an encoding has several position axes; presets are resolved.
  absl::StatusOr<bool> SeveralAxes(const v1::RopeSource& rope,
                                   const CallOptions& options);

  // `method` is one of the stub's unary ones.
  template <typename Method, typename Request, typename Response>
  absl::Status Call(Method method, const Request& request,
                    const CallOptions& options, Response* response) const {
    grpc::ClientContext context;
    absl::Status status = SetDeadline(timeout(options), &context);
    if (status.ok()) {
      status = CheckBytes(static_cast<std::int64_t>(request.ByteSizeLong()));
    }
    if (!status.ok()) return status;
    return ToAbsl((stub_.get()->*method)(&context, request, response));
  }

  // The same with tensors. `name` is the method's; `expected` is about how many
  // bytes come back, where these are more than are sent.
  template <typename Method, typename Request, typename Response>
  absl::StatusOr<TakenTensors> Bulk(const char* name, Method method,
                                    std::int64_t expected, Request* request,
                                    std::vector<TensorField> tensors,
                                    Response* response, std::vector<int> fields,
                                    std::vector<Output> into,
                                    const CallOptions& options) {
    BulkResponse wanted{response, std::move(fields), std::move(into)};
    if (channels_ != nullptr) {
      return BulkUnary(name, {request, std::move(tensors), nullptr}, wanted,
                       expected, options);
    }
    absl::Status status = CheckBytes(MessageBytes(*request, tensors));
    if (!status.ok()) return status;
    SetTensors(tensors, request);
    status = Call(method, *request, options, response);
    if (!status.ok()) return status;
    return TakeTensors(ReceivedMessage::Of(wanted.tensors, response),
                       wanted.into);
  }

  // Gives the next request of a stream; false where there is none.
  using NextRequest = std::function<absl::StatusOr<bool>(BulkRequest*)>;
  using TakeResponse = std::function<absl::Status(const grpc::ByteBuffer&)>;

  // `announced` is the size of the largest message; 0 leaves it out. Bounds the
  // messages where it is set.
  absl::Status Stream(const char* name, std::int64_t announced, bool one_to_one,
                      const NextRequest& next, const TakeResponse& take,
                      const CallOptions& options);

 private:
  absl::StatusOr<TakenTensors> BulkUnary(const char* name,
                                         const BulkRequest& request,
                                         const BulkResponse& response,
                                         std::int64_t expected,
                                         const CallOptions& options);

  // Returns when everything lent has come back. The call is over.
  void Recall(const Loans& loans, std::shared_ptr<grpc::Channel> channel);

  const std::unique_ptr<Channels> channels_;  // null: stub only
  const std::shared_ptr<Stub> stub_;
  const absl::Duration timeout_;
  const std::int64_t max_message_bytes_;
  const std::int64_t stream_above_bytes_;

  std::mutex mutex_;
  absl::optional<std::int64_t> chunk_bytes_;  // guarded by mutex_
};

}  // namespace posenc
