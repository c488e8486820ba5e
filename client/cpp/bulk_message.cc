#include "bulk_message.h"

#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "posenc/wire/varint.h"

namespace posenc {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using wire::AppendVarint;
using wire::VarintBytes;

constexpr std::uint32_t kLengthDelimited = 2;
constexpr int kDataField = v1::Tensor::kDataFieldNumber;

// Below this a copy costs less than a slice that has to come back; only bulk
// connections (calls.cc) ever hold memory of the caller's.
constexpr std::size_t kLent = 64 << 10;

constexpr std::size_t kAlignment = 64;  // a cache line, a vector register

std::uint32_t Tag(int field) {
  return static_cast<std::uint32_t>(field) << 3 | kLengthDelimited;
}

v1::Tensor HeaderOf(const TensorView& view) {
  v1::Tensor tensor;
  tensor.set_dtype(view.dtype);
  tensor.mutable_shape()->Add(view.shape.begin(), view.shape.end());
  return tensor;
}

// Of the tensor's own message.
std::size_t TensorBytes(const v1::Tensor& header, const TensorView& view) {
  const std::size_t data = view.bytes.size();
  std::size_t bytes = header.ByteSizeLong();
  if (data > 0)
    bytes += VarintBytes(Tag(kDataField)) + VarintBytes(data) + data;
  return bytes;
}

const FieldDescriptor* FieldOf(const Message& message, int number) {
  return message.GetDescriptor()->FindFieldByNumber(number);
}

void CopyPieces(absl::Span<const absl::Span<const char>> pieces,
                std::size_t offset, std::size_t size, char* to) {
  for (absl::Span<const char> piece : pieces) {
    if (size == 0) return;
    if (offset >= piece.size()) {
      offset -= piece.size();
      continue;
    }
    piece = piece.subspan(offset, size);
    offset = 0;
    std::memmove(to, piece.data(), piece.size());
    to += piece.size();
    size -= piece.size();
  }
}

}  // namespace

std::int64_t MessageBytes(const Message& message,
                          absl::Span<const TensorField> tensors) {
  std::size_t bytes = message.ByteSizeLong();
  for (const TensorField& field : tensors) {
    const std::size_t length = TensorBytes(HeaderOf(*field.view), *field.view);
    bytes += VarintBytes(Tag(field.number)) + VarintBytes(length) + length;
  }
  return static_cast<std::int64_t>(bytes);
}

grpc::ByteBuffer FrameMessage(const Message& message,
                              absl::Span<const TensorField> tensors,
                              const std::shared_ptr<const void>& owner,
                              Loans* loans) {
  std::vector<grpc::Slice> slices;
  std::string small = message.SerializeAsString();
  for (const TensorField& field : tensors) {
    const v1::Tensor header = HeaderOf(*field.view);
    const absl::Span<const char> data = field.view->bytes;
    AppendVarint(Tag(field.number), &small);
    AppendVarint(TensorBytes(header, *field.view), &small);
    header.AppendToString(&small);
    if (data.empty()) continue;
    AppendVarint(Tag(kDataField), &small);
    AppendVarint(data.size(), &small);
    if (data.size() < kLent) {
      small.append(data.data(), data.size());
      continue;
    }
    slices.emplace_back(small);
    slices.push_back(loans->Lend(data, owner));
    small.clear();
  }
  if (!small.empty() || slices.empty()) slices.emplace_back(small);
  return grpc::ByteBuffer(slices.data(), slices.size());
}

void SetTensors(absl::Span<const TensorField> tensors, Message* message) {
  for (const TensorField& field : tensors) {
    message->GetReflection()
        ->MutableMessage(message, FieldOf(*message, field.number))
        ->CopyFrom(ToTensor(*field.view));
  }
}

absl::StatusOr<ReceivedMessage> ReceivedMessage::Parse(
    const grpc::ByteBuffer& buffer, std::vector<int> tensors,
    Message* message) {
  ReceivedMessage result;
  result.numbers_ = std::move(tensors);
  result.message_ = message;
  // Of an empty message there are no slices to be had.
  if (buffer.Valid() && !buffer.Dump(&result.slices_).ok()) {
    return absl::InternalError("the response cannot be read");
  }
  std::vector<absl::Span<const char>> pieces;
  for (const grpc::Slice& slice : result.slices_) {
    pieces.emplace_back(reinterpret_cast<const char*>(slice.begin()),
                        slice.size());
  }
  bool parsed;
  if (wire::SplitTensors(pieces, result.numbers_, &result.split_)) {
    parsed = message->ParseFromString(result.split_.rest);
  } else {
    // Legal, but framed as nobody writes it: the generated parser decides.
    result.split_ = {};
    std::string whole;
    for (const absl::Span<const char> piece : pieces) {
      whole.append(piece.data(), piece.size());
    }
    parsed = message->ParseFromString(whole);
  }
  if (!parsed) return absl::InternalError("the response is no valid message");
  return result;
}

ReceivedMessage ReceivedMessage::Of(std::vector<int> tensors,
                                    const Message* message) {
  ReceivedMessage result;
  result.numbers_ = std::move(tensors);
  result.message_ = message;
  return result;
}

const v1::Tensor* ReceivedMessage::tensor(std::size_t index) const {
  const FieldDescriptor* const field = FieldOf(*message_, numbers_[index]);
  const google::protobuf::Reflection* const reflection =
      message_->GetReflection();
  if (!reflection->HasField(*message_, field)) return nullptr;
  return static_cast<const v1::Tensor*>(
      &reflection->GetMessage(*message_, field));
}

std::size_t ReceivedMessage::bytes(std::size_t index) const {
  if (!split_.tensors.empty()) return split_.tensors[index].size;
  const v1::Tensor* const found = tensor(index);
  return found == nullptr ? 0 : found->data().size();
}

void ReceivedMessage::Copy(std::size_t index, std::size_t offset,
                           std::size_t size, char* to) const {
  if (!split_.tensors.empty()) {
    CopyPieces(split_.tensors[index].pieces, offset, size, to);
  } else if (size > 0) {
    std::memcpy(to, tensor(index)->data().data() + offset, size);
  }
}

std::shared_ptr<char> AlignedMemory(std::size_t bytes) {
  constexpr std::align_val_t kAligned{kAlignment};
  return std::shared_ptr<char>(
      static_cast<char*>(::operator new(bytes, kAligned)),
      [](char* memory) { ::operator delete(memory, kAligned); });
}

absl::StatusOr<TakenTensors> TakeTensors(
    const ReceivedMessage& message,
    absl::Span<const absl::optional<absl::Span<char>>> into) {
  const auto aligned = [](std::size_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  };
  std::size_t own = 0;
  for (std::size_t i = 0; i < into.size(); ++i) {
    const std::size_t bytes = message.bytes(i);
    if (!into[i]) {
      own += aligned(bytes);
    } else if (message.tensor(i) != nullptr && into[i]->size() != bytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the answer's tensor has ", bytes, " bytes, the memory given for it ",
          into[i]->size(), "; they must be equal"));
    }
  }
  TakenTensors taken;
  const std::shared_ptr<char> memory = own > 0 ? AlignedMemory(own) : nullptr;
  taken.owner = memory;
  char* free = memory.get();
  for (std::size_t i = 0; i < into.size(); ++i) {
    taken.views.emplace_back();
    const v1::Tensor* const tensor = message.tensor(i);
    if (tensor == nullptr) continue;
    const std::size_t bytes = message.bytes(i);
    char* const to = into[i] ? into[i]->data() : free;
    if (!into[i]) free += aligned(bytes);
    message.Copy(i, 0, bytes, to);
    TensorView& view = taken.views.back().emplace();
    view.dtype = tensor->dtype();
    view.shape.assign(tensor->shape().begin(), tensor->shape().end());
    view.bytes = absl::MakeConstSpan(to, bytes);
  }
  return taken;
}

}  // namespace posenc
