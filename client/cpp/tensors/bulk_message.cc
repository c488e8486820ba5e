#include "client/cpp/tensors/bulk_message.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cpp/connection/error_fields.h"
#include "google/protobuf/descriptor.h"
#include "posenc/wire/frame.h"

namespace posenc {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Field number of `data` in the messages of byte streams.
constexpr int kData = v1::ApplyRopeStreamRequest::kDataFieldNumber;

// Tensors with fewer bytes than this are copied, because a copy costs less than
// waiting until gRPC has returned a slice. So only bulk connections (calls.cc),
// which carry messages of at least this size, hold the caller's memory.
constexpr std::size_t kLentBytes = 64 << 10;

// Size in bytes of a cache line, and of the largest vector register.
constexpr std::size_t kAlignment = 64;

// With reflection, one function serves all RPCs. Reflection costs little
// compared with the work for a tensor.
const FieldDescriptor* FieldOf(const Message& message, int number) {
  return message.GetDescriptor()->FindFieldByNumber(number);
}

}  // namespace

bool IsWhole(const TensorView& view) {
  const std::size_t element = wire::ElementBytes(view.dtype);
  return element > 0 &&
         std::all_of(view.shape.begin(), view.shape.end(),
                     [](std::int64_t n) { return n >= 0; }) &&
         wire::DataBytes(element, view.shape) == view.bytes.size();
}

std::int64_t MessageBytes(const Message& message,
                          absl::Span<const TensorField> tensors) {
  std::size_t bytes = message.ByteSizeLong();
  for (const TensorField& field : tensors) {
    const TensorView& view = *field.view;
    bytes += absl::Uint128Low64(wire::TensorFieldBytes(
        field.number, view.dtype, view.shape, view.bytes.size()));
  }
  return static_cast<std::int64_t>(bytes);
}

// The slices of a message with q and k, both large:
//
//   | small fields, header of q | q | header of k | k |
//       copied                   lent    copied     lent
grpc::ByteBuffer FrameMessage(const Message& message,
                              absl::Span<const TensorField> tensors,
                              Loans* loans) {
  std::vector<grpc::Slice> slices;
  std::string small = message.SerializeAsString();
  for (const TensorField& field : tensors) {
    const TensorView& view = *field.view;
    wire::AppendTensorFieldHeader(field.number, view.dtype, view.shape,
                                  view.bytes.size(), &small);
    if (view.bytes.empty()) continue;
    if (view.bytes.size() < kLentBytes) {
      small.append(view.bytes.data(), view.bytes.size());
      continue;
    }
    slices.emplace_back(small);
    slices.push_back(loans->Lend(view.bytes));
    small.clear();
  }
  if (!small.empty() || slices.empty()) slices.emplace_back(small);
  return grpc::ByteBuffer(slices.data(), slices.size());
}

grpc::ByteBuffer FrameData(absl::Span<const char> data, Loans* loans) {
  std::string header;
  wire::AppendFieldHeader(kData, data.size(), &header);
  const grpc::Slice slices[] = {grpc::Slice(header),
                                loans == nullptr
                                    ? grpc::Slice(data.data(), data.size())
                                    : loans->Lend(data)};
  return grpc::ByteBuffer(slices, 2);
}

v1::Tensor* SetForm(const TensorField& tensor, Message* message) {
  auto* const set =
      static_cast<v1::Tensor*>(message->GetReflection()->MutableMessage(
          message, FieldOf(*message, tensor.number)));
  set->set_dtype(tensor.view->dtype);
  set->mutable_shape()->Add(tensor.view->shape.begin(),
                            tensor.view->shape.end());
  return set;
}

void TensorReader::Read(std::size_t size, char* to) {
  while (size > 0) {
    const absl::Span<const char> piece = pieces_.front().subspan(offset_, size);
    std::memmove(to, piece.data(), piece.size());  // may overlap
    to += piece.size();
    size -= piece.size();
    offset_ += piece.size();
    if (offset_ == pieces_.front().size()) {
      pieces_.remove_prefix(1);
      offset_ = 0;
    }
  }
}

absl::StatusOr<ReceivedMessage> ReceivedMessage::Parse(
    const grpc::ByteBuffer& buffer, std::vector<int> numbers,
    Message* message) {
  ReceivedMessage result;
  result.numbers_ = std::move(numbers);
  result.message_ = message;
  // An empty message has no slices, and Dump() would fail.
  if (buffer.Valid() && !buffer.Dump(&result.slices_).ok()) {
    return absl::InternalError("the response cannot be read");
  }
  std::vector<absl::Span<const char>> pieces;
  pieces.reserve(result.slices_.size());
  for (const grpc::Slice& slice : result.slices_) {
    pieces.emplace_back(reinterpret_cast<const char*>(slice.begin()),
                        slice.size());
  }
  wire::SplitMessage split;
  if (!wire::SplitTensors(pieces, result.numbers_, &split) ||
      !message->ParseFromString(split.rest)) {
    return absl::InternalError("the response is no valid message");
  }
  result.bytes_ = std::move(split.tensors);
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

std::string ReceivedMessage::name(std::size_t index) const {
  return std::string(FieldOf(*message_, numbers_[index])->name());
}

std::string ReceivedMessage::output_name(std::size_t index) const {
  return name(index) + "_output";
}

std::shared_ptr<char> AlignedMemory(std::size_t bytes) {
  constexpr std::align_val_t kAligned{kAlignment};
  return std::shared_ptr<char>(
      static_cast<char*>(::operator new(bytes, kAligned)),
      [](char* memory) { ::operator delete(memory, kAligned); });
}

namespace {

std::string Described(v1::Dtype dtype, absl::Span<const std::int64_t> shape) {
  return absl::StrCat(v1::Dtype_Name(dtype), " [", absl::StrJoin(shape, ", "),
                      "]");
}

}  // namespace

absl::Status CheckAnswer(const ReceivedMessage& message, std::size_t index,
                         const absl::optional<TensorView>& like) {
  const v1::Tensor* const tensor = message.tensor(index);
  if (tensor == nullptr) {
    if (!like) return absl::OkStatus();
    return absl::InternalError(
        absl::StrCat("the answer has no ", message.name(index)));
  }
  const std::size_t bytes = message.bytes(index).size;
  const std::size_t element = wire::ElementBytes(tensor->dtype());
  const absl::Span<const std::int64_t> shape(tensor->shape().data(),
                                             tensor->shape().size());
  const bool counts = std::all_of(shape.begin(), shape.end(),
                                  [](std::int64_t n) { return n >= 0; });
  if (element > 0 && counts &&
      (tensor->has_shared() || wire::DataBytes(element, shape) == bytes) &&
      (!like || (like->dtype == tensor->dtype() &&
                 absl::MakeConstSpan(like->shape) == shape))) {
    return absl::OkStatus();
  }
  return absl::InternalError(absl::StrCat(
      "the answer's ", message.name(index), " is ",
      Described(tensor->dtype(), shape), " with ", bytes, " bytes",
      like ? "; must be " + Described(like->dtype, like->shape) : ""));
}

absl::Status CheckPlaces(const ReceivedMessage& answer, std::size_t tensors,
                         const Message& request) {
  for (std::size_t i = 0; i < tensors; ++i) {
    const v1::Tensor* const tensor = answer.tensor(i);
    if (tensor == nullptr || !tensor->has_shared()) continue;
    const FieldDescriptor* const place =
        request.GetDescriptor()->FindFieldByName(answer.output_name(i));
    if (place == nullptr ||
        !request.GetReflection()->HasField(request, place)) {
      return absl::InternalError(
          absl::StrCat("the answer's ", answer.name(i),
                       " is in shared memory, which was not requested"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<ReceivedTensors> TakeTensors(
    const ReceivedMessage& message, absl::Span<const WantedTensor> wanted) {
  const auto aligned = [](std::size_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  };
  // Everything is checked before anything is written, so that an error does not
  // change the outputs.
  std::size_t own = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const absl::Status answer = CheckAnswer(message, i, wanted[i].like);
    if (!answer.ok()) return answer;
    const std::size_t bytes = message.bytes(i).size;
    const Output& into = wanted[i].into;
    if (!into) {
      own += aligned(bytes);
    } else if (message.tensor(i) != nullptr &&
               !message.tensor(i)->has_shared() && into->size() != bytes) {
      return WrongArgument(
          message.output_name(i),
          absl::StrCat("has ", into->size(), " bytes; the result has ", bytes));
    }
  }
  ReceivedTensors received;
  const std::shared_ptr<char> memory = own > 0 ? AlignedMemory(own) : nullptr;
  received.owner = memory;
  char* free = memory.get();
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    received.views.emplace_back();
    const Output& into = wanted[i].into;
    const v1::Tensor* const tensor = message.tensor(i);
    if (tensor == nullptr) continue;
    const std::size_t bytes = message.bytes(i).size;
    TensorView& view = received.views.back().emplace();
    view.dtype = tensor->dtype();
    view.shape.assign(tensor->shape().begin(), tensor->shape().end());
    if (into && tensor->has_shared()) {
      view.bytes = *into;  // the server has written them
      continue;
    }
    char* const to = into ? into->data() : free;
    if (!into) free += aligned(bytes);
    TensorReader(message.bytes(i)).Read(bytes, to);
    view.bytes = absl::MakeConstSpan(to, bytes);
  }
  return received;
}

absl::StatusOr<TensorResult> ResultOf(absl::StatusOr<ReceivedTensors> tensors) {
  if (!tensors.ok()) return tensors.status();
  absl::optional<TensorView>& tensor = tensors->views[0];
  if (!tensor) return absl::InternalError("the answer has no tensor");
  return TensorResult{*std::move(tensor), std::move(tensors->owner)};
}

absl::Status CheckOutput(absl::string_view name,
                         const absl::optional<TensorView>& tensor,
                         const Output& output) {
  if (!output) return absl::OkStatus();
  if (!tensor) {
    return WrongArgument(name,
                         "memory for the result of a tensor that is not "
                         "given; give both or neither");
  }
  if (tensor->bytes.size() == output->size()) return absl::OkStatus();
  return WrongArgument(
      name, absl::StrCat("has ", output->size(), " bytes; must have ",
                         tensor->bytes.size()));
}

}  // namespace posenc
