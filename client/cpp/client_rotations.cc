// ApplyRope and Reposition: rotate tensors of heads in one message or, if the
// tensors are too large, through a stream.
//
// The two RPCs differ only in their messages. So each RPC has a description
// (rotation_rpcs.h), and these functions are templates:
//
//   StreamBytes()     a stream of bytes that the caller gives
//   InStream()        a stream of the bytes of tensors in memory
//   InOneMessage()    one unary call
//   Rotate()          one message, or a stream if the message is too large
//   RotateInStream()  a stream, or one message if there are no bytes
//
// Each function calls only functions above it. So a call is sent at most twice:
// in one message, then through a stream.

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cpp/connection/calls.h"
#include "client/cpp/connection/error_fields.h"
#include "client/cpp/tensors/rotation_rpcs.h"
#include "posenc/client.h"
#include "posenc/wire/frame.h"

namespace posenc {
namespace {

// Position ids of fewer bytes are part of a stream's first message.
constexpr std::size_t kSmallIds = 64 << 10;

// Returns whether a tensor has the number of bytes that its dtype and shape
// imply. Returns false also for a dtype or shape that the server must refuse.
bool IsWhole(v1::Dtype dtype, absl::Span<const std::int64_t> shape,
             std::size_t bytes) {
  const std::size_t element = wire::ElementBytes(dtype);
  return element > 0 &&
         std::all_of(shape.begin(), shape.end(),
                     [](std::int64_t n) { return n >= 0; }) &&
         wire::DataBytes(element, shape) == bytes;
}

template <typename Rpc>
std::vector<int> Fields() {
  static_assert(
      int{Rpc::Request::kKFieldNumber} == int{Rpc::Response::kKFieldNumber},
      "a tensor has one number in all messages");
  std::vector<int> fields;
  for (const auto& tensor : Rpc::kTensors) fields.push_back(tensor.field);
  return fields;
}

template <typename Rpc>
bool HasTensorBytes(const typename Rpc::Args& args) {
  return std::any_of(std::begin(Rpc::kTensors), std::end(Rpc::kTensors),
                     [&](const auto& tensor) {
                       const auto& view = args.*tensor.view;
                       return view && !view->bytes.empty();
                     });
}

// Runs a stream: sends the request, then the bytes of large position ids, then
// the bytes of `next`. `calls` is a Client::Calls, here and below. For `lend`
// see Calls::StreamBytes().
template <typename Rpc, typename Calls>
absl::Status StreamBytes(Calls* calls, const typename Rpc::Args& args,
                         const NextBytes& next, bool lend,
                         const TakeBytes& take, const CallOptions& options) {
  typename Rpc::StreamRequest first;
  typename Rpc::Request* const call = first.mutable_call();
  *call = Rpc::RequestOf(args);
  for (const auto& tensor : Rpc::kTensors) {
    const auto& view = args.*tensor.view;
    if (!view) continue;
    const TensorView described = {view->dtype, view->shape, {}};
    SetTensors({{tensor.field, &described}}, call);
  }
  std::vector<std::string> ids;
  for (v1::Tensor* const tensor : Rpc::IdsOf(call)) {
    std::string* const data = tensor->mutable_data();
    if (data->size() < kSmallIds ||
        !IsWhole(tensor->dtype(), tensor->shape(), data->size())) {
      continue;
    }
    ids.push_back(std::move(*data));
    data->clear();
  }
  std::size_t index = 0;
  return calls->StreamBytes(
      Rpc::kStreamName, first,
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
template <typename Rpc, typename Calls>
absl::StatusOr<typename Rpc::Result> InStream(Calls* calls,
                                              const typename Rpc::Args& args,
                                              const CallOptions& options) {
  auto owners = std::make_shared<std::vector<std::shared_ptr<char>>>();
  std::vector<StreamedTensor> tensors;  // only tensors with bytes
  ReceivedTensors whole;
  std::int64_t bytes = 0;
  for (const auto& tensor : Rpc::kTensors) {
    whole.views.emplace_back();
    const auto& view = args.*tensor.view;
    if (!view) continue;
    const std::size_t size = view->bytes.size();
    if (!IsWhole(view->dtype, view->shape, size)) {
      return WrongArgument(
          tensor.name, absl::StrCat("has ", size,
                                    " bytes, which its dtype and shape do not "
                                    "take"));
    }
    Output output = args.*tensor.output;
    if (!output) {
      owners->push_back(AlignedMemory(size));
      output = absl::MakeSpan(owners->back().get(), size);
    }
    whole.views.back() = TensorView{view->dtype, view->shape, *output};
    if (size > 0) tensors.push_back({view->bytes, *output});
    bytes += static_cast<std::int64_t>(size);
  }
  whole.owner = std::move(owners);

  std::size_t sent = 0, received = 0;  // numbers of tensors
  std::int64_t done = 0;
  const absl::Status status = StreamBytes<Rpc>(
      calls, args,
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
  return Rpc::ResultOf(std::move(whole));
}

// The message of a unary call, its tensors, and its size.
template <typename Rpc>
struct OneMessage {
  explicit OneMessage(const typename Rpc::Args& args)
      : request(Rpc::RequestOf(args)) {
    for (const auto& tensor : Rpc::kTensors) {
      const auto& view = args.*tensor.view;
      if (view) sent.fields.push_back({tensor.field, &*view});
    }
    sent.message_bytes = MessageBytes(request, sent.fields);
  }

  typename Rpc::Request request;
  SentTensors sent;
};

template <typename Rpc>
absl::Status CheckOutputs(const typename Rpc::Args& args) {
  for (const auto& tensor : Rpc::kTensors) {
    const absl::Status status =
        CheckOutput(tensor.output_name, args.*tensor.view, args.*tensor.output);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

template <typename Rpc, typename Calls>
absl::StatusOr<typename Rpc::Result> InOneMessage(
    Calls* calls, const typename Rpc::Args& args,
    const OneMessage<Rpc>& message, const CallOptions& options) {
  WantedTensors wanted;
  wanted.fields = Fields<Rpc>();
  for (const auto& tensor : Rpc::kTensors) {
    wanted.into.push_back(args.*tensor.output);
    const auto& view = args.*tensor.view;
    wanted.exactly.push_back(
        view ? static_cast<std::int64_t>(view->bytes.size()) : -1);
    wanted.like.push_back(view);
  }
  typename Rpc::Response response;
  absl::StatusOr<ReceivedTensors> tensors = calls->Bulk(
      Rpc::kName, message.request, message.sent, &response, wanted, options);
  if (!tensors.ok()) return tensors.status();
  return Rpc::ResultOf(*std::move(tensors));
}

template <typename Rpc, typename Calls>
absl::StatusOr<typename Rpc::Result> Rotate(Calls* calls,
                                            const typename Rpc::Args& args,
                                            const CallOptions& options) {
  const absl::Status status = CheckOutputs<Rpc>(args);
  if (!status.ok()) return status;
  const OneMessage<Rpc> message(args);
  const std::int64_t bytes = message.sent.message_bytes;
  const bool can_stream = HasTensorBytes<Rpc>(args);
  // Tensors in shared memory are not sent.
  const std::int64_t sent =
      bytes - calls->regions().SharedBytes(message.sent.fields);
  if (can_stream && sent > calls->stream_above_bytes()) {
    return InStream<Rpc>(calls, args, options);
  }
  const WholeCall call(options);
  absl::StatusOr<typename Rpc::Result> result =
      InOneMessage<Rpc>(calls, args, message, call.Rest());
  // The server's limit may be lower than the client's.
  if (!result.ok() && can_stream && TooLarge(result.status())) {
    return InStream<Rpc>(calls, args, call.Rest());
  }
  return result;
}

// Rotates in a stream even if the tensors are small. Uses one message if they
// have no bytes.
template <typename Rpc, typename Calls>
absl::StatusOr<typename Rpc::Result> RotateInStream(
    Calls* calls, const typename Rpc::Args& args, const CallOptions& options) {
  const absl::Status status = CheckOutputs<Rpc>(args);
  if (!status.ok()) return status;
  if (HasTensorBytes<Rpc>(args)) return InStream<Rpc>(calls, args, options);
  const OneMessage<Rpc> message(args);
  return InOneMessage<Rpc>(calls, args, message, options);
}

}  // namespace

absl::StatusOr<ApplyRopeResult> Client::ApplyRope(
    const ApplyRopeArgs& args, const CallOptions& options) const {
  return Rotate<ApplyRopeRpc>(calls_.get(), args, options);
}

absl::StatusOr<ApplyRopeResult> Client::ApplyRopeStream(
    const ApplyRopeArgs& args, const CallOptions& options) const {
  return RotateInStream<ApplyRopeRpc>(calls_.get(), args, options);
}

absl::Status Client::ApplyRopeStream(const ApplyRopeArgs& args,
                                     const NextBytes& next,
                                     const TakeBytes& take,
                                     const CallOptions& options) const {
  return StreamBytes<ApplyRopeRpc>(calls_.get(), args, next, false, take,
                                   options);
}

absl::StatusOr<TensorResult> Client::Reposition(
    const RepositionArgs& args, const CallOptions& options) const {
  return Rotate<RepositionRpc>(calls_.get(), args, options);
}

absl::StatusOr<TensorResult> Client::RepositionStream(
    const RepositionArgs& args, const CallOptions& options) const {
  return RotateInStream<RepositionRpc>(calls_.get(), args, options);
}

absl::Status Client::RepositionStream(const RepositionArgs& args,
                                      const NextBytes& next,
                                      const TakeBytes& take,
                                      const CallOptions& options) const {
  return StreamBytes<RepositionRpc>(calls_.get(), args, next, false, take,
                                    options);
}

}  // namespace posenc
