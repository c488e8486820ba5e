// Tensors that gRPC borrows, the caller's memory for results, and the
// connections for both.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "client/cpp/tensors/bulk_message.h"
#include "client/cpp/tensors/loans.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "posenc/client.h"
#include "tests/fixtures/client.h"

namespace posenc {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

TensorView Heads(absl::Span<const char> bytes) {
  return {v1::DTYPE_FLOAT32,
          {1, 1, 1, static_cast<std::int64_t>(bytes.size() / 4)},
          bytes};
}

ApplyRopeArgs Rotation(absl::Span<const char> q) {
  ApplyRopeArgs args;
  args.q = Heads(q);
  return args;
}

bool NoneOut(const Loans& loans) {
  return loans.AwaitReturn(absl::ZeroDuration());
}

TEST(LoansTest, WaitUntilTheLastReferenceIsGone) {
  const std::string bytes = Bytes(1000);
  Loans loans;
  auto slice = std::make_unique<grpc::Slice>(loans.Lend(bytes));
  auto copy = std::make_unique<grpc::Slice>(slice->sub(10, 500));
  EXPECT_EQ(reinterpret_cast<const char*>(slice->begin()), bytes.data());

  slice.reset();
  EXPECT_FALSE(loans.AwaitReturn(absl::Milliseconds(1)));
  std::thread elsewhere([&] { copy.reset(); });
  EXPECT_TRUE(loans.AwaitReturn(absl::InfiniteDuration()));
  elsewhere.join();
}

v1::ApplyRopeRequest RequestWith(const TensorView* q, const TensorView* k) {
  v1::ApplyRopeRequest request;
  request.mutable_rope()->set_preset("llama-3.1-8b");
  request.mutable_positions()->set_start(-7);
  request.set_layout(v1::LAYOUT_BSHD);
  if (q != nullptr) *request.mutable_q() = ToTensor(*q);
  if (k != nullptr) *request.mutable_k() = ToTensor(*k);
  return request;
}

std::string Flat(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(buffer.Dump(&slices).ok());
  std::string flat;
  for (const grpc::Slice& slice : slices) {
    flat.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return flat;
}

// The sizes are near those at which the length needs another byte, and near the
// greatest size that is copied.
TEST(BulkMessageTest, FramesAreWhatProtobufWrites) {
  for (const std::size_t size : {0, 4, 112, 116, 120, 124, 128, 16368, 16380,
                                 16384, 65532, 65536, 65540, 1 << 21}) {
    const std::string bytes = Bytes(size);
    const TensorView q = Heads(bytes);
    const TensorView k{v1::DTYPE_BFLOAT16, {}, {bytes.data(), size / 2}};
    const v1::ApplyRopeRequest small = RequestWith(nullptr, nullptr);
    Loans loans;

    const std::vector<TensorField> tensors = {{14, &q}, {15, &k}};
    const std::string both = Flat(FrameMessage(small, tensors, &loans));
    EXPECT_TRUE(both == RequestWith(&q, &k).SerializeAsString()) << size;
    EXPECT_EQ(MessageBytes(small, tensors), both.size());
    EXPECT_TRUE(Flat(FrameMessage(small, {{15, &k}}, &loans)) ==
                RequestWith(nullptr, &k).SerializeAsString())
        << size;
    EXPECT_TRUE(NoneOut(loans));
  }
  Loans loans;
  EXPECT_EQ(Flat(FrameMessage(v1::ApplyRopeRequest(), {}, &loans)), "");
}

TEST(BulkMessageTest, LargeTensorsAreLentAndNotCopied) {
  const std::string bytes = Bytes(1 << 20);
  const TensorView q = Heads(bytes);
  Loans loans;
  {
    const grpc::ByteBuffer buffer =
        FrameMessage(RequestWith(nullptr, nullptr), {{14, &q}}, &loans);
    EXPECT_FALSE(NoneOut(loans));
    std::vector<grpc::Slice> slices;
    ASSERT_TRUE(buffer.Dump(&slices).ok());
    EXPECT_EQ(reinterpret_cast<const char*>(slices.back().begin()),
              bytes.data());
  }
  EXPECT_TRUE(NoneOut(loans));
}

TEST(BulkMessageTest, ResponsesAreReadWhereverTheirSlicesEnd) {
  const std::string bytes = Bytes(300);
  const TensorView q = Heads(bytes);
  const std::string wire = RequestWith(nullptr, &q).SerializeAsString();
  for (std::size_t at = 0; at <= wire.size(); ++at) {
    const grpc::Slice slices[] = {grpc::Slice(wire.substr(0, at)),
                                  grpc::Slice(wire.substr(at))};
    v1::ApplyRopeRequest message;
    const auto received =
        ReceivedMessage::Parse(grpc::ByteBuffer(slices, 2), {14, 15}, &message);
    ASSERT_TRUE(received.ok()) << received.status();
    const auto taken = TakeTensors(*received, {{}, {}});
    ASSERT_TRUE(taken.ok()) << taken.status();
    EXPECT_FALSE(taken->views[0].has_value());
    EXPECT_EQ(taken->views[1]->shape, q.shape);
    EXPECT_EQ(AsString(taken->views[1]->bytes), bytes);
    EXPECT_EQ(message.positions().start(), -7);
  }
}

TEST(BulkMessageTest, MalformedMessagesAreInternal) {
  const grpc::Slice slice("\x7a\x7f\x01");
  v1::ApplyRopeResponse message;

  EXPECT_EQ(
      ReceivedMessage::Parse(grpc::ByteBuffer(&slice, 1), {14, 15}, &message)
          .status()
          .code(),
      absl::StatusCode::kInternal);
}

// Echoes, and records callers and requests.
class EchoService : public v1::PositionalEncodingService::Service {
 public:
  struct Seen {
    std::string peer;
    std::string announced;
    std::size_t bytes = 0;
  };

  grpc::Status ApplyRope(grpc::ServerContext* context,
                         const v1::ApplyRopeRequest* request,
                         v1::ApplyRopeResponse* response) override {
    const bool fails = Remember(context, request->ByteSizeLong());
    if (fails) return {grpc::StatusCode::UNAVAILABLE, "later"};
    {
      std::unique_lock<std::mutex> lock(mutex_);
      came_.wait(lock,
                 [this] { return static_cast<int>(seen_.size()) >= together; });
    }
    if (request->has_q()) *response->mutable_q() = request->q();
    if (request->has_k()) *response->mutable_k() = request->k();
    return grpc::Status::OK;
  }
  grpc::Status AddEncoding(grpc::ServerContext* context,
                           const v1::AddEncodingRequest* request,
                           v1::AddEncodingResponse* response) override {
    Remember(context, request->ByteSizeLong());
    *response->mutable_x() = request->x();
    return grpc::Status::OK;
  }
  grpc::Status BuildTable(grpc::ServerContext* context,
                          const v1::BuildTableRequest* request,
                          v1::BuildTableResponse*) override {
    Remember(context, request->ByteSizeLong());
    return grpc::Status::OK;
  }
  grpc::Status GetServerInfo(grpc::ServerContext* context,
                             const v1::GetServerInfoRequest*,
                             v1::GetServerInfoResponse*) override {
    Remember(context, 0);
    return grpc::Status::OK;
  }

  std::vector<Seen> seen() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return seen_;
  }
  std::set<std::string> peers() const {
    std::set<std::string> peers;
    for (const Seen& seen : seen()) peers.insert(seen.peer);
    return peers;
  }

  int failures = 0;  // the first calls fail; set before them
  int together = 0;  // ApplyRope answers once this many calls have come

 private:
  bool Remember(grpc::ServerContext* context, std::size_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    seen_.push_back(
        {context->peer(), MetadataOf(*context, "posenc-message-bytes"), bytes});
    came_.notify_all();
    return static_cast<int>(seen_.size()) <= failures;
  }

  mutable std::mutex mutex_;
  std::condition_variable came_;  // seen_ has another call
  std::vector<Seen> seen_;
};

using BulkTest = ServiceTest<EchoService>;

TEST_F(BulkTest, AnnouncesTheExactSizeOfTheMessage) {
  const Client client = Client::Connect(options_);
  const std::string bytes = Bytes(1 << 20);
  for (const std::size_t size : {4u, 4096u, 1u << 20}) {
    ApplyRopeArgs args;
    args.rope = FromPreset("x");
    args.q = Heads({bytes.data(), size});
    ASSERT_TRUE(client.ApplyRope(args).ok());
  }
  AddEncodingArgs add;
  add.x = Heads(bytes);
  ASSERT_TRUE(client.AddEncoding(add).ok());
  EXPECT_EQ(client.BuildTable(v1::BuildTableRequest()).status().message(),
            "the answer has no table");

  ASSERT_THAT(service_.seen(), SizeIs(5));
  for (const EchoService::Seen& seen : service_.seen()) {
    EXPECT_EQ(seen.announced, absl::StrCat(seen.bytes));
  }
}

TEST_F(BulkTest, ResultsGoToTheCallersOutputs) {
  const Client client = Client::Connect(options_);
  const std::string q = Bytes(100000), k = Bytes(400);
  std::string q_out(q.size(), 'x'), k_out(k.size(), 'x');
  ApplyRopeArgs args;
  args.q = Heads(q);
  args.k = Heads(k);
  args.q_out = absl::MakeSpan(q_out);

  absl::StatusOr<ApplyRopeResult> result = client.ApplyRope(args);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(q_out == q);
  EXPECT_EQ(result->q->bytes.data(), q_out.data());
  EXPECT_EQ(AsString(result->k->bytes), k);

  args.k_out = absl::MakeSpan(k_out);
  result = client.ApplyRope(args);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->k->bytes.data(), k_out.data());
  EXPECT_EQ(k_out, k);
}

TEST_F(BulkTest, ResultsMayReplaceTheInput) {
  for (const auto& client :
       {Client::Connect(options_),
        Client(server_->InProcessChannel(grpc::ChannelArguments()))}) {
    std::string x = Bytes(1 << 20);
    const std::string before = x;
    AddEncodingArgs args;
    args.x = Heads(x);
    args.out = absl::MakeSpan(x);

    const absl::StatusOr<TensorResult> result = client.AddEncoding(args);

    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->tensor.bytes.data(), x.data());
    EXPECT_TRUE(x == before);
  }
}

TEST_F(BulkTest, OutputsOfAnotherSizeAreRefused) {
  const Client client = Client::Connect(options_);
  const std::string bytes = Bytes(64);
  std::string out(60, 'x');
  ApplyRopeArgs args;
  args.k = Heads(bytes);
  args.k_out = absl::MakeSpan(out);
  absl::Status status = client.ApplyRope(args).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "k_output: has 60 bytes; must have 64");
  EXPECT_EQ(ErrorFact(status, "field"), "k_output");
  EXPECT_THAT(service_.seen(), SizeIs(0));

  // The client learns the size only from the answer.
  AddEncodingArgs add;
  add.x = Heads(bytes);
  add.out = absl::MakeSpan(out);
  status = client.AddEncoding(add).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(out, std::string(60, 'x'));
}

TEST_F(BulkTest, AnOutputForATensorThatIsNotGivenIsRefused) {
  const Client client = Client::Connect(options_);
  const std::string bytes = Bytes(64);
  std::string out(64, 'x');
  ApplyRopeArgs args;
  args.k = Heads(bytes);
  args.q_out = absl::MakeSpan(out);
  for (const absl::Status& status : {client.ApplyRope(args).status(),
                                     client.ApplyRopeStream(args).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(),
              "q_output: memory for the result of a tensor that is not given; "
              "give both or neither");
  }
  EXPECT_EQ(out, std::string(64, 'x'));
}

// Retries send from the same memory, which the caller frees after the call:
// sanitizers detect a later read.
TEST_F(BulkTest, RetriesSendLentBytesAgain) {
  service_.failures = 2;
  const Client client = Client::Connect(options_);
  const std::string bytes = Bytes(8 << 20);
  auto q = std::make_unique<std::string>(bytes);

  const absl::StatusOr<ApplyRopeResult> result = client.ApplyRope(Rotation(*q));
  q.reset();

  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(AsString(result->q->bytes) == bytes);
  EXPECT_THAT(service_.seen(), SizeIs(3));
}

TEST_F(BulkTest, LargeMessagesAtTheSameTimeHaveConnectionsOfTheirOwn) {
  constexpr int kCalls = 3;
  service_.together = kCalls;
  options_.bulk_channels = kCalls;
  const Client client = Client::Connect(options_);
  const std::string bytes = Bytes(64 << 10);
  std::vector<std::thread> threads;
  for (int i = 0; i < kCalls; ++i) {
    threads.emplace_back(
        [&] { EXPECT_TRUE(client.ApplyRope(Rotation(bytes)).ok()); });
  }
  for (std::thread& thread : threads) thread.join();

  EXPECT_THAT(service_.peers(), SizeIs(kCalls));
}

TEST_F(BulkTest, LargeMessagesOneByOneStayOnOneConnection) {
  const Client client = Client::Connect(options_);
  const std::string bytes = Bytes(64 << 10);
  for (int i = 0; i < 9; ++i) {
    ASSERT_TRUE(client.ApplyRope(Rotation(bytes)).ok());
  }

  EXPECT_THAT(service_.peers(), SizeIs(1));
}

TEST_F(BulkTest, SmallMessagesStayOnOneConnectionOfTheirOwn) {
  const Client client = Client::Connect(options_);
  const std::string bytes = Bytes(64 << 10);
  ASSERT_TRUE(client.ApplyRope(Rotation(bytes)).ok());
  const std::string bulk = service_.seen()[0].peer;
  for (int i = 0; i < 8; ++i) {
    ASSERT_TRUE(client.ApplyRope(Rotation({bytes.data(), 1024})).ok());
    ASSERT_TRUE(client.GetServerInfo().ok());
  }

  EXPECT_THAT(service_.peers(), SizeIs(2));
  const std::vector<EchoService::Seen> seen = service_.seen();
  for (std::size_t i = 1; i < seen.size(); ++i) EXPECT_NE(seen[i].peer, bulk);
}

TEST_F(BulkTest, WithoutBulkChannelsThereIsOneConnection) {
  options_.bulk_channels = 0;
  const Client client = Client::Connect(options_);
  const std::string bytes = Bytes(64 << 10);
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(client.ApplyRope(Rotation(bytes)).ok());
  }
  ASSERT_TRUE(client.GetServerInfo().ok());

  EXPECT_THAT(service_.peers(), SizeIs(1));
}

// A peer with just enough HTTP/2 to get a large message. It reads nothing of
// the message until Drain().
class StuckPeer {
 public:
  StuckPeer() : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int small = 64 << 10;
    setsockopt(listener_, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), length),
              0);
    EXPECT_EQ(listen(listener_, 8), 0);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Run(); });
  }
  ~StuckPeer() {
    shutdown(listener_, SHUT_RDWR);  // accept() ends
    thread_.join();
    for (const int connection : connections_) close(connection);
    close(listener_);
  }

  int port() const { return port_; }

  std::size_t connections() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return connections_.size();
  }

  // Returns all bytes of a connection, once the client has closed it.
  std::string Drain(std::size_t connection) {
    int fd;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      fd = connections_[connection];
    }
    std::string all;
    std::vector<char> buffer(1 << 20);
    ssize_t got;
    while ((got = read(fd, buffer.data(), buffer.size())) > 0) {
      all.append(buffer.data(), static_cast<std::size_t>(got));
    }
    return all;
  }

 private:
  void Run() {
    while (true) {
      const int connection = accept(listener_, nullptr, nullptr);
      if (connection < 0) return;
      // SETTINGS with the largest INITIAL_WINDOW_SIZE, and the connection's
      // WINDOW_UPDATE to match: only TCP holds the client back.
      const unsigned char hello[] = {
          0,    0,    6,    4,    0,    0,    0, 0, 0,  //
          0,    4,    0x7f, 0xff, 0xff, 0xff,           //
          0,    0,    4,    8,    0,    0,    0, 0, 0,  //
          0x7f, 0xff, 0,    0};
      EXPECT_EQ(write(connection, hello, sizeof(hello)),
                static_cast<ssize_t>(sizeof(hello)));
      const std::lock_guard<std::mutex> lock(mutex_);
      connections_.push_back(connection);
    }
  }

  int listener_;
  int port_ = 0;
  std::thread thread_;
  std::mutex mutex_;
  std::vector<int> connections_;
};

std::size_t LongestRun(const std::string& text, char wanted) {
  std::size_t longest = 0, run = 0;
  for (const char c : text) {
    run = c == wanted ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  return longest;
}

// The peer stops reading within a tensor. The call must return, and nothing may
// read the tensor afterwards.
TEST(StuckPeerTest, ADeadlineMidSendLeavesNothingBehind) {
  StuckPeer peer;
  ClientOptions options;
  options.target = absl::StrCat("127.0.0.1:", peer.port());
  options.bulk_channels = 1;
  options.service_config = "{}";  // the peer has no health checks
  options.stuck_timeout = absl::Seconds(3);
  const Client client = Client::Connect(options);
  CallOptions call;
  // Enough to send some bytes on a busy machine, and less than the timeout of
  // the connection.
  call.timeout = absl::Seconds(2);
  for (std::size_t i = 0; i < 2; ++i) {
    std::string q(64 << 20, 'a');

    const absl::Status status = client.ApplyRope(Rotation(q), call).status();
    std::fill(q.begin(), q.end(), 'b');

    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
    // Each call has a new connection: the stuck one is not used again.
    ASSERT_EQ(peer.connections(), i + 1);
    const std::string got = peer.Drain(i);
    EXPECT_GE(LongestRun(got, 'a'), 1000u);
    EXPECT_LT(LongestRun(got, 'b'), 100u);
    EXPECT_LT(got.size(), q.size());
  }
}

TEST(StuckPeerTest, AStreamsDeadlineMidSendLeavesNothingBehind) {
  StuckPeer peer;
  ClientOptions options;
  options.target = absl::StrCat("127.0.0.1:", peer.port());
  options.bulk_channels = 1;
  options.service_config = "{}";
  options.stuck_timeout = absl::Seconds(1);
  const Client client = Client::Connect(options);
  CallOptions call;
  call.timeout = absl::Milliseconds(500);
  std::string q(16 << 20, 'a');

  const absl::Status status =
      client.ApplyRopeStream(Rotation(q), call).status();
  std::fill(q.begin(), q.end(), 'b');

  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  ASSERT_EQ(peer.connections(), 1u);
  EXPECT_LT(LongestRun(peer.Drain(0), 'b'), 100u);
}

}  // namespace
}  // namespace posenc
