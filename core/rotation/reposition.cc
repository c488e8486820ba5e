#include "core/rotation/reposition.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/rotation/cache_map.h"
#include "core/rotation/reposition_cos_sin.h"
#include "core/rotation/rotation_map.h"

namespace posenc::core {
namespace {

absl::Status NotRepositionable(const std::string& fact) {
  return MakeError(absl::StatusCode::kInvalidArgument,
                   ErrorReason::kNotRepositionable, "new_rope",
                   absl::StrCat(fact, "; no single rotation joins them"));
}

absl::string_view SliceName(RotarySlice slice) {
  return slice == RotarySlice::kTrailing ? "trailing" : "leading";
}

// Returns kNotRepositionable unless both encodings rotate the same channels and
// have the same number of axes.
absl::Status CheckJoinable(const ResolvedRope& old_rope,
                           const ResolvedRope& new_rope,
                           std::int64_t head_dim) {
  const RopeSpec& from = old_rope.spec;
  const RopeSpec& to = new_rope.spec;
  if (from.nope != to.nope) {
    return NotRepositionable(absl::StrCat("has ", to.nope ? "no" : "a",
                                          " rotation, and old_rope ",
                                          from.nope ? "none" : "one"));
  }
  if (from.rotary_dim != to.rotary_dim) {
    return NotRepositionable(absl::StrCat("has rotary_dim ", to.rotary_dim,
                                          ", and old_rope ", from.rotary_dim));
  }
  if (from.slice != to.slice && from.rotary_dim != head_dim) {
    return NotRepositionable(absl::StrCat(
        "rotates the ", SliceName(to.slice), " ", to.rotary_dim, " of ",
        head_dim, " channels, and old_rope the ", SliceName(from.slice)));
  }
  if (old_rope.axes() != new_rope.axes()) {
    return NotRepositionable(absl::StrCat("has ", new_rope.axes(),
                                          " position axes, and old_rope ",
                                          old_rope.axes()));
  }
  return absl::OkStatus();
}

std::string HalvesName(const std::vector<Segment>& segments) {
  return absl::StrCat(
      "[",
      absl::StrJoin(segments, ", ",
                    [](std::string* out, const Segment& segment) {
                      absl::StrAppend(out, segment.pairs);
                    }),
      "]");
}

// Returns segments for both encodings: the channels from which keys are read,
// and to which they are written. An interleaved encoding may be cut between any
// two pairs, so it takes the segments of the other encoding. If both encodings
// are half-split, their segments must be equal.
absl::StatusOr<std::vector<Segment>> JoinSegments(const RopeSpec& from,
                                                  const RopeSpec& to,
                                                  std::int64_t head_dim) {
  std::vector<Segment> old_segments = SegmentsOf(from, head_dim);
  std::vector<Segment> new_segments = SegmentsOf(to, head_dim);
  if (to.output_pairing == Pairing::kInterleaved) return old_segments;
  if (from.output_pairing == Pairing::kInterleaved) return new_segments;
  if (old_segments == new_segments) return new_segments;
  return NotRepositionable(absl::StrCat(
      "splits slices of ", HalvesName(new_segments),
      " pairs into halves, and old_rope of ", HalvesName(old_segments)));
}

// Renames the fields of errors from ExpandPositions(), which reads shifts as
// ids: "ids.shape" becomes "movement.shifts.shape".
absl::Status NameShifts(const absl::Status& status) {
  const std::optional<ErrorDetails> details = GetErrorDetails(status);
  if (!details.has_value()) return status;
  absl::string_view field = details->field;
  absl::string_view fact = status.message();
  absl::ConsumePrefix(&fact, absl::StrCat(field, ": "));
  absl::ConsumePrefix(&field, "ids");
  return MakeError(status.code(), details->reason,
                   absl::StrCat("movement.shifts", field), fact,
                   details->metadata);
}

// Returns kPositionOutOfRange unless |p + shift| <= 2^31 for every known p.
absl::Status CheckTargets(const PositionChange& change,
                          const TokenExtents& extents, int axes) {
  if (!change.from.has_value() || change.to.has_value())
    return absl::OkStatus();
  const std::int64_t sequences = change.shared() ? 1 : extents.batch;
  for (int a = 0; a < axes; ++a) {
    for (std::int64_t b = 0; b < sequences; ++b) {
      for (std::int64_t t = 0; t < extents.tokens; ++t) {
        const double from = change.from->at(a, b, t);
        const double shift = change.shifts.has_value()
                                 ? change.shifts->at(a, b, t)
                                 : change.shift;
        if (std::fabs(from + shift) <= kMaxPosition) continue;
        return PositionOutOfRange(
            change.shifts.has_value() ? "movement.shifts" : "movement.shift",
            absl::StrFormat("moves token %d of sequence %d from %.17g to "
                            "%.17g; positions are within +-2^31",
                            t, b, from, from + shift),
            (a * sequences + b) * extents.tokens + t);
      }
    }
  }
  return absl::OkStatus();
}

// Keys that one old and one new encoding move: all of k, or one layer of k.
struct Keys {
  const ConstTensorView& k;  // as the caller gave it
  // layout.head_dim is the width of a head in elements of k. If block_format is
  // set, an element of k is one byte of a quantised block.
  absl::StatusOr<HeadLayout> layout;
  // The layer of k that has these encodings; nullopt if all of k has them.
  std::optional<std::int64_t> layer = std::nullopt;

  // Returns `status`, an error of these encodings. If `layer` is set, adds it
  // to the metadata as "layer".
  absl::Status Fault(const absl::Status& status) const {
    if (!layer) return status;
    return WithMetadata(status, "layer", absl::StrCat(*layer));
  }
};

// Reads the movement of keys. Expects that the tensor of keys is not empty.
absl::StatusOr<PositionChange> ReadMovement(const Movement& movement,
                                            const Keys& keys,
                                            const ResolvedRope& old_rope,
                                            const ResolvedRope& new_rope,
                                            const TokenExtents& extents) {
  PositionChange change;
  const auto expand = [&](const Positions& positions, const ResolvedRope& rope,
                          std::optional<TokenPositions>* to) -> absl::Status {
    ASSIGN_OR_RETURN(*to, ExpandPositions(positions, extents, rope.axes(),
                                          rope.needs_ids()));
    return absl::OkStatus();
  };

  Faults faults;
  const auto* target = std::get_if<NewPositions>(&movement.target);
  if (std::holds_alternative<std::monostate>(movement.old_positions)) {
    const std::string why = StartDependence(old_rope, new_rope);
    if (target != nullptr) {
      faults.Note(
          FieldRequired("movement.old_positions",
                        "is missing, and new_positions alone do not tell "
                        "how far the keys move; set it, or shift"));
    } else if (!why.empty()) {
      faults.Note(keys.Fault(FieldRequired(
          "movement.old_positions",
          absl::StrCat(
              "is missing, and old_rope and new_rope differ in ", why,
              ", so the rotation depends on where each key stands; set it"))));
    }
  } else {
    faults.Note(
        Prefixed("movement.old_positions",
                 expand(movement.old_positions, old_rope, &change.from)));
  }

  if (target != nullptr) {
    faults.Note(Prefixed("movement.new_positions",
                         expand(target->positions, new_rope, &change.to)));
  } else if (const auto* shifts = std::get_if<TokenShifts>(&movement.target)) {
    faults.Note(NameShifts(
        expand(PositionIds{shifts->shifts}, new_rope, &change.shifts)));
  } else {
    const std::int64_t shift = std::get<ShiftAll>(movement.target).shift;
    if (shift < -kMaxPosition || shift > kMaxPosition) {
      faults.Note(PositionOutOfRange(
          "movement.shift",
          absl::StrCat("is ", shift, "; must be within +-2^31"), 0));
    }
    change.shift = static_cast<double>(shift);
  }
  RETURN_IF_ERROR(faults.status());
  RETURN_IF_ERROR(CheckTargets(change, extents, new_rope.axes()));
  return change;
}

absl::string_view TargetField(const PositionChange& change) {
  return change.to.has_value()       ? "movement.new_positions"
         : change.shifts.has_value() ? "movement.shifts"
                                     : "movement.shift";
}

// Checks the fields that are required for int8 keys, and valid only for int8
// keys. `width` is the extent of a head.
absl::Status CheckInt8(const RepositionArgs& args, const ConstTensorView& k,
                       std::int64_t width) {
  const absl::string_view format = BlockFormatName(args.block_format);
  if (k.dtype != Dtype::kInt8) {
    if (format.empty()) return absl::OkStatus();
    return FieldInvalid(
        "k.dtype", absl::StrCat(DtypeName(k.dtype), ", and block_format is ",
                                format, "; send the bytes of blocks as int8"));
  }
  if (!format.empty()) {
    const Block block = BlockOf(args.block_format);
    const auto bytes = static_cast<std::int64_t>(block.bytes);
    if (width % bytes == 0) return absl::OkStatus();
    return FieldInvalid(
        "k.shape",
        absl::StrCat(ShapeToString(k.shape), " has heads of ", width,
                     " bytes; ", format, " has blocks of ", bytes,
                     " bytes, for ", block.channels, " channels each"));
  }
  switch (args.saturation) {
    case Saturation::kFinite:
      return absl::OkStatus();
    case Saturation::kUnspecified:
      return FieldRequired(
          "saturation",
          "is unset, and k is int8; set finite: results past -128 or 127 "
          "become these numbers. If k holds blocks, set block_format instead");
    default:
      return FieldInvalid("saturation",
                          "not finite, and k is int8, which has no infinity; "
                          "must be finite");
  }
}

// Returns the number of channels of a head of `width` elements, which
// CheckInt8() has accepted.
std::int64_t HeadChannels(const RepositionArgs& args, Dtype dtype,
                          std::int64_t width) {
  if (dtype != Dtype::kInt8) return width;
  const Block block = BlockOf(args.block_format);
  return width / static_cast<std::int64_t>(block.bytes) * block.channels;
}

// Prepares the rotation of keys from the old encoding to the new encoding.
// layout.head_dim counts channels.
absl::StatusOr<std::unique_ptr<RotationMap>> Join(
    const RepositionArgs& args, const Keys& keys, const HeadLayout& layout,
    const ResolvedRope& old_rope, const ResolvedRope& new_rope) {
  absl::Status status = CheckJoinable(old_rope, new_rope, layout.head_dim);
  if (status.ok()) status = CheckHeadCount(old_rope, keys.k, layout, "k");
  if (status.ok()) status = CheckHeadCount(new_rope, keys.k, layout, "k");
  if (!status.ok()) return keys.Fault(status);
  absl::StatusOr<std::vector<Segment>> segments =
      JoinSegments(old_rope.spec, new_rope.spec, layout.head_dim);
  if (!segments.ok()) return keys.Fault(segments.status());
  const TokenExtents extents = {layout.batch, layout.tokens,
                                args.layout == Layout::kThd, args.reserve};
  auto change = std::make_shared<PositionChange>();
  // The shape of a tensor without elements may have any number of tokens, and
  // expanding their positions could take any amount of memory.
  if (!layout.empty()) {
    ASSIGN_OR_RETURN(*change, ReadMovement(args.movement, keys, old_rope,
                                           new_rope, extents));
  }
  auto source = std::make_unique<RepositionCosSin>(old_rope, new_rope, change);
  if (!layout.empty()) {
    status = source->CheckReach(extents.batch, extents.tokens);
    if (!status.ok()) return keys.Fault(Prefixed(TargetField(*change), status));
  }
  const Pairing from = old_rope.spec.output_pairing;
  const Pairing to = new_rope.spec.output_pairing;
  const HeadRotation rotation = MakeHeadRotation(
      keys.k.dtype, args.saturation, args.block_format, layout.head_dim,
      new_rope.spec, *std::move(segments), from, to);
  return std::make_unique<RotationMap>(rotation, args.layout, layout,
                                       change->shared(), std::move(source));
}

// Prepares the rotation of keys in args.layout; ignores args.cache.
absl::StatusOr<std::unique_ptr<RotationMap>> PrepareKeys(
    const RepositionArgs& args, const Keys& keys) {
  Faults faults;
  if (std::holds_alternative<std::monostate>(args.movement.target)) {
    faults.Note(
        FieldRequired("movement",
                      "does not say where the keys go; set new_positions or "
                      "shift"));
  }
  absl::StatusOr<HeadLayout> layout = keys.layout;
  faults.Note(Prefixed("k", layout.status()));
  faults.Note(CheckSaturation(args.saturation, keys.k.dtype, "k"));
  if (layout.ok() && faults.Note(CheckInt8(args, keys.k, layout->head_dim))) {
    layout->head_dim = HeadChannels(args, keys.k.dtype, layout->head_dim);
  }
  if (!args.old_rope) {
    faults.Note(FieldRequired("old_rope", "no encoding is given"));
  }
  if (!layout.ok() || !args.old_rope) return faults.status();
  const absl::StatusOr<std::shared_ptr<const PreparedRope>> old_rope =
      args.old_rope(layout->head_dim);
  faults.Note(Prefixed("old_rope", old_rope.status()));
  const absl::StatusOr<std::shared_ptr<const PreparedRope>> new_rope =
      args.new_rope ? args.new_rope(layout->head_dim) : old_rope;
  if (args.new_rope) faults.Note(Prefixed("new_rope", new_rope.status()));
  // The next steps need all earlier results.
  if (!faults.none()) return faults.status();
  return Join(args, keys, *layout, (*old_rope)->rope, (*new_rope)->rope);
}

// Returns the extents of a cache's keys, which are the same in every layer.
absl::StatusOr<HeadLayout> ReadCacheHeads(const ConstTensorView& k,
                                          const CachePlaces& places) {
  RETURN_IF_ERROR(CheckHeadDtype(k.dtype, /*takes_int8=*/true));
  if (places.channels.extent == 0) {
    return FieldInvalid("shape", absl::StrCat(ShapeToString(k.shape),
                                              " has head_dim 0; must be > 0"));
  }
  return HeadLayout{places.sequences, places.length, places.heads.extent,
                    places.channels.extent};
}

// Limits the number of different pairs of an old and a new encoding. Each pair
// takes time and memory for the positions of all tokens.
constexpr std::size_t kMaxLayerEncodings = 8;

// Adds `field` and the layer to `status`, an error of the layer's encoding. If
// the error is about the layer's index, the returned error instead names the
// layer's element of cache.model_layers.
absl::Status LayerFault(const Keys& layer, absl::string_view field,
                        const absl::Status& status) {
  const std::optional<ErrorDetails> details = GetErrorDetails(status);
  if (details.has_value() && details->field == "layer_index") {
    absl::string_view fact = status.message();
    absl::ConsumePrefix(&fact, "layer_index: ");
    return MakeError(status.code(), details->reason,
                     absl::StrCat("cache.model_layers[", *layer.layer, "]"),
                     fact, details->metadata);
  }
  return layer.Fault(Prefixed(field, status));
}

// Prepares the rotations of a cache with model_layers.
absl::StatusOr<std::unique_ptr<RowMap>> PrepareLayers(RepositionArgs args,
                                                      Keys layer,
                                                      CachePlaces places) {
  const std::int64_t width = places.channels.extent;
  RETURN_IF_ERROR(CheckInt8(args, layer.k, width));
  const std::int64_t head_dim = HeadChannels(args, layer.k.dtype, width);
  const std::vector<std::int64_t>& layers = args.cache->model_layers;
  using Prepared = std::shared_ptr<const PreparedRope>;
  std::vector<std::pair<Prepared, Prepared>> ropes;
  CacheMap::Keys keys;
  std::vector<std::int32_t> keys_of_layer(layers.size(), -1);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    layer.layer = static_cast<std::int64_t>(i);
    if (!places.Moves(*layer.layer)) continue;
    const absl::StatusOr<Prepared> from = args.old_layers(layers[i], head_dim);
    if (!from.ok()) return LayerFault(layer, "old_rope", from.status());
    const absl::StatusOr<Prepared> to =
        args.new_layers ? args.new_layers(layers[i], head_dim) : from;
    if (!to.ok()) return LayerFault(layer, "new_rope", to.status());
    const std::pair<Prepared, Prepared> pair(*from, *to);
    const auto same = std::find(ropes.begin(), ropes.end(), pair);
    keys_of_layer[i] = static_cast<std::int32_t>(same - ropes.begin());
    if (same != ropes.end()) continue;
    if (ropes.size() == kMaxLayerEncodings) {
      return FieldInvalid(
          "cache.model_layers",
          absl::StrCat("names layers of more than ", kMaxLayerEncodings,
                       " different encodings; move some of the "
                       "layers at a time"));
    }
    ropes.push_back(pair);
    args.old_rope = [rope = *from](std::int64_t) { return rope; };
    args.new_rope = [rope = *to](std::int64_t) { return rope; };
    keys.emplace_back();
    ASSIGN_OR_RETURN(keys.back(), PrepareKeys(args, layer));
  }
  // Layers without rotation need no worker, because CacheMap copies all rows
  // first.
  for (std::int32_t& at : keys_of_layer) {
    if (at >= 0 && ropes[at].first->rope.spec.nope) at = -1;
  }
  return std::make_unique<CacheMap>(std::move(places), std::move(keys),
                                    std::move(keys_of_layer));
}

absl::StatusOr<std::unique_ptr<RowMap>> PrepareCache(RepositionArgs args,
                                                     const ConstTensorView& k) {
  ASSIGN_OR_RETURN(CachePlaces places,
                   FindPlaces(*args.cache, k, args.reserve));
  args.layout = Layout::kBshd;
  const Keys layer = {k, ReadCacheHeads(k, places)};
  if (!args.cache->model_layers.empty()) {
    return PrepareLayers(std::move(args), layer, std::move(places));
  }
  CacheMap::Keys keys(1);
  ASSIGN_OR_RETURN(keys[0], PrepareKeys(args, layer));
  return std::make_unique<CacheMap>(std::move(places), std::move(keys),
                                    std::vector<std::int32_t>());
}

}  // namespace

absl::StatusOr<std::unique_ptr<RowMap>> PrepareReposition(
    const RepositionArgs& args, const ConstTensorView& k) {
  if (args.cache) return PrepareCache(args, k);
  ASSIGN_OR_RETURN(const LayoutOrder order, FindLayout(args.layout));
  return PrepareKeys(args, {k, ReadHeadLayout(k, order, /*takes_int8=*/true)});
}

absl::Status Reposition(const RepositionArgs& args, const ConstTensorView& k,
                        const TensorView& k_out) {
  ASSIGN_OR_RETURN(const std::unique_ptr<RowMap> map,
                   PrepareReposition(args, k));
  MapAll(*map, k.data, k_out.data);
  return absl::OkStatus();
}

}  // namespace posenc::core
