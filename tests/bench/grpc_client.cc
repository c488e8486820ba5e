#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/tensor.h"
#include "core/interpretation/source.h"
#include "core/rotation/apply.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/byte_buffer.h"
#include "inference/inference.pb.h"
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

constexpr char kUnary[] = "/posenc.v1.PositionalEncodingService/ApplyRope";
constexpr char kInfer[] = "/inference.GRPCInferenceService/ModelInfer";
constexpr char kStream[] =
    "/posenc.v1.PositionalEncodingService/ApplyRopeStream";

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

core::RopeSpec Spec(Answer answer) {
  core::RopeSpec spec;
  spec.pairing = core::Pairing::kHalfSplit;
  if (answer == Answer::kRepaired) {
    spec.output_pairing = core::Pairing::kInterleaved;
  }
  return spec;
}

// A request message whose tensor's bytes are borrowed.
struct Message {
  grpc::ByteBuffer buffer;
  std::size_t size;
};

// Returns a call for a tensor q of `bytes`. The returned message does not
// contain the bytes of q.
v1::ApplyRopeRequest CallOf(std::int64_t bytes, Answer answer) {
  v1::ApplyRopeRequest call;
  v1::RopeSpec* const spec = call.mutable_rope()->mutable_spec();
  spec->set_pairing(static_cast<v1::Pairing>(Spec(answer).pairing));
  spec->set_output_pairing(
      static_cast<v1::Pairing>(Spec(answer).output_pairing));
  call.set_layout(v1::LAYOUT_BSHD);
  call.mutable_positions()->set_start(0);
  call.mutable_q()->set_dtype(v1::DTYPE_FLOAT32);
  const std::int64_t heads = Heads(bytes);
  const std::int64_t row = heads * kDim * static_cast<int>(sizeof(float));
  for (const std::int64_t extent : {std::int64_t{1}, bytes / row, heads, kDim})
    call.mutable_q()->add_shape(extent);
  return call;
}

Message MakeMessage(const float* elements, std::int64_t bytes, Answer answer) {
  v1::ApplyRopeRequest request = CallOf(bytes, answer);
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

// Returns a message of a stream. It has only the bytes of tensors.
Message MakeBytes(const float* elements, std::int64_t bytes) {
  std::string prefix;
  wire::AppendFieldHeader(v1::ApplyRopeStreamRequest::kDataFieldNumber,
                          static_cast<std::uint64_t>(bytes), &prefix);
  const grpc::Slice slices[] = {
      grpc::Slice(prefix),
      grpc::Slice(elements, bytes, grpc::Slice::STATIC_SLICE)};
  return {grpc::ByteBuffer(slices, 2), prefix.size() + bytes};
}

// The same request as ModelInfer of KServe's protocol.
Message MakeInference(const float* elements, std::int64_t bytes,
                      std::int64_t heads) {
  inference::ModelInferRequest request;
  request.set_model_name("apply_rope");
  auto& parameters = *request.mutable_parameters();
  parameters["layout"].set_string_param("LAYOUT_BSHD");
  parameters["positions.start"].set_int64_param(0);
  parameters["rope.spec.pairing"].set_string_param("PAIRING_HALF_SPLIT");
  auto* const q = request.add_inputs();
  q->set_name("q");
  q->set_datatype("FP32");
  const std::int64_t row = heads * kDim * static_cast<int>(sizeof(float));
  for (const std::int64_t extent : {std::int64_t{1}, bytes / row, heads, kDim})
    q->add_shape(extent);
  std::string prefix = request.SerializeAsString();
  wire::AppendFieldHeader(
      inference::ModelInferRequest::kRawInputContentsFieldNumber,
      static_cast<std::size_t>(bytes), &prefix);
  const grpc::Slice slices[] = {
      grpc::Slice(prefix),
      grpc::Slice(elements, bytes, grpc::Slice::STATIC_SLICE)};
  return {grpc::ByteBuffer(slices, 2), prefix.size() + bytes};
}

// The same request in place, for a tensor in this shared file.
Message MakeShared(const std::string& name, std::int64_t bytes,
                   std::int64_t heads) {
  v1::ApplyRopeRequest request;
  request.mutable_rope()->mutable_spec()->set_pairing(v1::PAIRING_HALF_SPLIT);
  request.set_layout(v1::LAYOUT_BSHD);
  request.mutable_positions()->set_start(0);
  v1::Tensor* const q = request.mutable_q();
  q->set_dtype(v1::DTYPE_FLOAT32);
  const std::int64_t row = heads * kDim * static_cast<int>(sizeof(float));
  for (const std::int64_t extent : {std::int64_t{1}, bytes / row, heads, kDim})
    q->add_shape(extent);
  q->mutable_shared()->set_name(name);
  *request.mutable_q_output() = q->shared();
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
  if (wanted == Answer::kInferred) {
    inference::ModelInferResponse response;
    return response.ParseFromString(bytes) &&
                   response.raw_output_contents_size() == 1
               ? response.raw_output_contents(0)
               : "";
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
                         const std::vector<float>& elements, std::int64_t start,
                         Answer wanted) {
  const std::size_t size = elements.size() * sizeof(float);
  if (tensor.size() != size) return "the answer's size is wrong";
  std::vector<float> expected(elements.size());
  core::ApplyRopeArgs args;
  args.rope = core::interpretation::LookupOf(Spec(wanted));
  args.positions = core::StartPosition{start};
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

std::vector<grpc::GenericStub> Connect(const std::string& address,
                                       int channels) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(INT_MAX);
  arguments.SetMaxSendMessageSize(INT_MAX);
  // Gives each channel its own connection.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  std::vector<grpc::GenericStub> stubs;
  for (int i = 0; i < channels; ++i) {
    stubs.emplace_back(grpc::CreateCustomChannel(
        address, grpc::InsecureChannelCredentials(), arguments));
  }
  return stubs;
}

double Since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class Unary final : public Client {
 public:
  Unary(const std::string& address, std::int64_t bytes, int in_flight,
        int channels, Answer answer)
      : elements_(Elements(bytes)),
        region_(answer == Answer::kShared ? MakeRegion(elements_) : nullptr),
        request_(Request(bytes, answer)),
        announced_(std::to_string(request_.size)),
        answer_(answer),
        stubs_(Connect(address, channels)),
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
                          elements_, 0, answer_);
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
    if (answer == Answer::kInferred) {
      return MakeInference(elements_.data(), bytes, Heads(bytes));
    }
    if (answer == Answer::kShared) {
      return MakeShared(region_ == nullptr ? "" : region_->name(), bytes,
                        Heads(bytes));
    }
    return MakeMessage(elements_.data(), bytes, answer);
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
    call.reader = stubs_[index % stubs_.size()].PrepareUnaryCall(
        &*call.context, answer_ == Answer::kInferred ? kInfer : kUnary,
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
  std::vector<grpc::GenericStub> stubs_;
  std::vector<Call> calls_;
};

// Runs one stream after the other; writes as fast as the server reads, and
// reads concurrently.
class Stream final : public Client {
 public:
  Stream(const std::string& address, std::int64_t bytes, std::int64_t chunk,
         Answer answer)
      : elements_(Elements(chunk)),
        answer_(answer),
        stubs_(Connect(address, 1)) {
    v1::ApplyRopeStreamRequest first;
    *first.mutable_call() = CallOf(bytes, answer);
    const grpc::Slice slice(first.SerializeAsString());
    messages_.push_back({grpc::ByteBuffer(&slice, 1), slice.size()});
    for (std::int64_t i = 0; i < bytes / chunk; ++i) {
      messages_.push_back(MakeBytes(elements_.data(), chunk));
    }
    last_start_ = (bytes - chunk) /
                  (Heads(bytes) * kDim * static_cast<int>(sizeof(float)));
  }

  ~Stream() override {
    queue_.Shutdown();
    void* tag;
    bool ok;
    while (queue_.Next(&tag, &ok)) {
    }
  }

  std::string Check() override {
    std::string answer;
    const grpc::Status status = Call(&answer);
    if (!status.ok()) return Describe(status);
    if (answer_ == Answer::kEcho) {
      std::size_t sent = 0;
      for (const Message& message : messages_) sent += message.size;
      return answer.size() == sent ? "" : "not an echo";
    }
    const std::size_t chunk = elements_.size() * sizeof(float);
    if (answer.size() != (messages_.size() - 1) * chunk) {
      return "the answer's size is wrong";
    }
    return CheckRotated(answer.substr(answer.size() - chunk), elements_,
                        last_start_, answer_);
  }

  Sample Run(double seconds, int at_least) override {
    Sample sample;
    const Clock::time_point start = Clock::now();
    while (Since(start) < seconds ||
           static_cast<int>(sample.latencies.size()) < at_least) {
      const Clock::time_point before = Clock::now();
      if (!Call(nullptr).ok()) return {};
      sample.latencies.push_back(Since(before));
    }
    sample.seconds = Since(start);
    return sample;
  }

 private:
  enum Tag : std::intptr_t { kBegun, kWritten, kWritesDone, kRead, kFinished };
  static void* ToTag(Tag tag) { return reinterpret_cast<void*>(tag); }

  // Joins the answers in `answer`, if it is not null.
  grpc::Status Call(std::string* answer) {
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    const auto stream = stubs_[0].PrepareCall(&context, kStream, &queue_);
    stream->StartCall(ToTag(kBegun));
    grpc::ByteBuffer response;
    grpc::Status status;
    std::size_t written = 0;
    // Writing and reading end independently; Finish comes after both.
    int open = 2;
    const auto write = [&] {
      if (written < messages_.size()) {
        stream->Write(messages_[written++].buffer, ToTag(kWritten));
      } else {
        stream->WritesDone(ToTag(kWritesDone));
      }
    };
    void* tag;
    bool ok;
    while (queue_.Next(&tag, &ok)) {
      switch (static_cast<Tag>(reinterpret_cast<std::intptr_t>(tag))) {
        case kBegun:
          stream->Read(&response, ToTag(kRead));
          [[fallthrough]];
        case kWritten:
          if (ok) {
            write();
            break;
          }
          [[fallthrough]];
        case kWritesDone:
          --open;
          break;
        case kRead:
          if (ok) {
            if (answer != nullptr) Join(response, answer);
            stream->Read(&response, ToTag(kRead));
          } else {
            --open;
          }
          break;
        case kFinished:
          return status;
      }
      if (open == 0) {
        open = -1;
        stream->Finish(&status, ToTag(kFinished));
      }
    }
    return status;
  }

  void Join(const grpc::ByteBuffer& response, std::string* answer) const {
    std::vector<grpc::Slice> slices;
    (void)response.Dump(&slices);
    std::string bytes;
    for (const grpc::Slice& slice : slices) {
      bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
    }
    v1::ApplyRopeStreamResponse parsed;
    if (answer_ == Answer::kEcho) {
      *answer += bytes;
    } else if (parsed.ParseFromString(bytes)) {
      *answer += parsed.data();
    }
  }

  const std::vector<float> elements_;
  const Answer answer_;
  std::vector<Message> messages_;
  std::int64_t last_start_ = 0;  // position of the last message's first token
  grpc::CompletionQueue queue_;
  std::vector<grpc::GenericStub> stubs_;
};

class Kernel final : public Client {
 public:
  explicit Kernel(std::int64_t bytes)
      : elements_(Elements(bytes)), region_(MakeRegion(elements_)) {}

  std::string Check() override {
    if (region_ == nullptr) return "no shared memory here";
    if (!Rotate()) return "the kernel failed";
    return CheckRotated(
        std::string(region_->bytes().data(), region_->bytes().size()),
        elements_, 0, Answer::kRotated);
  }

  Sample Run(double seconds, int at_least) override {
    Sample sample;
    const Clock::time_point start = Clock::now();
    while (Since(start) < seconds ||
           static_cast<int>(sample.latencies.size()) < at_least) {
      const Clock::time_point before = Clock::now();
      if (!Rotate()) return {};
      sample.latencies.push_back(Since(before));
    }
    sample.seconds = Since(start);
    return sample;
  }

 private:
  bool Rotate() {
    const auto bytes = static_cast<std::int64_t>(region_->bytes().size());
    const std::int64_t heads = Heads(bytes);
    const core::Shape shape = {
        1, bytes / (heads * kDim * static_cast<int>(sizeof(float))), heads,
        kDim};
    core::ApplyRopeArgs args;
    args.rope = core::interpretation::LookupOf(Spec(Answer::kRotated));
    args.positions = core::StartPosition{0};
    const core::ConstTensorView in{core::Dtype::kFloat32, shape,
                                   region_->bytes().data()};
    const core::TensorView out{core::Dtype::kFloat32, shape,
                               region_->bytes().data()};
    return core::ApplyRope(args, &in, &out, nullptr, nullptr).ok();
  }

  const std::vector<float> elements_;
  const std::shared_ptr<SharedRegion> region_;
};

}  // namespace

std::unique_ptr<Client> KernelClient(std::int64_t bytes) {
  return std::make_unique<Kernel>(bytes);
}

std::unique_ptr<Client> UnaryClient(const std::string& address,
                                    std::int64_t bytes, int in_flight,
                                    int channels, Answer answer) {
  return std::make_unique<Unary>(address, bytes, in_flight, channels, answer);
}

std::unique_ptr<Client> StreamClient(const std::string& address,
                                     std::int64_t bytes,
                                     std::int64_t chunk_bytes, Answer answer) {
  return std::make_unique<Stream>(address, bytes, chunk_bytes, answer);
}

}  // namespace posenc::bench
