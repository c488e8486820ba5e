// Tensors of any size, through streams.

#include <algorithm>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "calls.h"
#include "cut.h"
#include "posenc/client.h"

namespace posenc {
namespace {

// Beside a chunk's tensors, positions and the settings: tags, lengths, shapes.
constexpr std::int64_t kFramingBytes = 256;

bool ByHead(const v1::RopeSource& rope) {
  return rope.spec().explicit_frequencies().heads() > 0;
}

bool HasSeveralAxes(const v1::RopeSpec& spec) {
  return spec.axes().sections_size() > 1 ||
         spec.explicit_frequencies().axes() > 1;
}

// One tensor of heads to be sent in parts.
struct Whole {
  TensorView view;
  absl::Span<char> out;
  std::vector<Part> parts;
  HeadExtents extents;
};

absl::Status Cut(const char* name, v1::Layout layout, bool whole_heads,
                 std::int64_t chunk_bytes, std::int64_t max_bytes,
                 Whole* whole) {
  absl::StatusOr<std::vector<Part>> parts =
      CutTensor(whole->view, layout, whole_heads, chunk_bytes);
  if (!parts.ok()) {
    return absl::Status(parts.status().code(),
                        absl::StrCat(name, ".", parts.status().message()));
  }
  for (const Part& part : *parts) {
    if (part.bytes <= max_bytes) continue;
    return absl::ResourceExhaustedError(absl::StrCat(
        name, ": ", part.bytes,
        " bytes cannot be cut into smaller messages; the limit is ", max_bytes,
        whole_heads ? ", and frequencies by head need all heads together"
                    : ""));
  }
  whole->extents = *ExtentsOf(whole->view, layout);
  whole->parts = *std::move(parts);
  return absl::OkStatus();
}

TensorView ViewOf(const Whole& whole, const Part& part) {
  return {whole.view.dtype, part.shape,
          whole.view.bytes.subspan(static_cast<std::size_t>(part.offset),
                                   static_cast<std::size_t>(part.bytes))};
}

absl::Span<char> OutputOf(const Whole& whole, const Part& part) {
  return whole.out.subspan(static_cast<std::size_t>(part.offset),
                           static_cast<std::size_t>(part.bytes));
}

// Memory for a result of the tensor's size, unless the caller has given it.
absl::Status SetOutput(const char* name, const Output& output, Whole* whole,
                       std::vector<std::shared_ptr<char>>* owners) {
  const std::size_t bytes = whole->view.bytes.size();
  if (!output) {
    owners->push_back(AlignedMemory(bytes));
    whole->out = absl::MakeSpan(owners->back().get(), bytes);
    return absl::OkStatus();
  }
  whole->out = *output;
  if (output->size() == bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": ", output->size(), " bytes for a tensor of ", bytes,
                   "; they must be equal"));
}

TensorView ResultOf(const Whole& whole) {
  return {whole.view.dtype, whole.view.shape, whole.out};
}

// Tells how far a stream is.
class Counter {
 public:
  Counter(std::int64_t bytes, const CallOptions& options)
      : bytes_(bytes), options_(options) {}

  void Add(std::int64_t bytes) {
    done_ += bytes;
    if (options_.on_progress) options_.on_progress(done_, bytes_);
  }

 private:
  const std::int64_t bytes_;
  const CallOptions& options_;
  std::int64_t done_ = 0;
};

}  // namespace

absl::Status Client::ApplyRopeStream(
    const ApplyRopeStreamSettings& settings,
    const std::function<absl::StatusOr<bool>(ApplyRopeChunk*)>& next,
    const std::function<absl::Status(const ApplyRopeResult&)>& done,
    const CallOptions& options) const {
  using Request = v1::ApplyRopeStreamRequest;
  using Response = v1::ApplyRopeStreamResponse;
  Request request;
  *request.mutable_rope() = settings.rope;
  request.set_layout(settings.layout);
  request.set_direction(settings.direction);
  if (settings.query_scale) {
    *request.mutable_query_scale() = *settings.query_scale;
  }
  bool first = true;
  ApplyRopeChunk chunk;
  std::deque<std::vector<Output>> outputs;
  return calls_->Stream(
      "ApplyRopeStream", settings.max_message_bytes, /*one_to_one=*/true,
      [&](BulkRequest* message) -> absl::StatusOr<bool> {
        chunk = ApplyRopeChunk();
        const absl::StatusOr<bool> more = next(&chunk);
        if (!more.ok() || !*more) return more;
        if (!std::exchange(first, false)) request.Clear();
        if (chunk.positions.kind_case() != v1::Positions::KIND_NOT_SET) {
          *request.mutable_positions() = std::move(chunk.positions);
        }
        message->message = &request;
        if (chunk.q) {
          message->tensors.push_back({Request::kQFieldNumber, &*chunk.q});
        }
        if (chunk.k) {
          message->tensors.push_back({Request::kKFieldNumber, &*chunk.k});
        }
        message->owner = std::move(chunk.owner);
        outputs.push_back({chunk.q_out, chunk.k_out});
        return true;
      },
      [&](const grpc::ByteBuffer& buffer) -> absl::Status {
        Response response;
        const absl::StatusOr<ReceivedMessage> received = ReceivedMessage::Parse(
            buffer, {Response::kQFieldNumber, Response::kKFieldNumber},
            &response);
        if (!received.ok()) return received.status();
        absl::StatusOr<TakenTensors> taken =
            TakeTensors(*received, outputs.front());
        if (!taken.ok()) return taken.status();
        outputs.pop_front();
        return done({std::move(taken->views[0]), std::move(taken->views[1]),
                     std::move(taken->owner)});
      },
      options);
}

absl::Status Client::RepositionStream(
    const RepositionStreamSettings& settings,
    const std::function<absl::StatusOr<bool>(RepositionChunk*)>& next,
    const std::function<absl::Status(const TensorResult&)>& done,
    const CallOptions& options) const {
  using Request = v1::RepositionStreamRequest;
  using Response = v1::RepositionStreamResponse;
  Request request;
  *request.mutable_old_rope() = settings.old_rope;
  if (settings.new_rope) *request.mutable_new_rope() = *settings.new_rope;
  request.set_layout(settings.layout);
  bool first = true;
  RepositionChunk chunk;
  std::deque<Output> outputs;
  return calls_->Stream(
      "RepositionStream", settings.max_message_bytes, /*one_to_one=*/true,
      [&](BulkRequest* message) -> absl::StatusOr<bool> {
        chunk = RepositionChunk();
        const absl::StatusOr<bool> more = next(&chunk);
        if (!more.ok() || !*more) return more;
        if (!std::exchange(first, false)) request.Clear();
        *request.mutable_movement() = std::move(chunk.movement);
        message->message = &request;
        if (chunk.k) {
          message->tensors.push_back({Request::kKFieldNumber, &*chunk.k});
        }
        message->owner = std::move(chunk.owner);
        outputs.push_back(chunk.out);
        return true;
      },
      [&](const grpc::ByteBuffer& buffer) -> absl::Status {
        Response response;
        const absl::StatusOr<ReceivedMessage> received = ReceivedMessage::Parse(
            buffer, {Response::kKFieldNumber}, &response);
        if (!received.ok()) return received.status();
        absl::StatusOr<TakenTensors> taken =
            TakeTensors(*received, {outputs.front()});
        if (!taken.ok()) return taken.status();
        outputs.pop_front();
        TensorResult result;
        if (taken->views[0]) result.tensor = *std::move(taken->views[0]);
        result.owner = std::move(taken->owner);
        return done(result);
      },
      options);
}

absl::StatusOr<bool> Client::Calls::SeveralAxes(const v1::RopeSource& rope,
                                                const CallOptions& options) {
  if (rope.has_spec()) return HasSeveralAxes(rope.spec());
  v1::ResolveRopeRequest question;
  *question.mutable_rope() = rope;
  v1::ResolveRopeResponse answer;
  const absl::Status status =
      Call(&Stub::ResolveRope, question, options, &answer);
  if (!status.ok()) return status;
  return HasSeveralAxes(answer.spec());
}

// Each tensor by itself, q first: they may differ in heads, so that equal parts
// of memory hold different tokens.
absl::StatusOr<ApplyRopeResult> Client::ApplyRopeStream(
    const ApplyRopeArgs& args, const CallOptions& options) const {
  // Of nothing there are no parts.
  if ((!args.q || args.q->bytes.empty()) &&
      (!args.k || args.k->bytes.empty())) {
    return ApplyRope(args, options);
  }
  const std::int64_t chunk_bytes = calls_->ChunkBytes();
  Whole wholes[2];  // q, k
  std::vector<std::shared_ptr<char>> owners;
  bool ask = false;
  std::int64_t bytes = 0;
  for (int i = 0; i < 2; ++i) {
    const absl::optional<TensorView>& tensor = i == 0 ? args.q : args.k;
    if (!tensor) continue;
    Whole* const whole = &wholes[i];
    whole->view = *tensor;
    absl::Status status =
        Cut(i == 0 ? "q" : "k", args.layout, ByHead(args.rope), chunk_bytes,
            calls_->max_message_bytes(), whole);
    if (status.ok()) {
      status = SetOutput(i == 0 ? "q_out" : "k_out",
                         i == 0 ? args.q_out : args.k_out, whole, &owners);
    }
    if (!status.ok()) return status;
    ask = ask || NeedAxes(args.positions, args.layout, whole->extents);
    bytes += static_cast<std::int64_t>(tensor->bytes.size());
  }
  absl::StatusOr<bool> several_axes = false;
  if (ask) several_axes = calls_->SeveralAxes(args.rope, options);
  if (!several_axes.ok()) return several_axes.status();

  ApplyRopeStreamSettings settings;
  settings.rope = args.rope;
  settings.layout = args.layout;
  settings.direction = args.direction;
  settings.query_scale = args.query_scale;
  // Positions are cut twice, here to know the largest message and whether they
  // fit before anything is sent: they are small beside the tensors.
  for (const Whole& whole : wholes) {
    for (const Part& part : whole.parts) {
      const absl::StatusOr<v1::Positions> positions = CutPositions(
          args.positions, args.layout, whole.extents, *several_axes, part);
      if (!positions.ok()) return positions.status();
      settings.max_message_bytes = std::max<std::int64_t>(
          settings.max_message_bytes,
          part.bytes + static_cast<std::int64_t>(positions->ByteSizeLong()));
    }
  }
  settings.max_message_bytes +=
      static_cast<std::int64_t>(args.rope.ByteSizeLong()) + kFramingBytes;

  int tensor = 0;
  std::size_t index = 0;
  std::deque<std::int64_t> sent;
  Counter counter(bytes, options);
  const absl::Status status = ApplyRopeStream(
      settings,
      [&](ApplyRopeChunk* chunk) -> absl::StatusOr<bool> {
        while (tensor < 2 && index == wholes[tensor].parts.size()) {
          ++tensor;
          index = 0;
        }
        if (tensor == 2) return false;
        const Whole& whole = wholes[tensor];
        const Part& part = whole.parts[index++];
        absl::StatusOr<v1::Positions> positions = CutPositions(
            args.positions, args.layout, whole.extents, *several_axes, part);
        if (!positions.ok()) return positions.status();
        chunk->positions = *std::move(positions);
        (tensor == 0 ? chunk->q : chunk->k) = ViewOf(whole, part);
        (tensor == 0 ? chunk->q_out : chunk->k_out) = OutputOf(whole, part);
        sent.push_back(part.bytes);
        return true;
      },
      [&](const ApplyRopeResult& result) -> absl::Status {
        const std::int64_t part = sent.front();
        sent.pop_front();
        const absl::optional<TensorView>& got = result.q ? result.q : result.k;
        if (!got || static_cast<std::int64_t>(got->bytes.size()) != part) {
          return absl::InternalError("a response without its tensor");
        }
        counter.Add(part);
        return absl::OkStatus();
      },
      options);
  if (!status.ok()) return status;
  ApplyRopeResult result;
  if (args.q) result.q = ResultOf(wholes[0]);
  if (args.k) result.k = ResultOf(wholes[1]);
  result.owner =
      std::make_shared<std::vector<std::shared_ptr<char>>>(std::move(owners));
  return result;
}

absl::StatusOr<TensorResult> Client::RepositionStream(
    const RepositionArgs& args, const CallOptions& options) const {
  if (!args.k || args.k->bytes.empty()) return Reposition(args, options);
  Whole whole;
  std::vector<std::shared_ptr<char>> owners;
  whole.view = *args.k;
  absl::Status status =
      Cut("k", args.layout,
          ByHead(args.old_rope) || (args.new_rope && ByHead(*args.new_rope)),
          calls_->ChunkBytes(), calls_->max_message_bytes(), &whole);
  if (status.ok()) status = SetOutput("out", args.out, &whole, &owners);
  if (!status.ok()) return status;
  const v1::Movement& movement = args.movement;
  absl::StatusOr<bool> several_axes = false;
  if (NeedAxes(movement.old_positions(), args.layout, whole.extents) ||
      NeedAxes(movement.new_positions(), args.layout, whole.extents) ||
      NeedAxes(movement.shifts(), args.layout, whole.extents)) {
    several_axes = calls_->SeveralAxes(args.old_rope, options);
  }
  if (!several_axes.ok()) return several_axes.status();

  RepositionStreamSettings settings;
  settings.old_rope = args.old_rope;
  settings.new_rope = args.new_rope;
  settings.layout = args.layout;
  for (const Part& part : whole.parts) {
    const absl::StatusOr<v1::Movement> cut =
        CutMovement(movement, args.layout, whole.extents, *several_axes, part);
    if (!cut.ok()) return cut.status();
    settings.max_message_bytes = std::max<std::int64_t>(
        settings.max_message_bytes,
        part.bytes + static_cast<std::int64_t>(cut->ByteSizeLong()));
  }
  settings.max_message_bytes +=
      static_cast<std::int64_t>(args.old_rope.ByteSizeLong()) + kFramingBytes;
  if (args.new_rope) {
    settings.max_message_bytes +=
        static_cast<std::int64_t>(args.new_rope->ByteSizeLong());
  }

  std::size_t index = 0, answered = 0;
  Counter counter(static_cast<std::int64_t>(whole.view.bytes.size()), options);
  status = RepositionStream(
      settings,
      [&](RepositionChunk* chunk) -> absl::StatusOr<bool> {
        if (index == whole.parts.size()) return false;
        const Part& part = whole.parts[index++];
        absl::StatusOr<v1::Movement> cut = CutMovement(
            movement, args.layout, whole.extents, *several_axes, part);
        if (!cut.ok()) return cut.status();
        chunk->movement = *std::move(cut);
        chunk->k = ViewOf(whole, part);
        chunk->out = OutputOf(whole, part);
        return true;
      },
      [&](const TensorResult& result) -> absl::Status {
        const Part& part = whole.parts[answered++];
        if (static_cast<std::int64_t>(result.tensor.bytes.size()) !=
            part.bytes) {
          return absl::InternalError("a response without its tensor");
        }
        counter.Add(part.bytes);
        return absl::OkStatus();
      },
      options);
  if (!status.ok()) return status;
  return TensorResult{
      ResultOf(whole),
      std::make_shared<std::vector<std::shared_ptr<char>>>(std::move(owners))};
}

}  // namespace posenc
