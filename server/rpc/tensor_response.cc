#include "server/rpc/tensor_response.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "grpc/slice.h"
#include "posenc/v1/tensor.pb.h"
#include "posenc/wire/frame.h"
#include "server/budget/errors.h"
#include "server/convert/tensor.h"
#include "server/memory/writable_slice.h"

namespace posenc::server {
namespace {

// Most responses have one or two tensors, each in a slice or two.
template <typename T>
using Few = absl::InlinedVector<T, 2>;

// Up to this size a response is put together in one slice: copying it costs
// less than what gRPC does for each slice.
constexpr std::size_t kOneSliceBytes = 16 << 10;

// Bytes of the whole field that an output takes in the response, framing
// included.
absl::uint128 FieldBytes(const OutputTensor& output) {
  if (output.bare) {
    return wire::FieldBytes(
        output.field,
        wire::DataBytes(core::DtypeSize(output.dtype), output.shape));
  }
  const absl::uint128 bytes =
      TensorFieldBytes(output.field, output.dtype, output.shape, output.form);
  return output.within == 0 ? bytes : wire::FieldBytes(output.within, bytes);
}

// Places of the outputs that the response has, in its order.
Few<std::size_t> Sent(const TensorAnswer& answer) {
  if (answer.sent) return *answer.sent;
  Few<std::size_t> all(answer.outputs.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  return all;
}

// The framing in front of an output's `bytes` bytes.
std::string Header(const OutputTensor& output, std::size_t bytes) {
  std::string header;
  if (output.bare) {
    wire::AppendFieldHeader(output.field, bytes, &header);
    return header;
  }
  wire::AppendTensorFieldHeader(output.field,
                                static_cast<v1::Dtype>(output.dtype),
                                output.shape, bytes, &header);
  if (output.within == 0) return header;
  std::string outer;
  wire::AppendFieldHeader(output.within, header.size() + bytes, &outer);
  return outer + header;
}

class ReadyResponse final : public PendingResponse {
 public:
  explicit ReadyResponse(const std::string& bytes) : slice_(bytes) {}
  absl::Status Compute(std::int64_t /*tile*/, StopCheck /*stop*/) override {
    return absl::OkStatus();
  }
  void Finish(grpc::ByteBuffer* response) override {
    grpc::ByteBuffer(&slice_, 1).Swap(response);
  }

 private:
  const grpc::Slice slice_;
};

// A response some of whose tensors are written out as `values`, because the
// request's were. Those are small (65536 elements at most), so they are
// computed at once and serialized by the generated code.
absl::StatusOr<std::unique_ptr<PendingResponse>> SpellOutResponse(
    const TensorAnswer& answer, std::string fields) {
  std::vector<v1::Tensor> tensors(answer.outputs.size());
  std::vector<OutputBuffer> buffers;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const OutputTensor& output = answer.outputs[i];
    const core::TensorView view =
        AllocateTensor(output.dtype, output.shape, &tensors[i]);
    buffers.push_back({core::Pieces(view.data, ByteCount(output))});
  }
  const auto go_on = [] { return absl::OkStatus(); };
  for (std::int64_t tile = 0; tile < answer.computation->tiles(); ++tile) {
    const absl::Status computed =
        answer.computation->Compute(tile, buffers, go_on);
    if (!computed.ok()) return computed;
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const OutputTensor& output = answer.outputs[i];
    if (output.form == TensorForm::kValues) SpellOut(&tensors[i]);
    const std::string bytes = tensors[i].SerializeAsString();
    wire::AppendFieldHeader(output.field, bytes.size(), &fields);
    fields.append(bytes);
  }
  return MakeReadyResponse(fields);
}

// A response that is put together in one slice, and has every output. Its
// tensors have any alignment.
class OneSliceResponse final : public PendingResponse {
 public:
  OneSliceResponse(TensorAnswer answer, std::shared_ptr<const void> request,
                   const std::string& fields, std::size_t total)
      : answer_(std::move(answer)),
        request_(std::move(request)),
        slice_(WritableSlice::Own(grpc::Slice(total))) {
    tiles_ = answer_.computation->tiles();
    work_bytes_ = answer_.computation->input_bytes();
    char* at = std::copy(fields.begin(), fields.end(), slice_.data());
    buffers_.resize(answer_.outputs.size());
    for (const std::size_t i : Sent(answer_)) {
      const OutputTensor& output = answer_.outputs[i];
      const std::size_t bytes = ByteCount(output);
      const std::string header = Header(output, bytes);
      at = std::copy(header.begin(), header.end(), at);
      buffers_[i].bytes = core::Pieces(at, bytes);
      at += bytes;
      work_bytes_ += bytes;
    }
  }

  absl::Status Compute(std::int64_t tile, StopCheck stop) override {
    return answer_.computation->Compute(tile, buffers_, stop);
  }
  void Finish(grpc::ByteBuffer* response) override {
    grpc::ByteBuffer(&slice_.slice(), 1).Swap(response);
  }

 private:
  const TensorAnswer answer_;
  const std::shared_ptr<const void> request_;
  WritableSlice slice_;
  Few<OutputBuffer> buffers_;
};

// A response each of whose tensors lies in slices of its own.
class TensorResponse final : public PendingResponse {
 public:
  TensorResponse(TensorAnswer answer, std::shared_ptr<const void> request,
                 const RequestMessage* message, std::string fields)
      : answer_(std::move(answer)),
        request_(std::move(request)),
        message_(message),
        fields_(std::move(fields)),
        slices_(answer_.outputs.size()) {
    tiles_ = answer_.computation->tiles();
    work_bytes_ = answer_.computation->input_bytes();
    for (std::size_t i = 0; i < answer_.outputs.size(); ++i) {
      const std::size_t bytes = ByteCount(answer_.outputs[i]);
      work_bytes_ += bytes;
      if (InputInPlace(i) == nullptr) {
        bytes_to_claim_ += static_cast<std::int64_t>(bytes);
      }
    }
  }

  absl::Status Allocate(ResponseBuffers* buffers) override {
    for (std::size_t i = 0; i < slices_.size(); ++i) {
      const std::size_t bytes = ByteCount(answer_.outputs[i]);
      const core::ConstPieces* const input = InputInPlace(i);
      if (input != nullptr) {
        slices_[i] = message_->Writable(*input);
      } else if (bytes > 0) {
        absl::StatusOr<WritableSlice> slice = buffers->Allocate(bytes);
        if (!slice.ok()) return slice.status();
        bytes_to_claim_ -= static_cast<std::int64_t>(bytes);
        slices_[i].push_back(*std::move(slice));
      }
      core::Pieces::List pieces;
      for (WritableSlice& slice : slices_[i]) {
        pieces.emplace_back(slice.data(), slice.size());
      }
      buffers_.push_back({core::Pieces(std::move(pieces)), input != nullptr});
    }
    return absl::OkStatus();
  }

  absl::Status Compute(std::int64_t tile, StopCheck stop) override {
    return answer_.computation->Compute(tile, buffers_, stop);
  }

  void Finish(grpc::ByteBuffer* response) override {
    std::vector<grpc::Slice> slices;
    if (!fields_.empty()) slices.emplace_back(fields_);
    for (const std::size_t i : Sent(answer_)) {
      const OutputTensor& output = answer_.outputs[i];
      slices.emplace_back(Header(output, ByteCount(output)));
      for (const WritableSlice& slice : slices_[i]) {
        slices.push_back(slice.slice());
      }
    }
    grpc::ByteBuffer(slices.data(), slices.size()).Swap(response);
  }

 private:
  // The bytes that output `i` is written over; null if it gets its own memory.
  const core::ConstPieces* InputInPlace(std::size_t i) const {
    if (message_ == nullptr || !message_->exclusive()) return nullptr;
    return answer_.computation->InputInPlace(i);
  }

  const TensorAnswer answer_;
  const std::shared_ptr<const void> request_;
  const RequestMessage* const message_;
  const std::string fields_;
  // One for each output. `buffers_` points into `slices_`, which therefore stay
  // where they are once Allocate() has run.
  Few<RequestMessage::WritableSlices> slices_;
  Few<OutputBuffer> buffers_;
};

}  // namespace

std::unique_ptr<PendingResponse> MakeReadyResponse(const std::string& bytes) {
  return std::make_unique<ReadyResponse>(bytes);
}

absl::StatusOr<std::unique_ptr<PendingResponse>> MakeTensorResponse(
    TensorAnswer answer, std::shared_ptr<const void> request,
    const RequestMessage* message, std::string fields, std::int64_t limit) {
  absl::uint128 total = fields.size();
  bool spelled_out = false;
  const Few<std::size_t> sent = Sent(answer);
  for (const std::size_t i : sent) {
    total += FieldBytes(answer.outputs[i]);
    spelled_out |= answer.outputs[i].form == TensorForm::kValues;
  }
  const absl::Status size = CheckResponse(total, limit);
  if (!size.ok()) return size;
  if (spelled_out) return SpellOutResponse(answer, std::move(fields));
  if (total <= kOneSliceBytes && sent.size() == answer.outputs.size() &&
      !answer.computation->needs_aligned_buffers()) {
    return std::make_unique<OneSliceResponse>(
        std::move(answer), std::move(request), fields,
        static_cast<std::size_t>(absl::Uint128Low64(total)));
  }
  return std::make_unique<TensorResponse>(std::move(answer), std::move(request),
                                          message, std::move(fields));
}

}  // namespace posenc::server
