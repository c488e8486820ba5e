// The calls that move tensors in one message each way, never in a stream.

#include <utility>

#include "calls.h"
#include "posenc/client.h"

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

absl::StatusOr<TensorResult> ResultOf(absl::StatusOr<ReceivedTensors> tensors) {
  if (!tensors.ok()) return tensors.status();
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
      "AddEncoding", &Stub::AddEncoding, &request,
      Measured(request, std::move(tensors)), &response,
      {{v1::AddEncodingResponse::kXFieldNumber}, {args.out}}, options));
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
  return ResultOf(calls_->Bulk(
      "ScoreRelative", &Stub::ScoreRelative, &request,
      Measured(request, std::move(tensors)), &response,
      {{v1::ScoreRelativeResponse::kScoresFieldNumber}, {args.out}}, options));
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
  return ResultOf(calls_->Bulk(
      "ConvertPairing", &Stub::ConvertPairing, &request,
      Measured(request, std::move(tensors)), &response,
      {{v1::ConvertPairingResponse::kWeightFieldNumber}, {args.out}}, options));
}

}  // namespace posenc
