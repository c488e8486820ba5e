// ApplyRope and Reposition: rotate tensors of heads in one message or, if the
// tensors are too large, through a stream.
//
// The two RPCs differ only in their messages. So RotationOf() describes a call
// of either RPC, and these functions make the call:
//
//   StreamBytes()   a stream of bytes that the caller gives
//   InStream()      a stream of the bytes of tensors in memory
//   InOneMessage()  one unary call
//   Rotate()        one message or a stream
//
// Each function calls only functions above it. So a call is sent at most twice:
// in one message, then through a stream.

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cpp/connection/calls.h"
#include "client/cpp/connection/error_fields.h"
#include "posenc/client.h"

namespace posenc {
namespace {

using google::protobuf::Message;

// Position ids with fewer bytes than this are a part of a stream's first
// message. The bytes of larger ids follow in messages of their own.
constexpr std::size_t kSmallIds = 64 << 10;

// A tensor of a call: its names in errors, its field number in all messages,
// and the arguments' members for the tensor and its output.
struct RotatedTensor {
  const char* name;
  const char* output_name;
  int field;
  const absl::optional<TensorView>& view;
  const Output& output;
};

// A call of either RPC. It borrows the caller's arguments.
struct Rotation {
  std::string name;                    // of the unary RPC
  std::vector<RotatedTensor> tensors;  // in the order of a stream's bytes
  // The first message of a stream. It owns `request`, the request of the unary
  // RPC without tensors, and `ids`, the position ids whose bytes a stream can
  // carry, in the stream's order.
  std::unique_ptr<Message> first;
  Message* request;
  std::vector<v1::Tensor*> ids;
  std::unique_ptr<Message> response;
};

Rotation RotationOf(const ApplyRopeArgs& args) {
  auto first = std::make_unique<v1::ApplyRopeStreamRequest>();
  v1::ApplyRopeRequest* const request = first->mutable_call();
  *request->mutable_rope() = args.rope;
  std::vector<v1::Tensor*> ids;
  // Missing positions stay unset, because the server would report an empty
  // message as another fault.
  if (args.positions.kind_case() != v1::Positions::KIND_NOT_SET) {
    *request->mutable_positions() = args.positions;
  }
  if (request->positions().has_ids()) {
    ids.push_back(request->mutable_positions()->mutable_ids());
  }
  request->set_layout(args.layout);
  request->set_direction(args.direction);
  if (args.query_scale) *request->mutable_query_scale() = *args.query_scale;
  request->set_saturation(args.saturation);
  return {"ApplyRope",
          {{"q", "q_output", request->kQFieldNumber, args.q, args.q_out},
           {"k", "k_output", request->kKFieldNumber, args.k, args.k_out}},
          std::move(first),
          request,
          std::move(ids),
          std::make_unique<v1::ApplyRopeResponse>()};
}

Rotation RotationOf(const RepositionArgs& args) {
  auto first = std::make_unique<v1::RepositionStreamRequest>();
  v1::RepositionRequest* const request = first->mutable_call();
  *request->mutable_old_rope() = args.old_rope;
  if (args.new_rope) *request->mutable_new_rope() = *args.new_rope;
  v1::Movement* const movement = request->mutable_movement();
  *movement = args.movement;
  std::vector<v1::Tensor*> ids;
  if (movement->old_positions().has_ids()) {
    ids.push_back(movement->mutable_old_positions()->mutable_ids());
  }
  if (movement->new_positions().has_ids()) {
    ids.push_back(movement->mutable_new_positions()->mutable_ids());
  }
  if (movement->has_shifts()) ids.push_back(movement->mutable_shifts());
  request->set_layout(args.layout);
  if (args.cache) *request->mutable_cache() = *args.cache;
  request->set_saturation(args.saturation);
  request->set_block_format(args.block_format);
  return {"Reposition",
          {{"k", "out", request->kKFieldNumber, args.k, args.out}},
          std::move(first),
          request,
          std::move(ids),
          std::make_unique<v1::RepositionResponse>()};
}

absl::StatusOr<ApplyRopeResult> QAndK(absl::StatusOr<ReceivedTensors> tensors) {
  if (!tensors.ok()) return tensors.status();
  return ApplyRopeResult{std::move(tensors->views[0]),
                         std::move(tensors->views[1]),
                         std::move(tensors->owner)};
}

bool HasTensorBytes(const Rotation& rotation) {
  return std::any_of(rotation.tensors.begin(), rotation.tensors.end(),
                     [](const RotatedTensor& tensor) {
                       return tensor.view && !tensor.view->bytes.empty();
                     });
}

std::vector<TensorField> SentFields(const Rotation& rotation) {
  std::vector<TensorField> fields;
  for (const RotatedTensor& tensor : rotation.tensors) {
    if (tensor.view) fields.push_back({tensor.field, &*tensor.view});
  }
  return fields;
}

// Runs a stream: sends the request, then the bytes of large position ids, then
// the bytes of `next`. For `lend` see Calls::StreamBytes().
absl::Status StreamBytes(Calls* calls, Rotation* rotation,
                         const NextBytes& next, bool lend,
                         const TakeBytes& take, const CallOptions& options) {
  for (const TensorField& field : SentFields(*rotation)) {
    SetForm(field, rotation->request);
  }
  std::vector<std::string> ids;
  for (v1::Tensor* const tensor : rotation->ids) {
    std::string* const data = tensor->mutable_data();
    if (data->size() < kSmallIds || !IsWhole(ViewOf(*tensor))) continue;
    ids.push_back(std::move(*data));
    data->clear();
  }
  std::size_t index = 0;
  return calls->StreamBytes(
      absl::StrCat(rotation->name, "Stream"), *rotation->first,
      [&]() -> absl::StatusOr<absl::Span<const char>> {
        if (index == ids.size()) return next();
        const std::string& bytes = ids[index++];
        return absl::MakeConstSpan(bytes.data(), bytes.size());
      },
      lend, take, options);
}

// A tensor of a stream, and the memory for its result.
struct StreamedTensor {
  absl::Span<const char> bytes;
  absl::Span<char> output;
};

// Streams all tensors. The outputs must fit the tensors.
absl::StatusOr<ReceivedTensors> InStream(Calls* calls, Rotation* rotation,
                                         const CallOptions& options) {
  auto owners = std::make_shared<std::vector<std::shared_ptr<char>>>();
  std::vector<StreamedTensor> tensors;  // only tensors with bytes
  ReceivedTensors whole;
  std::int64_t bytes = 0;
  for (const RotatedTensor& tensor : rotation->tensors) {
    const absl::optional<TensorView>& view = tensor.view;
    whole.views.emplace_back();
    if (!view) continue;
    const std::size_t size = view->bytes.size();
    if (!IsWhole(*view)) {
      return WrongArgument(
          tensor.name, absl::StrCat("has ", size,
                                    " bytes, which its dtype and shape do not "
                                    "take"));
    }
    Output output = tensor.output;
    if (!output) {
      owners->push_back(AlignedMemory(size));
      output = absl::MakeSpan(owners->back().get(), size);
    }
    whole.views.back() = TensorView{view->dtype, view->shape, *output};
    if (size > 0) tensors.push_back({view->bytes, *output});
    bytes += static_cast<std::int64_t>(size);
  }
  whole.owner = std::move(owners);

  std::size_t sent = 0, received = 0;  // numbers of whole tensors
  std::int64_t done = 0;
  const absl::Status status = StreamBytes(
      calls, rotation,
      [&]() -> absl::StatusOr<absl::Span<const char>> {
        if (sent == tensors.size()) return absl::Span<const char>();
        return tensors[sent++].bytes;
      },
      true,
      [&](absl::Span<const char> piece) -> absl::Status {
        done += static_cast<std::int64_t>(piece.size());
        while (!piece.empty()) {
          if (received == tensors.size()) {
            return absl::InternalError("more bytes came than were sent");
          }
          absl::Span<char>& to = tensors[received].output;
          const absl::Span<const char> from = piece.subspan(0, to.size());
          std::memmove(to.data(), from.data(), from.size());  // may overlap
          piece.remove_prefix(from.size());
          to.remove_prefix(from.size());
          if (to.empty()) ++received;
        }
        if (options.on_progress) options.on_progress(done, bytes);
        return absl::OkStatus();
      },
      options);
  if (!status.ok()) return status;
  if (done != bytes) {
    return absl::InternalError(
        absl::StrCat("the stream ended after ", done, " of ", bytes, " bytes"));
  }
  return whole;
}

absl::Status CheckOutputs(const Rotation& rotation) {
  for (const RotatedTensor& tensor : rotation.tensors) {
    const absl::Status status =
        CheckOutput(tensor.output_name, tensor.view, tensor.output);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<ReceivedTensors> InOneMessage(Calls* calls,
                                             const Rotation& rotation,
                                             const CallOptions& options) {
  std::vector<WantedTensor> wanted;
  wanted.reserve(rotation.tensors.size());
  for (const RotatedTensor& tensor : rotation.tensors) {
    wanted.push_back({tensor.field, tensor.output, tensor.view});
  }
  return calls->Bulk(rotation.name, *rotation.request, SentFields(rotation),
                     rotation.response.get(), wanted, options);
}

// Uses a stream for tensors with bytes if `stream` is true or the message is
// too large. Otherwise uses one message.
absl::StatusOr<ReceivedTensors> Rotate(Calls* calls, Rotation rotation,
                                       bool stream,
                                       const CallOptions& options) {
  const absl::Status status = CheckOutputs(rotation);
  if (!status.ok()) return status;
  if (!HasTensorBytes(rotation)) return InOneMessage(calls, rotation, options);
  const std::vector<TensorField> fields = SentFields(rotation);
  // Tensors in shared memory are not sent.
  const std::int64_t sent = MessageBytes(*rotation.request, fields) -
                            calls->regions().SharedBytes(fields);
  if (stream || sent > calls->stream_above_bytes()) {
    return InStream(calls, &rotation, options);
  }
  const WholeCall call(options);
  absl::StatusOr<ReceivedTensors> result =
      InOneMessage(calls, rotation, call.Rest());
  // The server's limit may be lower than the client's.
  if (!result.ok() && TooLarge(result.status())) {
    return InStream(calls, &rotation, call.Rest());
  }
  return result;
}

}  // namespace

absl::StatusOr<ApplyRopeResult> Client::ApplyRope(
    const ApplyRopeArgs& args, const CallOptions& options) const {
  return QAndK(Rotate(calls_.get(), RotationOf(args), false, options));
}

absl::StatusOr<ApplyRopeResult> Client::ApplyRopeStream(
    const ApplyRopeArgs& args, const CallOptions& options) const {
  return QAndK(Rotate(calls_.get(), RotationOf(args), true, options));
}

absl::Status Client::ApplyRopeStream(const ApplyRopeArgs& args,
                                     const NextBytes& next,
                                     const TakeBytes& take,
                                     const CallOptions& options) const {
  Rotation rotation = RotationOf(args);
  return StreamBytes(calls_.get(), &rotation, next, false, take, options);
}

absl::StatusOr<TensorResult> Client::Reposition(
    const RepositionArgs& args, const CallOptions& options) const {
  return ResultOf(Rotate(calls_.get(), RotationOf(args), false, options));
}

absl::StatusOr<TensorResult> Client::RepositionStream(
    const RepositionArgs& args, const CallOptions& options) const {
  return ResultOf(Rotate(calls_.get(), RotationOf(args), true, options));
}

absl::Status Client::RepositionStream(const RepositionArgs& args,
                                      const NextBytes& next,
                                      const TakeBytes& take,
                                      const CallOptions& options) const {
  Rotation rotation = RotationOf(args);
  return StreamBytes(calls_.get(), &rotation, next, false, take, options);
}

}  // namespace posenc
