// The differences of ApplyRope and Reposition, for the templates of
// client_rotations.cc.

#pragma once

#include <cstddef>
#include <utility>

#include "absl/types/optional.h"
#include "bulk_message.h"
#include "calls.h"
#include "cut.h"
#include "posenc/messages.h"

namespace posenc {

// One of an RPC's tensors: its names in errors, its number in all of the RPC's
// messages, and its members of arguments and chunks.
template <typename Args, typename Chunk>
struct RpcTensor {
  const char* name;
  const char* output_name;
  int field;
  absl::optional<TensorView> Args::*view;
  Output Args::*output;
  absl::optional<TensorView> Chunk::*chunk_view;
  Output Chunk::*chunk_output;
};

// Returns true if heads have frequencies of their own, so that every part of a
// tensor must have all heads.
inline bool ByHead(const v1::RopeSource& rope) {
  return rope.spec().explicit_frequencies().heads() > 0;
}

// ---- Descriptions ----------------------------------------------------------
//
// Each has the types and names of its RPC, its tensors in the order of sending,
// and its own ways to fill in messages.

struct ApplyRopeRpc {
  using Args = ApplyRopeArgs;
  using Settings = ApplyRopeStreamSettings;
  using Chunk = ApplyRopeChunk;
  using Result = ApplyRopeResult;
  using Request = v1::ApplyRopeRequest;
  using Response = v1::ApplyRopeResponse;
  using StreamRequest = v1::ApplyRopeStreamRequest;
  using StreamResponse = v1::ApplyRopeStreamResponse;

  static constexpr char kName[] = "ApplyRope";
  static constexpr char kStreamName[] = "ApplyRopeStream";
  static constexpr auto kMethod = &Stub::ApplyRope;
  static constexpr RpcTensor<Args, Chunk> kTensors[] = {
      {"q", "q_output", Request::kQFieldNumber, &Args::q, &Args::q_out,
       &Chunk::q, &Chunk::q_out},
      {"k", "k_output", Request::kKFieldNumber, &Args::k, &Args::k_out,
       &Chunk::k, &Chunk::k_out}};

  // The tokens' positions in arguments and chunks, and how they are cut.
  static constexpr auto kArgsPlaces = &Args::positions;
  static constexpr auto kChunkPlaces = &Chunk::positions;
  static constexpr auto kCutPlaces = &CutPositions;

  // `from` is Args or Settings.
  template <typename From, typename Message>
  static void SetSettings(const From& from, Message* message) {
    *message->mutable_rope() = from.rope;
    message->set_layout(from.layout);
    message->set_direction(from.direction);
    if (from.query_scale) {
      *message->mutable_query_scale() = *from.query_scale;
    }
    message->set_saturation(from.saturation);
  }
  // Leaves missing positions unset: the server must report that, not see an
  // empty message.
  template <typename Message>
  static void SetPlaces(v1::Positions positions, Message* message) {
    if (positions.kind_case() == v1::Positions::KIND_NOT_SET) return;
    *message->mutable_positions() = std::move(positions);
  }

  static Settings SettingsOf(const Args& args) {
    return {args.rope, args.layout, args.direction, args.query_scale,
            args.saturation};
  }
  static std::size_t SettingsBytes(const Args& args) {
    return args.rope.ByteSizeLong();
  }
  static bool HeadsDiffer(const Args& args) { return ByHead(args.rope); }
  static const v1::RopeSource& RopeOf(const Args& args) { return args.rope; }

  static Result ResultOf(ReceivedTensors tensors) {
    return {std::move(tensors.views[0]), std::move(tensors.views[1]),
            std::move(tensors.owner)};
  }
};

struct RepositionRpc {
  using Args = RepositionArgs;
  using Settings = RepositionStreamSettings;
  using Chunk = RepositionChunk;
  using Result = TensorResult;
  using Request = v1::RepositionRequest;
  using Response = v1::RepositionResponse;
  using StreamRequest = v1::RepositionStreamRequest;
  using StreamResponse = v1::RepositionStreamResponse;

  static constexpr char kName[] = "Reposition";
  static constexpr char kStreamName[] = "RepositionStream";
  static constexpr auto kMethod = &Stub::Reposition;
  static constexpr RpcTensor<Args, Chunk> kTensors[] = {
      {"k", "out", Request::kKFieldNumber, &Args::k, &Args::out, &Chunk::k,
       &Chunk::out}};

  static constexpr auto kArgsPlaces = &Args::movement;
  static constexpr auto kChunkPlaces = &Chunk::movement;
  static constexpr auto kCutPlaces = &CutMovement;

  template <typename From, typename Message>
  static void SetSettings(const From& from, Message* message) {
    *message->mutable_old_rope() = from.old_rope;
    if (from.new_rope) *message->mutable_new_rope() = *from.new_rope;
    message->set_layout(from.layout);
    message->set_saturation(from.saturation);
  }
  template <typename Message>
  static void SetPlaces(v1::Movement movement, Message* message) {
    *message->mutable_movement() = std::move(movement);
  }

  static Settings SettingsOf(const Args& args) {
    return {args.old_rope, args.new_rope, args.layout, args.saturation};
  }
  static std::size_t SettingsBytes(const Args& args) {
    return args.old_rope.ByteSizeLong() +
           (args.new_rope ? args.new_rope->ByteSizeLong() : 0);
  }
  static bool HeadsDiffer(const Args& args) {
    return ByHead(args.old_rope) || (args.new_rope && ByHead(*args.new_rope));
  }
  static const v1::RopeSource& RopeOf(const Args& args) {
    return args.old_rope;
  }

  static Result ResultOf(ReceivedTensors tensors) {
    return OnlyTensor(std::move(tensors));
  }
};

}  // namespace posenc
