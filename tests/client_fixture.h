// A service of the test's own on a real socket, and how a client finds it.

#pragma once

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "posenc/client.h"
#include "posenc/rpc/status.pb.h"
#include "tests/tensor_bytes.h"

namespace posenc {

// As posenc answers; message_index only where there is a stream.
inline grpc::Status Error(grpc::StatusCode code, const std::string& reason,
                          const std::string& message_index) {
  rpc::ErrorInfo info;
  info.set_domain("posenc");
  info.set_reason(reason);
  (*info.mutable_metadata())["messageIndex"] = message_index;
  rpc::Status details;
  google::protobuf::Any* const detail = details.add_details();
  detail->set_type_url("type.googleapis.com/google.rpc.ErrorInfo");
  detail->set_value(info.SerializeAsString());
  return {code, "scripted", details.SerializeAsString()};
}

template <typename Service>
class ServiceTest : public testing::Test {
 protected:
  ServiceTest() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port);
    builder.SetMaxReceiveMessageSize(512 << 20);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    options_.target = absl::StrCat("127.0.0.1:", port);
  }

  Service service_;
  std::unique_ptr<grpc::Server> server_;
  ClientOptions options_;
};

}  // namespace posenc
