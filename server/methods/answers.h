// RPCs as functions from a request to its answer, for server/kserve, which
// frames messages in its own way.
//
// An answer borrows the request, and has computed nothing yet. Errors are those
// of the RPC. `response`, empty at first, gets the fields that are not tensors.

#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "posenc/v1/service.pb.h"
#include "server/convert/tensor.h"
#include "server/methods/methods.h"
#include "server/rpc/computation.h"

namespace posenc::server {

absl::StatusOr<TensorAnswer> AnswerApplyRope(
    const v1::ApplyRopeRequest& request, const BorrowedTensors& borrowed,
    const MethodContext& context);
absl::StatusOr<TensorAnswer> AnswerReposition(
    const v1::RepositionRequest& request, const BorrowedTensors& borrowed,
    const MethodContext& context);
absl::StatusOr<TensorAnswer> AnswerAddEncoding(
    const v1::AddEncodingRequest& request, const BorrowedTensors& borrowed,
    const MethodContext& context);
absl::StatusOr<TensorAnswer> AnswerScoreRelative(
    const v1::ScoreRelativeRequest& request, const BorrowedTensors& borrowed,
    const MethodContext& context);
absl::StatusOr<TensorAnswer> AnswerConvertPairing(
    const v1::ConvertPairingRequest& request, const BorrowedTensors& borrowed,
    const MethodContext& context);

absl::StatusOr<TensorAnswer> AnswerBuildTable(
    const v1::BuildTableRequest& request, const MethodContext& context,
    v1::BuildTableResponse* response);
absl::StatusOr<TensorAnswer> AnswerBuildPositions(
    const v1::BuildPositionsRequest& request, const MethodContext& context,
    v1::BuildPositionsResponse* response);

// Returns the matrix as one tile. Refuses a request for several tiles.
absl::StatusOr<TensorAnswer> AnswerWholeBias(
    const v1::BuildBiasRequest& request, const MethodContext& context,
    v1::BuildBiasResponse* response);

// Has no tensors: `response` is the whole answer.
absl::Status AnswerResolveRope(const v1::ResolveRopeRequest& request,
                               const MethodContext& context, StopCheck stop,
                               v1::ResolveRopeResponse* response);

}  // namespace posenc::server
