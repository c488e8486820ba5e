// The calls that move tensors in one message each way, never in a stream.

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "client/cpp/connection/calls.h"
#include "posenc/client.h"
#include "posenc/wire/frame.h"

namespace posenc {
namespace {

void AddTensor(int number, const absl::optional<TensorView>& view,
               std::vector<TensorField>* fields) {
  if (view) fields->push_back({number, &*view});
}

SentTensors Measured(const google::protobuf::Message& message,
                     std::vector<TensorField> fields) {
  const std::int64_t bytes = MessageBytes(message, fields);
  return {std::move(fields), bytes};
}

std::int64_t BytesOf(const absl::optional<TensorView>& view) {
  return view ? static_cast<std::int64_t>(view->bytes.size()) : -1;
}

// Returns type and shape of the scores; unset if the arguments do not determine
// them.
absl::optional<TensorView> ScoresOf(const ScoreRelativeArgs& args) {
  if (!args.q || !args.k || args.q->shape.size() != 4 ||
      args.k->shape.size() != 4) {
    return absl::nullopt;
  }
  TensorView scores;
  scores.shape = {args.q->shape[0], args.q->shape[1], args.q->shape[2],
                  args.k->shape[2]};
  scores.dtype = args.dtype;
  if (scores.dtype == v1::DTYPE_UNSPECIFIED) {
    scores.dtype = args.q->dtype == v1::DTYPE_FLOAT64 ? v1::DTYPE_FLOAT64
                                                      : v1::DTYPE_FLOAT32;
  }
  for (const std::int64_t extent : scores.shape) {
    if (extent < 0) return absl::nullopt;
  }
  return scores;
}

// Returns the size of the scores in bytes; negative if it is not known.
std::int64_t ScoreBytes(const absl::optional<TensorView>& scores) {
  if (!scores) return -1;
  const absl::uint128 bytes =
      wire::DataBytes(wire::ElementBytes(scores->dtype), scores->shape);
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  return bytes > static_cast<std::uint64_t>(kMost)
             ? -1
             : static_cast<std::int64_t>(bytes);
}

absl::StatusOr<TensorResult> ResultOf(absl::StatusOr<ReceivedTensors> tensors) {
  if (!tensors.ok()) return tensors.status();
  if (!tensors->views[0]) {
    return absl::InternalError("the answer has no tensor");
  }
  return OnlyTensor(*std::move(tensors));
}

}  // namespace

absl::StatusOr<TensorResult> Client::AddEncoding(
    const AddEncodingArgs& args, const CallOptions& options) const {
  v1::AddEncodingRequest request;
  *request.mutable_encoding() = args.encoding;
  if (args.positions.kind_case() != v1::Positions::KIND_NOT_SET) {
    *request.mutable_positions() = args.positions;
  }
  request.set_combination(args.combination);
  if (args.x_scale) request.set_x_scale(*args.x_scale);
  std::vector<TensorField> tensors;
  AddTensor(v1::AddEncodingRequest::kXFieldNumber, args.x, &tensors);
  v1::AddEncodingResponse response;
  return ResultOf(calls_->Bulk(
      "AddEncoding", request, Measured(request, std::move(tensors)), &response,
      {{v1::AddEncodingResponse::kXFieldNumber},
       {args.out},
       0,
       {args.combination == v1::COMBINATION_CONCATENATE ? -1 : BytesOf(args.x)},
       {args.combination == v1::COMBINATION_CONCATENATE ? absl::nullopt
                                                        : args.x}},
      options));
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
  const absl::optional<TensorView> scores = ScoresOf(args);
  return ResultOf(calls_->Bulk("ScoreRelative", request,
                               Measured(request, std::move(tensors)), &response,
                               {{v1::ScoreRelativeResponse::kScoresFieldNumber},
                                {args.out},
                                0,
                                {ScoreBytes(scores)},
                                {scores}},
                               options));
}

absl::StatusOr<TensorResult> Client::ConvertPairing(
    const ConvertPairingArgs& args, const CallOptions& options) const {
  const absl::Status status =
      CheckOutput("weight_output", args.weight, args.out);
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
  return ResultOf(
      calls_->Bulk("ConvertPairing", request,
                   Measured(request, std::move(tensors)), &response,
                   {{v1::ConvertPairingResponse::kWeightFieldNumber},
                    {args.out},
                    0,
                    {BytesOf(args.weight)},
                    {args.weight}},
                   options));
}

}  // namespace posenc
