#include "server/call/pending_response.h"

#include <algorithm>
#include <numeric>

#include "core/base/status_macros.h"
#include "posenc/v1/tensor.pb.h"
#include "posenc/wire/frame.h"
#include "server/base/errors.h"
#include "server/convert/fields.h"
#include "server/convert/tensor.h"

namespace posenc::server {
namespace {

// Largest response that is put into one slice. Copying so few bytes costs less
// than gRPC's work for several slices.
constexpr std::size_t kOneSliceBytes = 16 << 10;

// Alignment for needs_aligned_buffers(), in bytes.
constexpr std::size_t kAlignment = 64;

// Returns the serialized field `number` with this tensor.
std::string Field(int number, const v1::Tensor& tensor) {
  const std::string bytes = tensor.SerializeAsString();
  std::string field;
  wire::AppendFieldHeader(number, bytes.size(), &field);
  return field + bytes;
}

// Returns the serialized field of an output in shared memory: dtype, shape and
// place, without elements.
std::string PlacedField(const OutputTensor& output) {
  v1::Tensor tensor;
  tensor.set_dtype(static_cast<v1::Dtype>(output.dtype));
  Append(output.shape, tensor.mutable_shape());
  tensor.mutable_shared()->set_name(output.place->name);
  tensor.mutable_shared()->set_offset(output.place->offset);
  return Field(output.field, tensor);
}

// Returns the framing before an output of `bytes` bytes, or the whole field of
// an output in shared memory.
std::string Header(const OutputTensor& output, std::size_t bytes) {
  if (output.place != nullptr && !output.bare) return PlacedField(output);
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

// Returns the size of an output's field in the response, with framing.
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

}  // namespace

PendingResponse::PendingResponse(TensorAnswer&& answer,
                                 std::shared_ptr<const void> request,
                                 const RequestMessage* message,
                                 std::string fields, std::int64_t limit)
    : answer_(std::move(answer)),
      request_(std::move(request)),
      message_(message),
      fields_(std::move(fields)),
      limit_(limit),
      bytes_(fields_.size()),
      work_bytes_(answer_.computation->work()),
      bytes_to_claim_(answer_.shared_bytes),
      slices_(answer_.outputs.size()) {
  if (!answer_.sent) {
    answer_.sent.emplace(answer_.outputs.size());
    std::iota(answer_.sent->begin(), answer_.sent->end(), std::size_t{0});
  }
  together_ = answer_.sent->size() == answer_.outputs.size() &&
              !answer_.outputs.empty() &&
              !answer_.computation->needs_aligned_buffers();
  for (const std::size_t i : *answer_.sent) {
    const OutputTensor& output = answer_.outputs[i];
    bytes_ += FieldBytes(output);
    together_ &= output.form == TensorForm::kData && output.place == nullptr;
  }
  together_ &= bytes_ <= kOneSliceBytes;
  for (std::size_t i = 0; i < answer_.outputs.size(); ++i) {
    const std::size_t bytes = ByteCount(answer_.outputs[i]);
    work_bytes_ += bytes;
    if (!together_ && !IsComputedInPlace(i) && InputInPlace(i) == nullptr) {
      bytes_to_claim_ += static_cast<std::int64_t>(bytes);
    }
  }
}

bool PendingResponse::IsComputedInPlace(std::size_t i) const {
  const OutputPlace* const place = answer_.outputs[i].place.get();
  return place != nullptr &&
         (!answer_.computation->needs_aligned_buffers() ||
          reinterpret_cast<std::uintptr_t>(place->data) % kAlignment == 0);
}

const core::ConstPieces* PendingResponse::InputInPlace(std::size_t i) const {
  if (message_ == nullptr || answer_.outputs[i].place != nullptr) {
    return nullptr;
  }
  const core::ConstPieces* const input = answer_.computation->InputInPlace(i);
  return input != nullptr && message_->IsWritable(*input) ? input : nullptr;
}

absl::Status PendingResponse::Allocate(ResponseBuffers* buffers) {
  if (answer_.shared_bytes > 0) {
    // The count is reduced before HoldClaimed(), because a failed HoldClaimed()
    // releases the bytes.
    bytes_to_claim_ -= answer_.shared_bytes;
    shared_ = buffers->HoldClaimed(answer_.shared_bytes);
  }
  buffers_.resize(slices_.size());
  if (together_) {
    PutTogether();
    return absl::OkStatus();
  }
  for (std::size_t i = 0; i < slices_.size(); ++i) {
    RETURN_IF_ERROR(AllocateOutput(i, buffers));
  }
  return absl::OkStatus();
}

// Puts fields and headers into one slice, with space for each output after its
// header.
void PendingResponse::PutTogether() {
  one_slice_.emplace(
      WritableSlice::Own(grpc::Slice(absl::Uint128Low64(bytes_))));
  char* at = std::copy(fields_.begin(), fields_.end(), one_slice_->data());
  for (const std::size_t i : *answer_.sent) {
    const std::size_t bytes = ByteCount(answer_.outputs[i]);
    const std::string header = Header(answer_.outputs[i], bytes);
    at = std::copy(header.begin(), header.end(), at);
    buffers_[i].bytes = core::Pieces(at, bytes);
    at += bytes;
  }
}

absl::Status PendingResponse::AllocateOutput(std::size_t i,
                                             ResponseBuffers* buffers) {
  const std::size_t bytes = ByteCount(answer_.outputs[i]);
  if (IsComputedInPlace(i)) {
    const OutputPlace& place = *answer_.outputs[i].place;
    buffers_[i] = {core::Pieces(place.data, bytes), place.holds_input};
    return absl::OkStatus();
  }
  const core::ConstPieces* const input = InputInPlace(i);
  if (input != nullptr) {
    slices_[i] = message_->Writable(*input);
  } else if (bytes > 0) {
    ASSIGN_OR_RETURN(WritableSlice slice, buffers->Allocate(bytes));
    bytes_to_claim_ -= static_cast<std::int64_t>(bytes);
    slices_[i].push_back(std::move(slice));
  }
  core::Pieces::List pieces;
  for (WritableSlice& slice : slices_[i]) {
    pieces.emplace_back(slice.data(), slice.size());
  }
  buffers_[i] = {core::Pieces(std::move(pieces)), input != nullptr};
  return absl::OkStatus();
}

absl::Status PendingResponse::Compute(std::int64_t tile, StopCheck stop) const {
  if (answer_.check != nullptr) {
    RETURN_IF_ERROR(answer_.check());
  }
  return answer_.computation->Compute(tile, buffers_, stop);
}

absl::Status PendingResponse::Finish(grpc::ByteBuffer* response) {
  for (std::size_t i = 0; i < slices_.size(); ++i) {
    const OutputPlace* const place = answer_.outputs[i].place.get();
    if (place == nullptr || slices_[i].empty()) continue;
    WritableSlice& slice = slices_[i].front();
    std::copy_n(slice.data(), slice.size(), place->data);
    slices_[i].clear();
  }
  if (answer_.complete != nullptr) {
    RETURN_IF_ERROR(answer_.complete());
  }
  if (answer_.outputs.empty() && answer_.response != nullptr) {
    RETURN_IF_ERROR(CheckResponse(answer_.response->ByteSizeLong(), limit_));
    fields_ = answer_.response->SerializeAsString();
    answer_.response = nullptr;
    unclaimed_bytes_ = static_cast<std::int64_t>(fields_.size());
  }
  if (one_slice_) {
    grpc::ByteBuffer(&one_slice_->slice(), 1).Swap(response);
    return absl::OkStatus();
  }
  const std::vector<grpc::Slice> slices = InOrder();
  grpc::ByteBuffer(slices.data(), slices.size()).Swap(response);
  return absl::OkStatus();
}

std::vector<grpc::Slice> PendingResponse::InOrder() const {
  std::vector<grpc::Slice> slices;
  if (!fields_.empty() || slices_.empty()) slices.emplace_back(fields_);
  for (const std::size_t i : *answer_.sent) {
    const OutputTensor& output = answer_.outputs[i];
    const std::size_t bytes = ByteCount(output);
    if (output.form == TensorForm::kValues) {
      slices.emplace_back(
          Field(output.field,
                SpelledOut({output.dtype, output.shape, buffers_[i].data()})));
      continue;
    }
    slices.emplace_back(Header(output, output.place == nullptr ? bytes : 0));
    for (const WritableSlice& slice : slices_[i]) {
      slices.push_back(slice.slice());
    }
  }
  return slices;
}

absl::StatusOr<std::unique_ptr<PendingResponse>> MakeResponse(
    TensorAnswer&& answer, std::shared_ptr<const void> request,
    const RequestMessage* message, std::string fields, std::int64_t limit) {
  auto response = std::make_unique<PendingResponse>(
      std::move(answer), std::move(request), message, std::move(fields), limit);
  RETURN_IF_ERROR(CheckResponse(response->bytes(), limit));
  return response;
}

}  // namespace posenc::server
