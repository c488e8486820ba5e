// A server in this process, a channel to it over TCP, and what its errors say.

#pragma once

#include <chrono>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/security/credentials.h"
#include "gtest/gtest.h"
#include "posenc/rpc/status.pb.h"
#include "posenc/v1/service.grpc.pb.h"
#include "server/server.h"

namespace posenc::server {

// What google.rpc.Status in a call's details holds.
struct Details {
  std::string reason;
  std::string domain;
  std::map<std::string, std::string> metadata;
  std::string violated_field;  // BadRequest
  std::string violation;
  bool has_bad_request = false;
  bool has_retry_info = false;
};

inline Details ReadDetails(const grpc::Status& status) {
  Details out;
  rpc::Status rich;
  EXPECT_TRUE(rich.ParseFromString(status.error_details()));
  if (!status.error_details().empty()) {
    EXPECT_EQ(rich.code(), status.error_code());
    EXPECT_EQ(rich.message(), status.error_message());
  }
  const std::string prefix = "type.googleapis.com/google.rpc.";
  for (const google::protobuf::Any& any : rich.details()) {
    if (any.type_url() == prefix + "ErrorInfo") {
      rpc::ErrorInfo info;
      EXPECT_TRUE(info.ParseFromString(any.value()));
      out.reason = info.reason();
      out.domain = info.domain();
      out.metadata = {info.metadata().begin(), info.metadata().end()};
    } else if (any.type_url() == prefix + "BadRequest") {
      rpc::BadRequest bad;
      EXPECT_TRUE(bad.ParseFromString(any.value()));
      out.has_bad_request = true;
      EXPECT_EQ(bad.field_violations_size(), 1);
      out.violated_field = bad.field_violations(0).field();
      out.violation = bad.field_violations(0).description();
    } else if (any.type_url() == prefix + "RetryInfo") {
      out.has_retry_info = true;
    } else {
      ADD_FAILURE() << "unexpected detail " << any.type_url();
    }
  }
  return out;
}

// No test waits longer than this for anything; it is no expectation.
inline std::chrono::system_clock::time_point Deadline() {
  return std::chrono::system_clock::now() + std::chrono::seconds(60);
}

inline std::shared_ptr<grpc::Channel> Connect(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  // A connection of its own for each channel.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(),
                                   arguments);
}

// One call without generated code: a stream of raw messages.
class RawCall {
 public:
  RawCall(const std::shared_ptr<grpc::Channel>& channel,
          const std::string& method,
          const std::map<std::string, std::string>& metadata = {})
      : stub_(channel) {
    context_.set_deadline(Deadline());
    for (const auto& [key, value] : metadata) {
      context_.AddMetadata(key, value);
    }
    stream_ = stub_.PrepareCall(&context_, method, &queue_);
    stream_->StartCall(nullptr);
    Await();
  }
  ~RawCall() {
    context_.TryCancel();
    queue_.Shutdown();
    void* tag;
    bool ok;
    while (queue_.Next(&tag, &ok)) {
    }
  }

  void WriteLast(const std::string& bytes) {
    const grpc::Slice slice(bytes);
    stream_->WriteLast(grpc::ByteBuffer(&slice, 1), {}, nullptr);
    Await();
  }
  bool Read(std::string* bytes) {
    grpc::ByteBuffer buffer;
    stream_->Read(&buffer, nullptr);
    if (!Await()) return false;
    grpc::Slice slice;
    EXPECT_TRUE(buffer.DumpToSingleSlice(&slice).ok());
    bytes->assign(reinterpret_cast<const char*>(slice.begin()), slice.size());
    return true;
  }
  void ReadHeaders() {
    stream_->ReadInitialMetadata(nullptr);
    Await();
  }
  grpc::Status Finish() {
    grpc::Status status;
    stream_->Finish(&status, nullptr);
    Await();
    return status;
  }

 private:
  bool Await() {
    void* tag;
    bool ok = false;
    return queue_.Next(&tag, &ok) && ok;
  }

  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
};

inline grpc::Status RawUnary(const std::shared_ptr<grpc::Channel>& channel,
                             const std::string& method,
                             const std::string& request,
                             std::string* response) {
  RawCall call(channel, method);
  call.WriteLast(request);
  call.Read(response);
  return call.Finish();
}

class ServerTest : public testing::Test {
 protected:
  using Stub = v1::PositionalEncodingService::Stub;

  void SetUp() override {
    ServerOptions options;
    options.listen = {"127.0.0.1:0"};
    Start(options);
  }

  void Start(const ServerOptions& options) {
    absl::StatusOr<std::unique_ptr<Server>> server = Server::Start(options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    channel_ = Connect(server_->addresses()[0]);
    stub_ = v1::PositionalEncodingService::NewStub(channel_);
  }

  // Calls a unary method of the stub.
  template <typename Method, typename Request, typename Response>
  grpc::Status Call(Method method, const Request& request, Response* response) {
    grpc::ClientContext context;
    context.set_deadline(Deadline());
    return (stub_.get()->*method)(&context, request, response);
  }
  grpc::Status Apply(const v1::ApplyRopeRequest& request,
                     v1::ApplyRopeResponse* response) {
    return Call(&Stub::ApplyRope, request, response);
  }
  grpc::Status Table(const v1::BuildTableRequest& request,
                     v1::BuildTableResponse* response) {
    return Call(&Stub::BuildTable, request, response);
  }
  grpc::Status Resolve(const v1::ResolveRopeRequest& request,
                       v1::ResolveRopeResponse* response) {
    return Call(&Stub::ResolveRope, request, response);
  }

  std::unique_ptr<Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<Stub> stub_;
};

template <typename T>
void SetTensor(v1::Dtype dtype, const std::vector<std::int64_t>& shape,
               const std::vector<T>& elements, v1::Tensor* tensor) {
  tensor->Clear();
  tensor->set_dtype(dtype);
  tensor->mutable_shape()->Add(shape.begin(), shape.end());
  tensor->set_data(elements.data(), elements.size() * sizeof(T));
}

template <typename T>
std::vector<T> Elements(const v1::Tensor& tensor) {
  EXPECT_EQ(tensor.data().size() % sizeof(T), 0u);
  std::vector<T> out(tensor.data().size() / sizeof(T));
  std::memcpy(out.data(), tensor.data().data(), out.size() * sizeof(T));
  return out;
}

}  // namespace posenc::server
