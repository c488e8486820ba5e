// The calls that move tensors in one message each way, never in a stream.

#include <utility>
#include <vector>

#include "client/cpp/connection/calls.h"
#include "posenc/client.h"

namespace posenc {
namespace {

// Returns the tensors that are given, by their field numbers.
std::vector<TensorField> Given(
    std::initializer_list<std::pair<int, const absl::optional<TensorView>*>>
        tensors) {
  std::vector<TensorField> given;
  for (const auto& [number, view] : tensors) {
    if (*view) given.push_back({number, &**view});
  }
  return given;
}

// Describes the scores. Their type and shape are unset if the arguments do not
// determine them.
WantedTensor WantedScores(const ScoreRelativeArgs& args) {
  WantedTensor wanted;
  wanted.field = v1::ScoreRelativeResponse::kScoresFieldNumber;
  wanted.into = args.out;
  if (!args.q || !args.k || args.q->shape.size() != 4 ||
      args.k->shape.size() != 4) {
    return wanted;
  }
  TensorView& scores = wanted.like.emplace();
  scores.shape = {args.q->shape[0], args.q->shape[1], args.q->shape[2],
                  args.k->shape[2]};
  scores.dtype = args.dtype;
  if (scores.dtype == v1::DTYPE_UNSPECIFIED) {
    scores.dtype = args.q->dtype == v1::DTYPE_FLOAT64 ? v1::DTYPE_FLOAT64
                                                      : v1::DTYPE_FLOAT32;
  }
  return wanted;
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
  v1::AddEncodingResponse response;
  const bool wider = args.combination == v1::COMBINATION_CONCATENATE;
  return ResultOf(calls_->Bulk(
      "AddEncoding", request, Given({{request.kXFieldNumber, &args.x}}),
      &response,
      {{response.kXFieldNumber, args.out, wider ? absl::nullopt : args.x}},
      options));
}

absl::StatusOr<TensorResult> Client::ScoreRelative(
    const ScoreRelativeArgs& args, const CallOptions& options) const {
  v1::ScoreRelativeRequest request;
  *request.mutable_score() = args.score;
  request.set_query_start(args.query_start);
  request.set_key_start(args.key_start);
  request.set_dtype(args.dtype);
  v1::ScoreRelativeResponse response;
  return ResultOf(calls_->Bulk("ScoreRelative", request,
                               Given({{request.kQFieldNumber, &args.q},
                                      {request.kKFieldNumber, &args.k}}),
                               &response, {WantedScores(args)}, options));
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
  v1::ConvertPairingResponse response;
  return ResultOf(calls_->Bulk(
      "ConvertPairing", request,
      Given({{request.kWeightFieldNumber, &args.weight}}), &response,
      {{response.kWeightFieldNumber, args.out, args.weight}}, options));
}

}  // namespace posenc
