// The calls that move tensors in one message each way.

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "calls.h"
#include "posenc/client.h"
#include "table_rows.h"

namespace posenc {
namespace {

// 128 channels, cosines and sines, in float32.
constexpr std::int64_t kRowBytes = 1024;

// Unset positions stay missing: the server must say so, not see a message.
template <typename Request>
void SetPositions(const v1::Positions& positions, Request* request) {
  if (positions.kind_case() != v1::Positions::KIND_NOT_SET) {
    *request->mutable_positions() = positions;
  }
}

void AddTensor(int number, const absl::optional<TensorView>& view,
               std::vector<TensorField>* fields) {
  if (view) fields->push_back({number, &*view});
}

// What comes back is as large as what was sent.
absl::Status CheckOutput(absl::string_view name,
                         const absl::optional<TensorView>& tensor,
                         const Output& output) {
  if (!tensor || !output || tensor->bytes.size() == output->size()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": ", output->size(), " bytes for a tensor of ",
                   tensor->bytes.size(), "; they must be equal"));
}

// Over a limit of the server's or ours, rather than that the server is busy.
bool TooLarge(const absl::Status& status) {
  return status.code() == absl::StatusCode::kResourceExhausted &&
         ErrorReason(status) != "ERROR_REASON_OVERLOADED";
}

absl::StatusOr<TensorResult> OnlyTensor(absl::StatusOr<TakenTensors> taken) {
  if (!taken.ok()) return taken.status();
  TensorResult result;
  if (taken->views[0]) result.tensor = *std::move(taken->views[0]);
  result.owner = std::move(taken->owner);
  return result;
}

BuildTableResult TableOf(double amplitude, TakenTensors taken) {
  BuildTableResult result;
  result.amplitude = amplitude;
  result.cos = std::move(taken.views[0]);
  result.sin = std::move(taken.views[1]);
  result.table = std::move(taken.views[2]);
  result.owner = std::move(taken.owner);
  return result;
}

using TableMessage = v1::BuildTableStreamResponse;

// `calls` is a Client's.
template <typename Calls, typename Take>
absl::Status StreamTable(Calls* calls,
                         const v1::BuildTableStreamRequest& request,
                         const Take& take, const CallOptions& options) {
  bool asked = false;
  return calls->Stream(
      "BuildTableStream", MessageBytes(request, {}), /*one_to_one=*/false,
      [&](BulkRequest* next) -> absl::StatusOr<bool> {
        next->message = &request;
        return !std::exchange(asked, true);
      },
      [&](const grpc::ByteBuffer& buffer) -> absl::Status {
        TableMessage chunk;
        const absl::StatusOr<ReceivedMessage> message = ReceivedMessage::Parse(
            buffer,
            {TableMessage::kCosFieldNumber, TableMessage::kSinFieldNumber,
             TableMessage::kTableFieldNumber},
            &chunk);
        if (!message.ok()) return message.status();
        return take(chunk, *message);
      },
      options);
}

}  // namespace

absl::StatusOr<BuildTableResult> Client::BuildTable(
    const v1::BuildTableRequest& request, const CallOptions& options) const {
  using Response = v1::BuildTableResponse;
  Response response;
  v1::BuildTableRequest copy = request;
  absl::StatusOr<TakenTensors> taken =
      calls_->Bulk("BuildTable", &Stub::BuildTable, RowsOf(request) * kRowBytes,
                   &copy, {}, &response,
                   {Response::kCosFieldNumber, Response::kSinFieldNumber,
                    Response::kTableFieldNumber},
                   {{}, {}, {}}, options);
  if (taken.ok()) return TableOf(response.amplitude(), *std::move(taken));
  if (!TooLarge(taken.status()) || !calls_->can_stream()) {
    return taken.status();
  }
  TableRows rows(request);
  v1::BuildTableStreamRequest stream;
  *stream.mutable_table() = request;
  const absl::Status status = StreamTable(
      calls_.get(), stream,
      [&](const TableMessage& chunk,
          const ReceivedMessage& message) -> absl::Status {
        absl::Status added =
            rows.Add(chunk.first_row(), chunk.amplitude(), message);
        if (added.ok() && options.on_progress) {
          options.on_progress(rows.bytes_done(), rows.bytes());
        }
        return added;
      },
      options);
  if (!status.ok()) return status;
  return rows.Take();
}

absl::Status Client::BuildTableStream(
    const v1::BuildTableStreamRequest& request,
    const std::function<bool(const TableChunk&)>& on_rows,
    const CallOptions& options) const {
  return StreamTable(
      calls_.get(), request,
      [&](const TableMessage& chunk,
          const ReceivedMessage& message) -> absl::Status {
        absl::StatusOr<TakenTensors> taken = TakeTensors(message, {{}, {}, {}});
        if (!taken.ok()) return taken.status();
        return on_rows({chunk.first_row(),
                        TableOf(chunk.amplitude(), *std::move(taken))})
                   ? absl::OkStatus()
                   : absl::CancelledError("the caller wants no more rows");
      },
      options);
}

absl::StatusOr<ApplyRopeResult> Client::ApplyRope(
    const ApplyRopeArgs& args, const CallOptions& options) const {
  absl::Status status = CheckOutput("q_out", args.q, args.q_out);
  if (status.ok()) status = CheckOutput("k_out", args.k, args.k_out);
  if (!status.ok()) return status;
  using Request = v1::ApplyRopeRequest;
  using Response = v1::ApplyRopeResponse;
  Request request;
  *request.mutable_rope() = args.rope;
  SetPositions(args.positions, &request);
  request.set_layout(args.layout);
  request.set_direction(args.direction);
  if (args.query_scale) *request.mutable_query_scale() = *args.query_scale;
  std::vector<TensorField> tensors;
  AddTensor(Request::kQFieldNumber, args.q, &tensors);
  AddTensor(Request::kKFieldNumber, args.k, &tensors);
  const std::int64_t bytes = MessageBytes(request, tensors);
  if (calls_->MustStream(bytes, tensors)) {
    return ApplyRopeStream(args, options);
  }
  Response response;
  absl::StatusOr<TakenTensors> taken = calls_->Bulk(
      "ApplyRope", &Stub::ApplyRope, 0, &request, std::move(tensors), &response,
      {Response::kQFieldNumber, Response::kKFieldNumber},
      {args.q_out, args.k_out}, options);
  if (!taken.ok()) {
    // The server's limit may be lower than ours.
    if (TooLarge(taken.status()) && calls_->can_stream() &&
        bytes > calls_->ChunkBytes()) {
      return ApplyRopeStream(args, options);
    }
    return taken.status();
  }
  return ApplyRopeResult{std::move(taken->views[0]), std::move(taken->views[1]),
                         std::move(taken->owner)};
}

absl::StatusOr<TensorResult> Client::Reposition(
    const RepositionArgs& args, const CallOptions& options) const {
  const absl::Status status = CheckOutput("out", args.k, args.out);
  if (!status.ok()) return status;
  v1::RepositionRequest request;
  *request.mutable_old_rope() = args.old_rope;
  if (args.new_rope) *request.mutable_new_rope() = *args.new_rope;
  *request.mutable_movement() = args.movement;
  request.set_layout(args.layout);
  std::vector<TensorField> tensors;
  AddTensor(v1::RepositionRequest::kKFieldNumber, args.k, &tensors);
  const std::int64_t bytes = MessageBytes(request, tensors);
  if (calls_->MustStream(bytes, tensors)) {
    return RepositionStream(args, options);
  }
  v1::RepositionResponse response;
  absl::StatusOr<TakenTensors> taken = calls_->Bulk(
      "Reposition", &Stub::Reposition, 0, &request, std::move(tensors),
      &response, {v1::RepositionResponse::kKFieldNumber}, {args.out}, options);
  if (!taken.ok() && TooLarge(taken.status()) && calls_->can_stream() &&
      bytes > calls_->ChunkBytes()) {
    return RepositionStream(args, options);
  }
  return OnlyTensor(std::move(taken));
}

absl::StatusOr<TensorResult> Client::AddEncoding(
    const AddEncodingArgs& args, const CallOptions& options) const {
  v1::AddEncodingRequest request;
  *request.mutable_encoding() = args.encoding;
  SetPositions(args.positions, &request);
  request.set_combination(args.combination);
  if (args.x_scale) request.set_x_scale(*args.x_scale);
  std::vector<TensorField> tensors;
  AddTensor(v1::AddEncodingRequest::kXFieldNumber, args.x, &tensors);
  v1::AddEncodingResponse response;
  return OnlyTensor(calls_->Bulk("AddEncoding", &Stub::AddEncoding, 0, &request,
                                 std::move(tensors), &response,
                                 {v1::AddEncodingResponse::kXFieldNumber},
                                 {args.out}, options));
}

absl::StatusOr<TensorResult> Client::ScoreRelative(
    const ScoreRelativeArgs& args, const CallOptions& options) const {
  v1::ScoreRelativeRequest request;
  *request.mutable_score() = args.score;
  request.set_query_start(args.query_start);
  request.set_key_start(args.key_start);
  request.set_dtype(args.dtype);
  std::vector<TensorField> tensors;
  AddTensor(v1::ScoreRelativeRequest::kQFieldNumber, args.q, &tensors);
  AddTensor(v1::ScoreRelativeRequest::kKFieldNumber, args.k, &tensors);
  v1::ScoreRelativeResponse response;
  return OnlyTensor(calls_->Bulk(
      "ScoreRelative", &Stub::ScoreRelative, 0, &request, std::move(tensors),
      &response, {v1::ScoreRelativeResponse::kScoresFieldNumber}, {args.out},
      options));
}

absl::StatusOr<TensorResult> Client::ConvertPairing(
    const ConvertPairingArgs& args, const CallOptions& options) const {
  const absl::Status status = CheckOutput("out", args.weight, args.out);
  if (!status.ok()) return status;
  v1::ConvertPairingRequest request;
  request.set_old_pairing(args.old_pairing);
  request.set_new_pairing(args.new_pairing);
  request.set_heads(args.heads);
  request.set_rotary_dim(args.rotary_dim);
  request.set_slice(args.slice);
  std::vector<TensorField> tensors;
  AddTensor(v1::ConvertPairingRequest::kWeightFieldNumber, args.weight,
            &tensors);
  v1::ConvertPairingResponse response;
  return OnlyTensor(calls_->Bulk(
      "ConvertPairing", &Stub::ConvertPairing, 0, &request, std::move(tensors),
      &response, {v1::ConvertPairingResponse::kWeightFieldNumber}, {args.out},
      options));
}

}  // namespace posenc
