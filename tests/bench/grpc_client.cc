#include <unistd.h>

#include <chrono>
#include <climits>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/tensor.h"
#include "core/interpretation/source.h"
#include "core/rotation/apply.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/byte_buffer.h"
#include "posenc/shared_region.h"
#include "posenc/v1/service.pb.h"
#include "posenc/wire/frame.h"
#include "tests/bench/bench_clients.h"

namespace posenc::bench {
namespace {

using Clock = std::chrono::steady_clock;

// A token has 4 KiB, and 16 KiB in messages of a megabyte or more.
constexpr std::int64_t kDim = 128;
std::int64_t Heads(std::int64_t bytes) { return bytes < 1 << 20 ? 8 : 32; }

constexpr char kMethod[] = "/posenc.v1.PositionalEncodingService/ApplyRope";

// Elements of a tensor: an arbitrary sequence within [-4, 4).
std::vector<float> Elements(std::int64_t bytes) {
  std::vector<float> elements(bytes / sizeof(float));
  std::uint32_t state = 1;
  for (float& element : elements) {
    state = state * 1664525 + 1013904223;  // Numerical Recipes' generator
    element = static_cast<float>(state >> 8) * 0x1p-21F - 4;
  }
  return elements;
}

// A request message whose tensor's bytes are borrowed.
struct Message {
  grpc::ByteBuffer buffer;
  std::size_t size;
};

// Returns a call for a tensor q of `bytes`. The returned message does not
// contain the bytes of q.
v1::ApplyRopeRequest CallOf(std::int64_t bytes) {
  v1::ApplyRopeRequest call;
  call.mutable_rope()->mutable_spec()->set_pairing(v1::PAIRING_HALF_SPLIT);
  call.set_layout(v1::LAYOUT_BSHD);
  call.mutable_positions()->set_start(0);
  call.mutable_q()->set_dtype(v1::DTYPE_FLOAT32);
  const std::int64_t heads = Heads(bytes);
  const std::int64_t row = heads * kDim * static_cast<int>(sizeof(float));
  for (const std::int64_t extent : {std::int64_t{1}, bytes / row, heads, kDim})
    call.mutable_q()->add_shape(extent);
  return call;
}

Message MakeMessage(const float* elements, std::int64_t bytes) {
  v1::ApplyRopeRequest request = CallOf(bytes);
  const std::vector<std::int64_t> shape(request.q().shape().begin(),
                                        request.q().shape().end());
  request.clear_q();
  std::string prefix = request.SerializeAsString();
  wire::AppendTensorFieldHeader(v1::ApplyRopeRequest::kQFieldNumber,
                                v1::DTYPE_FLOAT32, shape,
                                static_cast<std::uint64_t>(bytes), &prefix);
  const grpc::Slice slices[] = {
      grpc::Slice(prefix),
      grpc::Slice(elements, bytes, grpc::Slice::STATIC_SLICE)};
  return {grpc::ByteBuffer(slices, 2), prefix.size() + bytes};
}

// The same request in place, for a tensor in this shared file.
Message MakeShared(const std::string& name, std::int64_t bytes) {
  v1::ApplyRopeRequest request = CallOf(bytes);
  request.mutable_q()->mutable_shared()->set_name(name);
  *request.mutable_q_output() = request.q().shared();
  const grpc::Slice slice(request.SerializeAsString());
  return {grpc::ByteBuffer(&slice, 1), slice.size()};
}

// Returns the bytes of the tensor in an answer; empty if the answer has no
// tensor.
std::string TensorBytes(const grpc::ByteBuffer& answer, Answer wanted,
                        const std::shared_ptr<SharedRegion>& region) {
  if (wanted == Answer::kShared) {
    return {region->bytes().data(), region->bytes().size()};
  }
  std::vector<grpc::Slice> slices;
  std::string bytes;
  if (!answer.Dump(&slices).ok()) return "";
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  v1::ApplyRopeResponse response;
  return response.ParseFromString(bytes) ? response.q().data() : "";
}

// Makes a shared file of these elements; null on failure.
std::shared_ptr<SharedRegion> MakeRegion(const std::vector<float>& elements) {
  static int last = 0;
  const std::string path =
      kSharedPrefix + std::to_string(getpid()) + "_" + std::to_string(++last);
  const std::size_t slash = path.rfind('/');
  const auto region =
      SharedRegion::Create(path.substr(0, slash), path.substr(slash + 1),
                           elements.size() * sizeof(float));
  if (!region.ok()) return nullptr;
  std::memcpy((*region)->bytes().data(), elements.data(),
              elements.size() * sizeof(float));
  return *region;
}

// Returns "" if `tensor` is the rotation of those elements. Servers in other
// languages round angles and products differently, hence a bound of 2^-18
// (magnitudes are up to 6): any wrong pair, row or sign exceeds it.
std::string CheckRotated(const std::string& tensor,
                         const std::vector<float>& elements) {
  const std::size_t size = elements.size() * sizeof(float);
  if (tensor.size() != size) return "the answer's size is wrong";
  std::vector<float> expected(elements.size());
  core::RopeSpec spec;
  spec.pairing = core::Pairing::kHalfSplit;
  core::ApplyRopeArgs args;
  args.rope = core::interpretation::LookupOf(spec);
  args.positions = core::StartPosition{0};
  const std::int64_t heads = Heads(static_cast<std::int64_t>(size));
  const core::Shape shape = {
      1, static_cast<std::int64_t>(elements.size()) / (heads * kDim), heads,
      kDim};
  const core::ConstTensorView in{
      core::Dtype::kFloat32, shape,
      reinterpret_cast<const std::byte*>(elements.data())};
  const core::TensorView out{core::Dtype::kFloat32, shape,
                             reinterpret_cast<std::byte*>(expected.data())};
  const absl::Status status =
      core::ApplyRope(args, &in, &out, nullptr, nullptr);
  if (!status.ok()) return status.ToString();
  const char* at = tensor.data();
  for (const float value : expected) {
    float got;
    std::memcpy(&got, at, sizeof(got));
    at += sizeof(got);
    if (!(std::abs(got - value) <= 0x1p-18F)) return "the answer is wrong";
  }
  return "";
}

std::string Describe(const grpc::Status& status) {
  if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED) {
    return "not served";
  }
  return "status " + std::to_string(status.error_code()) + ": " +
         status.error_message();
}

std::shared_ptr<grpc::Channel> Connect(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(INT_MAX);
  arguments.SetMaxSendMessageSize(INT_MAX);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(),
                                   arguments);
}

double Since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class Unary final : public Client {
 public:
  Unary(const std::string& address, std::int64_t bytes, int in_flight,
        Answer answer)
      : elements_(Elements(bytes)),
        region_(answer == Answer::kShared ? MakeRegion(elements_) : nullptr),
        request_(Request(bytes, answer)),
        announced_(std::to_string(request_.size)),
        answer_(answer),
        stub_(Connect(address)),
        calls_(in_flight) {}

  ~Unary() override {
    queue_.Shutdown();
    void* tag;
    bool ok;
    while (queue_.Next(&tag, &ok)) {
    }
  }

  std::string Check() override {
    if (answer_ == Answer::kShared && region_ == nullptr) {
      return "no shared memory here";
    }
    Start(0);
    Call& call = *Next();
    if (!call.status.ok()) return Describe(call.status);
    if (answer_ != Answer::kEcho) {
      return CheckRotated(TensorBytes(call.response, answer_, region_),
                          elements_);
    }
    return call.response.Length() == request_.size ? "" : "not an echo";
  }

  Sample Run(double seconds, int at_least) override {
    Sample sample;
    const Clock::time_point start = Clock::now();
    int running = 0;
    for (std::size_t i = 0; i < calls_.size(); ++i, ++running) Start(i);
    while (running > 0) {
      Call& call = *Next();
      --running;
      if (!call.status.ok()) return {};
      sample.latencies.push_back(Since(call.start));
      const int begun = static_cast<int>(sample.latencies.size()) + running;
      if (Since(start) < seconds || begun < at_least) {
        Start(&call - calls_.data());
        ++running;
      }
    }
    sample.seconds = Since(start);
    return sample;
  }

 private:
  struct Call {
    std::optional<grpc::ClientContext> context;
    std::unique_ptr<grpc::GenericClientAsyncResponseReader> reader;
    grpc::ByteBuffer response;
    grpc::Status status;
    Clock::time_point start;
  };

  Message Request(std::int64_t bytes, Answer answer) const {
    if (answer == Answer::kShared) {
      return MakeShared(region_ == nullptr ? "" : region_->name(), bytes);
    }
    return MakeMessage(elements_.data(), bytes);
  }

  void Start(std::size_t index) {
    Call& call = calls_[index];
    call.start = Clock::now();
    call.reader.reset();
    call.context.emplace();
    call.context->set_wait_for_ready(true);
    // Announces the size, as posenc's client does, so that admission knows it
    // early.
    call.context->AddMetadata("posenc-message-bytes", announced_);
    call.response.Clear();
    call.reader = stub_.PrepareUnaryCall(&*call.context, kMethod,
                                         request_.buffer, &queue_);
    call.reader->StartCall();
    call.reader->Finish(&call.response, &call.status, &call);
  }

  Call* Next() {
    void* tag = nullptr;
    bool ok;
    queue_.Next(&tag, &ok);
    return static_cast<Call*>(tag);
  }

  const std::vector<float> elements_;
  const std::shared_ptr<SharedRegion> region_;  // of kShared
  const Message request_;
  const std::string announced_;
  const Answer answer_;
  grpc::CompletionQueue queue_;
  grpc::GenericStub stub_;
  std::vector<Call> calls_;
};

}  // namespace

std::unique_ptr<Client> UnaryClient(const std::string& address,
                                    std::int64_t bytes, int in_flight,
                                    Answer answer) {
  return std::make_unique<Unary>(address, bytes, in_flight, answer);
}

}  // namespace posenc::bench
