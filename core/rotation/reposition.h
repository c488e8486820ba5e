// Repositions rotated keys: moves them to other positions, or from one rotary
// encoding to another, in one rotation of each pair of the rotated slice.
//
//   (x, y) -> (A' / A) R(p' w' - p w) (x, y)
//
// R(phi) is the rotation by the angle phi. p, w, A are the old position,
// frequency and attention factor; p', w', A' are the new position, frequency
// and attention factor. A and A' include the keys' xPos factors, and `reverse`
// negates the angle of its encoding. Other channels pass through bit for bit.
//
// The angle is computed and reduced exactly; only its cosine and sine are
// rounded. If the frequencies agree, the angle is (p' - p) w, and a shift needs
// no old positions. If the encodings agree and have no xPos, A' / A is exactly
// 1, so shifts do not drift. An encoding with float32 angles has the same angle
// as in ApplyRope, float32(p w), and the difference of the two angles is exact.
// A shift without positions rotates by float32(shift w).
//
// Let L be the length of a key's pair, multiplied by the attention factor and
// the xPos factor. Compare keys that are rotated at p and repositioned to p'
// with keys that are rotated directly at p'. Their elements differ by at most:
// - float32: 10 * 2^-24 L. With u = 2^-24, the first rotation of the pair adds
//   (2 sqrt(2) + 1) u. The second rotation of an element and its direct
//   rotation add 3 u each.
// - float64: 24 * 2^-53 L, because cosines are within 2 ulp.
// - 16 bits: the bound of float32 plus 3 u L for u = 2^-11 (float16) or 2^-8
//   (bfloat16), because each of the three results is rounded.
// - 8 bits: the bound of 16 bits with u = 2^-4 (E4M3) or 2^-3 (E5M2), unless
//   results overflow or are subnormal.
// - int8: 1, unless results overflow or the move changes the attention factor
//   or the xPos factor. The first rounding changes an element by up to
//   sqrt(1/2), and the two others by up to 1/2 each, which is less than 2 in
//   total. The two compared elements are integers, so they differ by at most 1.
//
// After n shifts, L is multiplied by a factor within (1 +- 3.83 u)^n, where
// u = 2^-24.
//
// Keys are read in old_rope's output pairing and written in the output pairing
// of new_rope; pair i stays pair i, as in convert_pairing.h.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/tensor.h"
#include "core/positions/positions.h"
#include "core/rope/prepared_rope.h"
#include "core/rotation/cache_layout.h"
#include "core/rotation/head_layout.h"
#include "core/rotation/quantised_rows.h"
#include "core/runtime/row_map.h"

namespace posenc::core {

struct NewPositions {
  Positions positions;
};
// A shift of every position, on every axis.
struct ShiftAll {
  std::int64_t shift = 0;
};
// One shift per token, in the shape of Positions.ids.
struct TokenShifts {
  ConstTensorView shifts;
};

struct Movement {
  // Required with NewPositions. Also required if the encodings differ in
  // frequencies, sign, angle precision, or in xPos fields other than `center`.
  Positions old_positions;
  // monostate means that no target is given, which is an error.
  std::variant<std::monostate, NewPositions, ShiftAll, TokenShifts> target;
};

// Returns the encoding of a layer of the model, for heads of head_dim channels.
// Layers with equal encodings should get the same object, because the positions
// are expanded once for each pair of an old and a new object.
using LayerLookup =
    std::function<absl::StatusOr<std::shared_ptr<const PreparedRope>>(
        std::int64_t model_layer, std::int64_t head_dim)>;

struct RepositionArgs {
  RopeLookup old_rope;
  RopeLookup new_rope;  // null: the same encoding
  // old_layers and new_layers replace old_rope and new_rope if the cache has
  // model_layers. Layers without rotation do not change.
  LayerLookup old_layers;
  LayerLookup new_layers;  // null: the same encodings
  Movement movement;
  Layout layout = Layout::kBshd;
  std::optional<CacheLayout> cache;  // instead of layout
  // Required for FP8, and for int8 without blocks. For int8 without blocks,
  // saturation must be kFinite.
  Saturation saturation = Saturation::kUnspecified;
  BlockFormat block_format = BlockFormat::kNone;  // only with int8
  ReserveFunction reserve;  // for positions and SlotRuns; may be empty
};

// Returns the rotation of k's rows, in the order of memory, for keys of this
// dtype and shape. The function does not read k's data. A row is one head of
// one token; in a cache it is a row of CacheMap. The rotation can run in place
// if the output pairings are the same. Errors name fields such as
// "old_rope...", "new_rope...", "movement.old_positions...",
// "movement.new_positions...", "movement.shifts.shape", "layout", "saturation",
// "k.dtype", "k.shape" and "cache...". If an error is about a layer of a cache
// with model_layers, the metadata `layer` has the layer's index in k. Returns
// kNotRepositionable if no single rotation joins the encodings, because only
// one of them is NoPE, or because they differ in rotary_dim, slice, number of
// axes or splitting into halves.
absl::StatusOr<std::unique_ptr<RowMap>> PrepareReposition(
    const RepositionArgs& args, const ConstTensorView& k);

// Prepares and runs the rotation that repositions k. k_out has k's dtype and
// shape. k_out does not overlap k, but may be k's own memory if the output
// pairings are the same.
absl::Status Reposition(const RepositionArgs& args, const ConstTensorView& k,
                        const TensorView& k_out);

}  // namespace posenc::core
