// Arguments and results of the calls of posenc::Client (C++17).
//
// Other settings of the contract are generated messages and enums of posenc.v1.
// Their .proto files are the specification and explain formulas, defaults and
// errors. A field that keeps its value from this file is not sent. The server
// then uses the contract's default, or reports that the field is required.
//
// In shapes, B is the batch size, S the sequence length, H the number of heads,
// D head_dim, and T the number of all tokens of a packed batch.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "posenc/errors.h"
#include "posenc/v1/service.pb.h"

namespace posenc {

using Dtype = v1::Dtype;
using Layout = v1::Layout;

// ---- Tensors ---------------------------------------------------------------

// A dense tensor in borrowed memory, which must outlive the view. Copying a
// view costs little more than copying its shape.
struct TensorView {
  v1::Dtype dtype = v1::DTYPE_UNSPECIFIED;  // required

  // Extents, outermost first. Empty: a scalar.
  std::vector<std::int64_t> shape;

  // The elements: row-major, little-endian, without padding, at any alignment.
  // Their number must fit the shape; otherwise the call ends as
  // INVALID_ARGUMENT.
  absl::Span<const char> bytes;
};

// Each function returns a view of elements of one type. Nothing is copied.
//
// ViewOf() does not check that the number of elements fits the shape. If the
// number does not fit, the call ends as INVALID_ARGUMENT; the server's reason
// is ERROR_REASON_TENSOR_SIZE_MISMATCH. No byte outside of the span is ever
// read.
TensorView ViewOf(absl::Span<const float> elements,
                  std::vector<std::int64_t> shape);
TensorView ViewOf(absl::Span<const double> elements,
                  std::vector<std::int64_t> shape);
TensorView ViewOf(absl::Span<const std::int32_t> elements,
                  std::vector<std::int64_t> shape);
TensorView ViewOf(absl::Span<const std::int64_t> elements,
                  std::vector<std::int64_t> shape);
TensorView ViewOf(absl::Span<const std::int8_t> elements,
                  std::vector<std::int64_t> shape);

// Each function returns a view of elements of 16 or 8 bits, for which C++17 has
// no types: `dtype` is DTYPE_FLOAT16, DTYPE_BFLOAT16, DTYPE_FLOAT8_E4M3FN or
// DTYPE_FLOAT8_E5M2, and `elements` are their bits.
TensorView ViewOf(v1::Dtype dtype, absl::Span<const std::uint16_t> elements,
                  std::vector<std::int64_t> shape);
TensorView ViewOf(v1::Dtype dtype, absl::Span<const std::uint8_t> elements,
                  std::vector<std::int64_t> shape);

// Returns a view of the `data` of a tensor in a message, such as the ids that
// BuildPositions returns. The view becomes invalid when the message changes.
TensorView ViewOf(const v1::Tensor& tensor);

// Copies a tensor into a message, for position ids and trained tables.
v1::Tensor ToTensor(const TensorView& view);

// The caller's memory for a result. If it does not have exactly the size of the
// result, the call ends as INVALID_ARGUMENT. An output may be the whole memory
// of its own input (q_out of q). An output must not overlap a part of an input,
// or another tensor of the call. After an error the contents of an output are
// unspecified, even if it is the input's memory.
//
// Unset: the call allocates memory for the result. For large results it is
// faster to reuse memory, because page faults of fresh memory cost more than
// the copy.
using Output = absl::optional<absl::Span<char>>;

// Returns an output over elements:
//   args.q_out = OutputTo(absl::MakeSpan(rotated));
template <typename T>
Output OutputTo(absl::Span<T> elements) {
  return absl::MakeSpan(reinterpret_cast<char*>(elements.data()),
                        elements.size() * sizeof(T));
}

struct TensorResult {
  // The tensor lies in the call's output if there is one, else in 64-byte
  // aligned memory that `owner` keeps alive.
  TensorView tensor;
  std::shared_ptr<const void> owner;
};

// ---- Rotation --------------------------------------------------------------

struct ApplyRopeArgs {
  // The encoding. Required; see FromPreset() and FromConfigJson().
  v1::RopeSource rope;

  // Positions of the tokens. Required; see StartAt().
  v1::Positions positions;

  // Order of the dimensions of q and k. Required, without a default: a wrong
  // order would not be noticed.
  v1::Layout layout = v1::LAYOUT_UNSPECIFIED;

  // Unset: forward. INVERSE undoes a rotation. ADJOINT computes the gradient of
  // a rotation.
  v1::Direction direction = v1::DIRECTION_UNSPECIFIED;

  // An additional factor on q, which depends on the position. Unset: no factor,
  // even if the model defines a factor (ResolveRope returns it).
  absl::optional<v1::QueryScale> query_scale;

  // Treatment of results past the largest number of an FP8 dtype. Required if
  // q or k is FP8; other dtypes ignore it.
  v1::Saturation saturation = v1::SATURATION_UNSPECIFIED;

  // The tensors to rotate; at least one is required. A tensor is [B, S, H, D]
  // in the order of `layout`, or [T, H, D], of a floating dtype. q and k have
  // the same B and S, or the same T; they may differ in H, D and dtype.
  absl::optional<TensorView> q;
  absl::optional<TensorView> k;

  // Memory for the results, which have the dtype and shape of q and k.
  Output q_out;
  Output k_out;
};

// The rotated tensors. A view of the caller's output is valid while the
// output's memory exists. Other views are valid while `owner` or a copy of it
// exists.
struct ApplyRopeResult {
  absl::optional<TensorView> q;
  absl::optional<TensorView> k;
  std::shared_ptr<const void> owner;
};

// Returns the next bytes of the tensors that a stream sends, or an empty span
// at the end. The bytes must stay valid until the function is called again.
using NextBytes = std::function<absl::StatusOr<absl::Span<const char>>()>;
// Takes the next bytes of the result, which are valid until the function
// returns.
using TakeBytes = std::function<absl::Status(absl::Span<const char>)>;

struct RepositionArgs {
  // The encoding that k was rotated with. Required.
  v1::RopeSource old_rope;

  // The new encoding of k. Unset: old_rope.
  absl::optional<v1::RopeSource> new_rope;

  // The old and the new positions of the tokens, or their differences.
  // Required.
  v1::Movement movement;

  // Order of the dimensions of k. Required, unless `cache` is set.
  v1::Layout layout = v1::LAYOUT_UNSPECIFIED;

  // The layout of k as an engine's paged cache, instead of `layout`.
  absl::optional<v1::CacheLayout> cache;

  // Treatment of results past the largest number of a dtype of 8 bits. Required
  // if k is FP8, or INT8 without block_format.
  v1::Saturation saturation = v1::SATURATION_UNSPECIFIED;

  // The format of llama.cpp's blocks, if k holds their bytes as INT8. D then
  // counts bytes.
  v1::BlockFormat block_format = v1::BLOCK_FORMAT_UNSPECIFIED;

  // Rotated keys, [B, S, H, D] in the order of `layout`, or [T, H, D], of a
  // floating dtype or INT8. B may also count layers or cache blocks. Required.
  absl::optional<TensorView> k;

  // Memory for the result, which has the dtype and shape of k.
  Output out;
};

// ---- Tables and biases -----------------------------------------------------

// A table, or some rows of a table. The request's `layout` determines which
// tensors there are and how wide their rows are; d is the encoding's
// rotary_dim. If frequencies differ by head, every shape starts with the number
// of heads.
struct BuildTableResult {
  // Rotary encodings only: the factor on cosines and sines (YaRN's attention
  // factor). The table's values already include this factor.
  double amplitude = 1;

  // Cosines and sines of a rotary encoding. Each tensor has the shape
  // [rows, d / 2], or [rows, d] if values are repeated.
  absl::optional<TensorView> cos;
  absl::optional<TensorView> sin;

  // The tensor of a table that has only one tensor. For TABLE_LAYOUT_COMPLEX
  // its shape is [rows, d / 2, 2], and for an absolute encoding [rows, dim].
  absl::optional<TensorView> table;

  // Keeps the tensors alive.
  std::shared_ptr<const void> owner;
};

// Memory for a table's tensors; see BuildTableResult. INVALID_ARGUMENT if an
// output is set for a tensor that the table does not have.
struct TableOutputs {
  Output cos;
  Output sin;
  Output table;
};

// The rows of a table that came in one message. `first_row` is the index of
// their first row, counted from 0. The caller may keep the rows, because `rows`
// owns its memory.
struct TableChunk {
  std::int64_t first_row = 0;
  BuildTableResult rows;
};

struct BiasTile {
  // Positions of the tile's first query and first key.
  std::int64_t query_start = 0;
  std::int64_t key_start = 0;

  // The values of the tile, [heads, queries, keys], aligned to 8 bytes. The
  // view is valid only during the callback.
  TensorView tensor;
};

// ---- Other operators -------------------------------------------------------

struct AddEncodingArgs {
  // The absolute encoding. Required.
  v1::AbsoluteEncoding encoding;

  // Positions of the tokens. Required, except for a SincosGrid, which takes no
  // positions.
  v1::Positions positions;

  // The operation that combines x and the encoding. Unset: x and the encoding
  // are added. Some models need MULTIPLY or CONCATENATE.
  v1::Combination combination = v1::COMBINATION_UNSPECIFIED;

  // Factor on x before the combination, such as sqrt(dim) in the Transformer.
  // Unset: 1.
  absl::optional<double> x_scale;

  // Embeddings: [B, S, dim] or [S, dim]; [T, dim] with packed positions.
  // Required.
  absl::optional<TensorView> x;

  // Memory for the result, which has the shape of x. With CONCATENATE the last
  // extent is the sum of the last extents of x and of the encoding.
  Output out;
};

struct ScoreRelativeArgs {
  // The rule, with its trained tensors. Required.
  v1::RelativeScore score;

  // Positions of the first query and of the first key. In a decode step after
  // 500 tokens, query_start is 500.
  std::int64_t query_start = 0;
  std::int64_t key_start = 0;

  // Dtype of the scores. Unset: float64 if q is float64, else float32.
  v1::Dtype dtype = v1::DTYPE_UNSPECIFIED;

  // The queries, [B, H, Sq, D], and the keys, [B, H, Sk, D]. Required.
  absl::optional<TensorView> q;
  absl::optional<TensorView> k;

  // Memory for the scores, [B, H, Sq, Sk].
  Output out;
};

struct ConvertPairingArgs {
  // The pairing of the weight before and after the conversion. Required.
  v1::Pairing old_pairing = v1::PAIRING_UNSPECIFIED;
  v1::Pairing new_pairing = v1::PAIRING_UNSPECIFIED;

  // Number of heads, H. Each row of the weight is one channel of one head.
  // Required.
  std::int32_t heads = 0;

  // Number of rotated channels of a head (0: all), and their place in the head.
  std::int32_t rotary_dim = 0;
  v1::RotarySlice slice = v1::ROTARY_SLICE_UNSPECIFIED;  // unset: leading

  // A projection's weight or bias, [H * D, ...]. Required.
  absl::optional<TensorView> weight;

  // Memory for the result, which has the dtype and shape of `weight`.
  Output out;
};

// ---- Shorthands ------------------------------------------------------------

// Returns positions: token t of every sequence is at start + t.
v1::Positions StartAt(std::int64_t start);

// Returns the encoding of a preset. GetServerInfo lists the names, such as
// "llama-3.1-8b".
v1::RopeSource FromPreset(absl::string_view name);

// Returns a model's encoding from the text of its config.json or params.json.
v1::RopeSource FromConfigJson(absl::string_view config_json);

// Reads the text of a config.json or params.json from a file. INVALID_ARGUMENT
// if the file cannot be read.
absl::StatusOr<v1::RopeSource> FromConfigFile(const std::string& path);

}  // namespace posenc
