// The differences between ApplyRope and Reposition, for the templates of
// client_rotations.cc.

#pragma once

#include <utility>

#include "absl/types/optional.h"
#include "client/cpp/connection/calls.h"
#include "client/cpp/tensors/bulk_message.h"
#include "posenc/messages.h"

namespace posenc {

// A tensor of an RPC: its names in errors, its field number in the messages,
// and its members in the arguments.
template <typename Args>
struct RpcTensor {
  const char* name;
  const char* output_name;
  int field;
  absl::optional<TensorView> Args::*view;
  Output Args::*output;
};

// ---- Descriptions ----------------------------------------------------------
//
// Each description has the types and names of its RPC, the tensors in the order
// of a stream's bytes, and functions that fill in messages.

struct ApplyRopeRpc {
  using Args = ApplyRopeArgs;
  using Result = ApplyRopeResult;
  using Request = v1::ApplyRopeRequest;
  using Response = v1::ApplyRopeResponse;
  using StreamRequest = v1::ApplyRopeStreamRequest;

  static constexpr char kName[] = "ApplyRope";
  static constexpr char kStreamName[] = "ApplyRopeStream";
  static constexpr RpcTensor<Args> kTensors[] = {
      {"q", "q_output", Request::kQFieldNumber, &Args::q, &Args::q_out},
      {"k", "k_output", Request::kKFieldNumber, &Args::k, &Args::k_out}};

  // Returns the request without its tensors.
  static Request RequestOf(const Args& args) {
    Request request;
    *request.mutable_rope() = args.rope;
    // Missing positions stay unset, so that the server reports them: an empty
    // message would be another fault.
    if (args.positions.kind_case() != v1::Positions::KIND_NOT_SET) {
      *request.mutable_positions() = args.positions;
    }
    request.set_layout(args.layout);
    request.set_direction(args.direction);
    if (args.query_scale) *request.mutable_query_scale() = *args.query_scale;
    request.set_saturation(args.saturation);
    return request;
  }

  // Returns the position ids whose bytes a stream can carry, in the stream's
  // order.
  static std::vector<v1::Tensor*> IdsOf(Request* request) {
    if (!request->positions().has_ids()) return {};
    return {request->mutable_positions()->mutable_ids()};
  }

  static Result ResultOf(ReceivedTensors tensors) {
    return {std::move(tensors.views[0]), std::move(tensors.views[1]),
            std::move(tensors.owner)};
  }
};

struct RepositionRpc {
  using Args = RepositionArgs;
  using Result = TensorResult;
  using Request = v1::RepositionRequest;
  using Response = v1::RepositionResponse;
  using StreamRequest = v1::RepositionStreamRequest;

  static constexpr char kName[] = "Reposition";
  static constexpr char kStreamName[] = "RepositionStream";
  static constexpr RpcTensor<Args> kTensors[] = {
      {"k", "out", Request::kKFieldNumber, &Args::k, &Args::out}};

  static Request RequestOf(const Args& args) {
    Request request;
    *request.mutable_old_rope() = args.old_rope;
    if (args.new_rope) *request.mutable_new_rope() = *args.new_rope;
    *request.mutable_movement() = args.movement;
    request.set_layout(args.layout);
    if (args.cache) *request.mutable_cache() = *args.cache;
    request.set_saturation(args.saturation);
    request.set_block_format(args.block_format);
    return request;
  }

  static std::vector<v1::Tensor*> IdsOf(Request* request) {
    std::vector<v1::Tensor*> ids;
    v1::Movement* const movement = request->mutable_movement();
    if (movement->old_positions().has_ids()) {
      ids.push_back(movement->mutable_old_positions()->mutable_ids());
    }
    if (movement->new_positions().has_ids()) {
      ids.push_back(movement->mutable_new_positions()->mutable_ids());
    }
    if (movement->has_shifts()) ids.push_back(movement->mutable_shifts());
    return ids;
  }

  static Result ResultOf(ReceivedTensors tensors) {
    return OnlyTensor(std::move(tensors));
  }
};

}  // namespace posenc
