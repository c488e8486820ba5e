// ApplyRope and Reposition: rotate tensors of heads in one message or, if the
// tensors are too large, in chunks through a stream.
//
// The two RPCs differ only in their messages. So each has a description
// (rotation_rpcs.h), and the ways to make the call are templates:
//
//   SendChunks()      a stream of chunks that the caller gives
//   InChunks()        cuts the tensors, positions with them, and streams them
//   InOneMessage()    one unary call
//   Rotate()          in one message if it may be so large, else in chunks
//   RotateInStream()  in chunks unless there is nothing to cut
//
// Each function calls only functions above it, so a call makes at most two
// attempts.

#include <algorithm>
#include <deque>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "calls.h"
#include "cut.h"
#include "posenc/client.h"
#include "rotation_rpcs.h"

namespace posenc {
namespace {

// Bytes of a message beside a chunk's tensors, positions and the settings:
// tags, lengths, shapes.
constexpr std::int64_t kFramingBytes = 256;

template <typename Rpc>
std::vector<int> Fields() {
  constexpr int kNumber = Rpc::Request::kKFieldNumber;
  static_assert(kNumber == int{Rpc::Response::kKFieldNumber} &&
                    kNumber == int{Rpc::StreamRequest::kKFieldNumber} &&
                    kNumber == int{Rpc::StreamResponse::kKFieldNumber},
                "a tensor has one number in all messages");
  std::vector<int> fields;
  for (const auto& tensor : Rpc::kTensors) fields.push_back(tensor.field);
  return fields;
}

// Returns true if there is a tensor to cut. Positions and settings alone cannot
// be cut: if they are too large for a message, a stream would not help.
template <typename Rpc>
bool HasTensorBytes(const typename Rpc::Args& args) {
  return std::any_of(std::begin(Rpc::kTensors), std::end(Rpc::kTensors),
                     [&](const auto& tensor) {
                       const auto& view = args.*tensor.view;
                       return view && !view->bytes.empty();
                     });
}

// Runs a stream. `calls` is a Client::Calls, here and below. The settings go
// with the first chunk; `take` gets the tensors of every response.
template <typename Rpc, typename Calls, typename Take>
absl::Status SendChunks(
    Calls* calls, const typename Rpc::Settings& settings,
    const std::function<absl::StatusOr<bool>(typename Rpc::Chunk*)>& next,
    const Take& take, const CallOptions& options) {
  typename Rpc::StreamRequest request;
  Rpc::SetSettings(settings, &request);
  bool first = true;
  typename Rpc::Chunk chunk;  // its views are borrowed until it is written
  // For each chunk without an answer: the memory of its results, and its
  // tensors, whose shapes and dtypes the results must have.
  std::deque<std::vector<Output>> outputs;
  std::deque<std::vector<absl::optional<TensorView>>> sent;
  return calls->Stream(
      Rpc::kStreamName, settings.max_message_bytes,
      [&](StreamMessage* message) -> absl::StatusOr<bool> {
        chunk = typename Rpc::Chunk();
        const absl::StatusOr<bool> more = next(&chunk);
        if (!more.ok() || !*more) return more;
        if (!std::exchange(first, false)) request.Clear();
        Rpc::SetPlaces(std::move(chunk.*Rpc::kChunkPlaces), &request);
        message->message = &request;
        std::vector<Output>& into = outputs.emplace_back();
        std::vector<absl::optional<TensorView>>& like = sent.emplace_back();
        for (const auto& tensor : Rpc::kTensors) {
          const auto& view = chunk.*tensor.chunk_view;
          const absl::Status status =
              CheckOutput(tensor.output_name, view, chunk.*tensor.chunk_output);
          if (!status.ok()) return status;
          if (view) message->tensors.push_back({tensor.field, &*view});
          into.push_back(chunk.*tensor.chunk_output);
          like.push_back(view);
        }
        message->owner = std::move(chunk.owner);
        return true;
      },
      [&](const grpc::ByteBuffer& buffer) -> absl::Status {
        typename Rpc::StreamResponse response;
        const absl::StatusOr<ReceivedMessage> received =
            ReceivedMessage::Parse(buffer, Fields<Rpc>(), &response);
        if (!received.ok()) return received.status();
        absl::StatusOr<ReceivedTensors> tensors =
            TakeTensors(*received, outputs.front(), sent.front());
        if (!tensors.ok()) return tensors.status();
        outputs.pop_front();
        sent.pop_front();
        return take(*std::move(tensors));
      },
      options);
}

// One tensor of heads that goes through a stream, chunk by chunk.
struct TensorInParts {
  TensorView view;
  absl::Span<char> output;
  HeadExtents extents;
  std::vector<Part> parts;
};

// Cuts tensor number `index`. Errors name it; RESOURCE_EXHAUSTED if a part is
// larger than a message may be.
template <typename Rpc>
absl::Status Cut(const typename Rpc::Args& args, std::size_t index,
                 std::int64_t chunk_bytes, std::int64_t max_bytes,
                 TensorInParts* cut) {
  const auto& tensor = Rpc::kTensors[index];
  const bool whole_heads = Rpc::HeadsDiffer(args);
  cut->view = *(args.*tensor.view);
  const absl::StatusOr<HeadExtents> extents = ExtentsOf(cut->view, args.layout);
  absl::StatusOr<std::vector<Part>> parts =
      CutTensor(cut->view, args.layout, whole_heads, chunk_bytes);
  if (!parts.ok()) {
    return absl::Status(
        parts.status().code(),
        absl::StrCat(tensor.name, ".", parts.status().message()));
  }
  for (const Part& part : *parts) {
    if (part.bytes <= max_bytes) continue;
    return absl::ResourceExhaustedError(absl::StrCat(
        tensor.name, ": ", part.bytes,
        " bytes cannot be cut into smaller messages; the limit is ", max_bytes,
        whole_heads ? ", and frequencies by head need all heads together"
                    : ""));
  }
  cut->extents = *extents;
  cut->parts = *std::move(parts);
  return absl::OkStatus();
}

// Cuts and sends one tensor after the other: q and k may differ in heads, so
// that chunks of one size hold different tokens. The outputs must fit the
// tensors.
template <typename Rpc, typename Calls>
absl::StatusOr<typename Rpc::Result> InChunks(Calls* calls,
                                              const typename Rpc::Args& args,
                                              const CallOptions& options) {
  constexpr std::size_t kCount = std::size(Rpc::kTensors);
  const auto& places = args.*Rpc::kArgsPlaces;
  const WholeCall call(options);
  const absl::StatusOr<std::int64_t> chunk_bytes =
      calls->ChunkBytes(call.Rest());
  if (!chunk_bytes.ok()) return chunk_bytes.status();

  TensorInParts cuts[kCount];  // without parts if not given
  auto owners = std::make_shared<std::vector<std::shared_ptr<char>>>();
  bool need_axes = false;
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < kCount; ++i) {
    const auto& tensor = Rpc::kTensors[i];
    const auto& view = args.*tensor.view;
    const Output& output = args.*tensor.output;
    if (!view) continue;
    TensorInParts* const cut = &cuts[i];
    const absl::Status status =
        Cut<Rpc>(args, i, *chunk_bytes, calls->max_message_bytes(), cut);
    if (!status.ok()) return status;
    if (output) {
      cut->output = *output;
    } else {
      owners->push_back(AlignedMemory(view->bytes.size()));
      cut->output = absl::MakeSpan(owners->back().get(), view->bytes.size());
    }
    need_axes = need_axes || NeedAxes(places, args.layout, cut->extents);
    bytes += static_cast<std::int64_t>(view->bytes.size());
  }
  absl::StatusOr<bool> several_axes = false;
  if (need_axes) {
    several_axes = calls->SeveralAxes(Rpc::RopeOf(args), call.Rest());
  }
  if (!several_axes.ok()) return several_axes.status();
  const auto places_of = [&](const TensorInParts& cut, const Part& part) {
    return Rpc::kCutPlaces(places, args.layout, cut.extents, *several_axes,
                           part);
  };

  // Positions are small and are cut twice. This first time computes the size of
  // the largest message, which is announced, and checks that positions fit the
  // tensors before anything is sent.
  typename Rpc::Settings settings = Rpc::SettingsOf(args);
  for (const TensorInParts& cut : cuts) {
    for (const Part& part : cut.parts) {
      const auto part_places = places_of(cut, part);
      if (!part_places.ok()) return part_places.status();
      settings.max_message_bytes = std::max<std::int64_t>(
          settings.max_message_bytes,
          part.bytes + static_cast<std::int64_t>(part_places->ByteSizeLong()));
    }
  }
  settings.max_message_bytes +=
      static_cast<std::int64_t>(Rpc::SettingsBytes(args)) + kFramingBytes;

  struct Sent {
    std::size_t tensor;
    std::int64_t bytes;
  };
  std::deque<Sent> sent;  // not answered yet
  std::size_t index = 0, next_part = 0;
  std::int64_t bytes_done = 0;
  const absl::Status status = SendChunks<Rpc>(
      calls, settings,
      [&](typename Rpc::Chunk* chunk) -> absl::StatusOr<bool> {
        while (index < kCount && next_part == cuts[index].parts.size()) {
          ++index;
          next_part = 0;
        }
        if (index == kCount) return false;
        const auto& tensor = Rpc::kTensors[index];
        const TensorInParts& cut = cuts[index];
        const Part& part = cut.parts[next_part++];
        auto part_places = places_of(cut, part);
        if (!part_places.ok()) return part_places.status();
        const auto offset = static_cast<std::size_t>(part.offset);
        const auto size = static_cast<std::size_t>(part.bytes);
        chunk->*Rpc::kChunkPlaces = *std::move(part_places);
        chunk->*tensor.chunk_view = TensorView{
            cut.view.dtype, part.shape, cut.view.bytes.subspan(offset, size)};
        chunk->*tensor.chunk_output = cut.output.subspan(offset, size);
        sent.push_back({index, part.bytes});
        return true;
      },
      [&](ReceivedTensors tensors) -> absl::Status {
        const Sent part = sent.front();
        sent.pop_front();
        const auto& got = tensors.views[part.tensor];
        if (!got ||
            static_cast<std::int64_t>(got->bytes.size()) != part.bytes) {
          return absl::InternalError("a response without its tensor");
        }
        bytes_done += part.bytes;
        if (options.on_progress) options.on_progress(bytes_done, bytes);
        return absl::OkStatus();
      },
      call.Rest());
  if (!status.ok()) return status;
  ReceivedTensors whole;
  for (std::size_t i = 0; i < kCount; ++i) {
    whole.views.emplace_back();
    if (!(args.*Rpc::kTensors[i].view)) continue;
    whole.views.back() =
        TensorView{cuts[i].view.dtype, cuts[i].view.shape, cuts[i].output};
  }
  whole.owner = std::move(owners);
  return Rpc::ResultOf(std::move(whole));
}

// A unary call with the size of its message.
template <typename Rpc>
struct OneMessage {
  explicit OneMessage(const typename Rpc::Args& args) {
    Rpc::SetSettings(args, &request);
    Rpc::SetPlaces(args.*Rpc::kArgsPlaces, &request);
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
    Calls* calls, const typename Rpc::Args& args, OneMessage<Rpc>* message,
    const CallOptions& options) {
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
  absl::StatusOr<ReceivedTensors> tensors =
      calls->Bulk(Rpc::kName, Rpc::kMethod, &message->request, message->sent,
                  &response, wanted, options);
  if (!tensors.ok()) return tensors.status();
  return Rpc::ResultOf(*std::move(tensors));
}

template <typename Rpc, typename Calls>
absl::StatusOr<typename Rpc::Result> Rotate(Calls* calls,
                                            const typename Rpc::Args& args,
                                            const CallOptions& options) {
  const absl::Status status = CheckOutputs<Rpc>(args);
  if (!status.ok()) return status;
  OneMessage<Rpc> message(args);
  const std::int64_t bytes = message.sent.message_bytes;
  const bool can_cut = calls->can_stream() && HasTensorBytes<Rpc>(args);
  // Tensors in shared memory are not sent.
  const std::int64_t sent =
      bytes - calls->regions().SharedBytes(message.sent.fields);
  if (can_cut && sent > calls->stream_above_bytes()) {
    return InChunks<Rpc>(calls, args, options);
  }
  const WholeCall call(options);
  absl::StatusOr<typename Rpc::Result> result =
      InOneMessage<Rpc>(calls, args, &message, call.Rest());
  // The server's limit may be lower than the client's. A message that is no
  // larger than a chunk would only be refused again.
  if (!result.ok() && can_cut && TooLarge(result.status()) &&
      bytes > calls->ChunkBytes(call.Rest()).value_or(bytes)) {
    return InChunks<Rpc>(calls, args, call.Rest());
  }
  return result;
}

// Rotates in a stream, whatever the size, unless there is nothing to cut.
template <typename Rpc, typename Calls>
absl::StatusOr<typename Rpc::Result> RotateInStream(
    Calls* calls, const typename Rpc::Args& args, const CallOptions& options) {
  const absl::Status status = CheckOutputs<Rpc>(args);
  if (!status.ok()) return status;
  if (HasTensorBytes<Rpc>(args)) return InChunks<Rpc>(calls, args, options);
  OneMessage<Rpc> message(args);
  return InOneMessage<Rpc>(calls, args, &message, options);
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

absl::Status Client::ApplyRopeStream(
    const ApplyRopeStreamSettings& settings,
    const std::function<absl::StatusOr<bool>(ApplyRopeChunk*)>& next,
    const std::function<absl::Status(const ApplyRopeResult&)>& done,
    const CallOptions& options) const {
  return SendChunks<ApplyRopeRpc>(
      calls_.get(), settings, next,
      [&](ReceivedTensors tensors) {
        return done(ApplyRopeRpc::ResultOf(std::move(tensors)));
      },
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

absl::Status Client::RepositionStream(
    const RepositionStreamSettings& settings,
    const std::function<absl::StatusOr<bool>(RepositionChunk*)>& next,
    const std::function<absl::Status(const TensorResult&)>& done,
    const CallOptions& options) const {
  return SendChunks<RepositionRpc>(
      calls_.get(), settings, next,
      [&](ReceivedTensors tensors) {
        return done(RepositionRpc::ResultOf(std::move(tensors)));
      },
      options);
}

}  // namespace posenc
