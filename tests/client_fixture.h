// A service of the test's own on a real socket, and how a client finds it.

#pragma once

#include <memory>

#include "absl/strings/str_cat.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "posenc/client.h"
#include "tests/tensor_bytes.h"

namespace posenc {

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
