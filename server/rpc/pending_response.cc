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

// What needs_aligned_buffers() asks for.
constexpr std::size_t kAlignment = 64;

// The framing in front of an output's `bytes` bytes, which are none if the
// output has a place.
std::string Header(const OutputTensor& output, std::size_t bytes) {
  std::string header;
  if (output.place != nullptr && !output.bare) {
    v1::Tensor tensor;
    tensor.set_dtype(static_cast<v1::Dtype>(output.dtype));
    tensor.mutable_shape()->Add(output.shape.begin(), output.shape.end());
    tensor.mutable_shared()->set_name(output.place->name);
    tensor.mutable_shared()->set_offset(output.place->offset);
    const std::string whole = tensor.SerializeAsString();
    wire::AppendFieldHeader(output.field, whole.size(), &header);
    return header + whole;
  }
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

// Bytes of the whole field that an output takes in the response, framing
// included.
absl::uint128 FieldBytes(const OutputTensor& output) {
  if (output.place != nullptr) return Header(output, 0).size();
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

// Memory that an output of the caller's is computed into.
OutputBuffer BufferOf(const OutputPlace& place, std::size_t bytes) {
  return {core::Pieces(place.data, bytes), place.holds_input};
}

// What responses of all kinds share: the answer, and what it borrows.
class AnswerResponse : public PendingResponse {
 public:
  absl::Status Compute(std::int64_t tile, StopCheck stop) final {
    return answer_.computation->Compute(tile, buffers_, stop);
  }
  absl::Status Complete() override {
    return answer_.check_shared == nullptr ? absl::OkStatus()
                                           : answer_.check_shared();
  }

 protected:
  AnswerResponse(TensorAnswer&& answer, std::shared_ptr<const void> request)
      : answer_(std::move(answer)), request_(std::move(request)) {
    tiles_ = answer_.computation->tiles();
    work_bytes_ = answer_.computation->input_bytes();
    for (const OutputTensor& output : answer_.outputs) {
      work_bytes_ += ByteCount(output);
    }
    // Memory at hand is worked on at 10 GB/s, and a call over it is all there
    // is to do: handing 1 MiB to the pool, 2 MiB in and out, would take as long
    // as the work.
    if (answer_.shared_bytes > 0) work_bytes_ /= 16;
    bytes_to_claim_ = answer_.shared_bytes;
  }

  // Takes over the claim of the shared memory.
  void HoldShared(ResponseBuffers* buffers) {
    if (answer_.shared_bytes == 0) return;
    shared_ = buffers->HoldClaimed(answer_.shared_bytes);
    bytes_to_claim_ -= answer_.shared_bytes;
  }

  const TensorAnswer answer_;
  // One for each output.
  Few<OutputBuffer> buffers_;

 private:
  const std::shared_ptr<const void> request_;
  std::unique_ptr<ResponseBuffers::Hold> shared_;
};

// A response some of whose tensors are written out as `values`, because the
// request's were. Those are small (65536 elements at most), so the message is
// serialized by the generated code.
class SpelledResponse final : public AnswerResponse {
 public:
  SpelledResponse(TensorAnswer&& answer, std::shared_ptr<const void> request,
                  std::string fields)
      : AnswerResponse(std::move(answer), std::move(request)),
        fields_(std::move(fields)),
        tensors_(answer_.outputs.size()) {
    for (const OutputTensor& output : answer_.outputs) {
      if (output.place == nullptr) own_bytes_ += ByteCount(output);
    }
    bytes_to_claim_ += own_bytes_;
  }

  absl::Status Allocate(ResponseBuffers* buffers) override {
    HoldShared(buffers);
    own_ = buffers->HoldClaimed(std::exchange(own_bytes_, 0));
    bytes_to_claim_ = 0;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      const OutputTensor& output = answer_.outputs[i];
      const std::size_t bytes = ByteCount(output);
      buffers_.push_back(
          output.place != nullptr
              ? BufferOf(*output.place, bytes)
              : OutputBuffer{core::Pieces(
                    AllocateTensor(output.dtype, output.shape, &tensors_[i])
                        .data,
                    bytes)});
    }
    return absl::OkStatus();
  }
  void Finish(grpc::ByteBuffer* response) override {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      const OutputTensor& output = answer_.outputs[i];
      if (output.place != nullptr) {
        fields_.append(Header(output, 0));
        continue;
      }
      if (output.form == TensorForm::kValues) SpellOut(&tensors_[i]);
      const std::string bytes = tensors_[i].SerializeAsString();
      wire::AppendFieldHeader(output.field, bytes.size(), &fields_);
      fields_.append(bytes);
    }
    const grpc::Slice slice(fields_);
    grpc::ByteBuffer(&slice, 1).Swap(response);
  }

 private:
  std::string fields_;
  std::vector<v1::Tensor> tensors_;
  std::int64_t own_bytes_ = 0;
  std::unique_ptr<ResponseBuffers::Hold> own_;
};

// A response that is put together in one slice, and has every output. Its
// tensors have any alignment.
class OneSliceResponse final : public AnswerResponse {
 public:
  OneSliceResponse(TensorAnswer&& answer, std::shared_ptr<const void> request,
                   const std::string& fields, std::size_t total)
      : AnswerResponse(std::move(answer), std::move(request)),
        slice_(WritableSlice::Own(grpc::Slice(total))) {
    char* at = std::copy(fields.begin(), fields.end(), slice_.data());
    buffers_.resize(answer_.outputs.size());
    for (const std::size_t i : Sent(answer_)) {
      const OutputTensor& output = answer_.outputs[i];
      const std::size_t bytes = ByteCount(output);
      const std::string header = Header(output, bytes);
      at = std::copy(header.begin(), header.end(), at);
      buffers_[i].bytes = core::Pieces(at, bytes);
      at += bytes;
    }
  }

  absl::Status Allocate(ResponseBuffers* buffers) override {
    HoldShared(buffers);
    return absl::OkStatus();
  }
  void Finish(grpc::ByteBuffer* response) override {
    grpc::ByteBuffer(&slice_.slice(), 1).Swap(response);
  }

 private:
  WritableSlice slice_;
};

// A response each of whose tensors lies in slices of its own, or in a place of
// the caller's.
class TensorResponse final : public AnswerResponse {
 public:
  TensorResponse(TensorAnswer&& answer, std::shared_ptr<const void> request,
                 const RequestMessage* message, std::string fields)
      : AnswerResponse(std::move(answer), std::move(request)),
        message_(message),
        fields_(std::move(fields)),
        slices_(answer_.outputs.size()) {
    for (std::size_t i = 0; i < answer_.outputs.size(); ++i) {
      const bool own = IsComputedInPlace(i) || InputInPlace(i) != nullptr;
      if (!own) {
        bytes_to_claim_ +=
            static_cast<std::int64_t>(ByteCount(answer_.outputs[i]));
      }
    }
  }

  absl::Status Allocate(ResponseBuffers* buffers) override {
    HoldShared(buffers);
    for (std::size_t i = 0; i < slices_.size(); ++i) {
      const std::size_t bytes = ByteCount(answer_.outputs[i]);
      if (IsComputedInPlace(i)) {
        buffers_.push_back(BufferOf(*answer_.outputs[i].place, bytes));
        continue;
      }
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

  absl::Status Complete() override {
    for (std::size_t i = 0; i < slices_.size(); ++i) {
      const OutputPlace* const place = answer_.outputs[i].place.get();
      if (place == nullptr || slices_[i].empty()) continue;
      WritableSlice& slice = slices_[i].front();
      std::copy_n(slice.data(), slice.size(), place->data);
      slices_[i].clear();
    }
    return AnswerResponse::Complete();
  }

  void Finish(grpc::ByteBuffer* response) override {
    std::vector<grpc::Slice> slices;
    if (!fields_.empty()) slices.emplace_back(fields_);
    for (const std::size_t i : Sent(answer_)) {
      const OutputTensor& output = answer_.outputs[i];
      slices.emplace_back(
          Header(output, output.place == nullptr ? ByteCount(output) : 0));
      for (const WritableSlice& slice : slices_[i]) {
        slices.push_back(slice.slice());
      }
    }
    grpc::ByteBuffer(slices.data(), slices.size()).Swap(response);
  }

 private:
  // Whether the output is computed where the caller wants it. If not, it is
  // copied there in the end: the caller may choose any alignment.
  bool IsComputedInPlace(std::size_t i) const {
    const OutputPlace* const place = answer_.outputs[i].place.get();
    return place != nullptr &&
           (!answer_.computation->needs_aligned_buffers() ||
            reinterpret_cast<std::uintptr_t>(place->data) % kAlignment == 0);
  }

  // The bytes of the message that the output is written over; null if it gets
  // memory of its own.
  const core::ConstPieces* InputInPlace(std::size_t i) const {
    if (message_ == nullptr || answer_.outputs[i].place != nullptr) {
      return nullptr;
    }
    const core::ConstPieces* const input = answer_.computation->InputInPlace(i);
    return input != nullptr && message_->IsWritable(*input) ? input : nullptr;
  }

  const RequestMessage* const message_;
  const std::string fields_;
  // One for each output. `buffers_` points into `slices_`, which therefore stay
  // where they are once Allocate() has run.
  Few<RequestMessage::WritableSlices> slices_;
};

}  // namespace

std::unique_ptr<PendingResponse> MakeReadyResponse(const std::string& bytes) {
  return std::make_unique<ReadyResponse>(bytes);
}

absl::StatusOr<std::unique_ptr<PendingResponse>> MakeTensorResponse(
    TensorAnswer&& answer, std::shared_ptr<const void> request,
    const RequestMessage* message, std::string fields, std::int64_t limit) {
  absl::uint128 total = fields.size();
  bool spelled_out = false, placed = false;
  const Few<std::size_t> sent = Sent(answer);
  for (const std::size_t i : sent) {
    total += FieldBytes(answer.outputs[i]);
    spelled_out |= answer.outputs[i].form == TensorForm::kValues;
    placed |= answer.outputs[i].place != nullptr;
  }
  const absl::Status size = CheckResponse(total, limit);
  if (!size.ok()) return size;
  if (spelled_out) {
    return std::make_unique<SpelledResponse>(
        std::move(answer), std::move(request), std::move(fields));
  }
  if (total <= kOneSliceBytes && !placed &&
      sent.size() == answer.outputs.size() &&
      !answer.computation->needs_aligned_buffers()) {
    return std::make_unique<OneSliceResponse>(
        std::move(answer), std::move(request), fields,
        static_cast<std::size_t>(absl::Uint128Low64(total)));
  }
  return std::make_unique<TensorResponse>(std::move(answer), std::move(request),
                                          message, std::move(fields));
}

}  // namespace posenc::server
