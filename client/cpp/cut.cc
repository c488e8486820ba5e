#include "cut.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "posenc/wire/frame.h"

namespace posenc {
namespace {

std::string Text(absl::Span<const std::int64_t> shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

// Signed, as the sizes here are.
std::int64_t ElementBytes(v1::Dtype dtype) {
  return static_cast<std::int64_t>(wire::ElementBytes(dtype));
}

// Upper bound on position axes; every encoding has fewer. With it the product
// of axes, batch and tokens cannot overflow.
constexpr std::int64_t kMaxAxes = 1 << 16;

// Returns the position `tokens` after `position`. Does not overflow: the server
// refuses such positions anyway, and names them.
std::int64_t Later(std::int64_t position, std::int64_t tokens) {
  return position > std::numeric_limits<std::int64_t>::max() - tokens
             ? position
             : position + tokens;
}

// The dimensions of a layout, outermost first; none for an unknown layout.
enum class Axis { kBatch, kToken, kHead, kChannel };

std::vector<Axis> AxesOf(v1::Layout layout) {
  switch (layout) {
    case v1::LAYOUT_BSHD:
      return {Axis::kBatch, Axis::kToken, Axis::kHead, Axis::kChannel};
    case v1::LAYOUT_BHSD:
      return {Axis::kBatch, Axis::kHead, Axis::kToken, Axis::kChannel};
    case v1::LAYOUT_SBHD:
      return {Axis::kToken, Axis::kBatch, Axis::kHead, Axis::kChannel};
    case v1::LAYOUT_THD:
      return {Axis::kToken, Axis::kHead, Axis::kChannel};
    default:
      return {};
  }
}

// Returns how many of a layout's axes, counted from the outermost, may be cut.
// Channels are never cut, and heads only in BHSD, in which the tokens of a head
// lie side by side.
std::size_t Cuttable(v1::Layout layout, bool whole_heads) {
  switch (layout) {
    case v1::LAYOUT_BHSD:
      return whole_heads ? 1 : 3;
    case v1::LAYOUT_THD:
      return 1;
    default:
      return 2;
  }
}

void SetRange(Axis axis, std::int64_t begin, std::int64_t end, Part* part) {
  switch (axis) {
    case Axis::kBatch:
      part->batch_begin = begin;
      part->batch_end = end;
      break;
    case Axis::kToken:
      part->token_begin = begin;
      part->token_end = end;
      break;
    case Axis::kHead:
      part->head_begin = begin;
      part->head_end = end;
      break;
    case Axis::kChannel:
      break;
  }
}

absl::Status Misfit(absl::string_view what, absl::string_view fact) {
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": ", fact, "; the tensor cannot be cut into parts"));
}

// Copies a range of rows and columns of a matrix with `columns` columns. The
// elements are in the `values` or the `data` of `from`.
void CopyBlock(const v1::Tensor& from, std::int64_t columns,
               std::int64_t row_begin, std::int64_t row_end,
               std::int64_t column_begin, std::int64_t column_end,
               v1::Tensor* to) {
  const std::int64_t size = ElementBytes(from.dtype());
  const std::int64_t count = column_end - column_begin;
  for (std::int64_t row = row_begin; row < row_end; ++row) {
    const std::int64_t first = row * columns + column_begin;
    if (from.values_size() > 0) {
      const double* const values = from.values().data() + first;
      to->mutable_values()->Add(values, values + count);
    } else {
      to->mutable_data()->append(from.data(), first * size, count * size);
    }
  }
}

// A packed batch may be cut between any two tokens. A part gets the sequences
// that it covers, wholly or in part, each with a start of its own:
//
//   cu_seqlens  0     4       9        the part: tokens [2, 6)
//               |-----|-------|  -->   cu_seqlens 0 2 4
//                  [   part ]          starts     2 0 (if all started at 0)
absl::StatusOr<v1::Positions> CutPacked(const v1::PackedSequences& packed,
                                        const HeadExtents& extents,
                                        const Part& part) {
  const auto& ends = packed.cu_seqlens();
  const int sequences = ends.size() - 1;
  if (sequences < 0 || ends[0] != 0 || ends[sequences] != extents.tokens ||
      !std::is_sorted(ends.begin(), ends.end())) {
    return Misfit("positions.packed.cu_seqlens",
                  absl::StrCat("are no ascending bounds from 0 to ",
                               extents.tokens, " tokens"));
  }
  if (packed.starts_size() != 0 && packed.starts_size() != sequences) {
    return Misfit(
        "positions.packed.starts",
        absl::StrCat(packed.starts_size(), " of ", sequences, " sequences"));
  }
  v1::Positions result;
  v1::PackedSequences* const cut = result.mutable_packed();
  cut->add_cu_seqlens(0);
  for (int i = 0; i < sequences; ++i) {
    const std::int64_t begin = std::max(ends[i], part.token_begin);
    const std::int64_t end = std::min(ends[i + 1], part.token_end);
    if (begin >= end) continue;
    cut->add_cu_seqlens(end - part.token_begin);
    cut->add_starts(Later(packed.starts_size() > 0 ? packed.starts(i) : 0,
                          begin - ends[i]));
  }
  return result;
}

}  // namespace

absl::StatusOr<HeadExtents> ExtentsOf(const TensorView& tensor,
                                      v1::Layout layout) {
  const std::vector<Axis> axes = AxesOf(layout);
  if (axes.empty()) {
    return Misfit(
        "shape",
        absl::StrCat("layout ",
                     layout == v1::LAYOUT_UNSPECIFIED
                         ? "is not given"
                         : absl::StrCat(static_cast<int>(layout),
                                        " is not known to this client"),
                     ", so the axes of ", Text(tensor.shape), " are unknown"));
  }
  if (tensor.shape.size() != axes.size()) {
    return Misfit("shape",
                  absl::StrCat(Text(tensor.shape), " is none of layout ",
                               v1::Layout_Name(layout)));
  }
  HeadExtents extents;
  // Compares by division: a wrong shape's product may overflow. `left` must be
  // 1 at the end.
  std::int64_t left = static_cast<std::int64_t>(tensor.bytes.size());
  const std::int64_t size = ElementBytes(tensor.dtype);
  bool fits = size > 0 && left % size == 0;
  if (fits) left /= size;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const std::int64_t extent = tensor.shape[i];
    fits = fits && extent > 0 && left % extent == 0;
    if (!fits) break;
    left /= extent;
    switch (axes[i]) {
      case Axis::kBatch:
        extents.batch = extent;
        break;
      case Axis::kToken:
        extents.tokens = extent;
        break;
      case Axis::kHead:
        extents.heads = extent;
        break;
      case Axis::kChannel:
        extents.channels = extent;
        break;
    }
  }
  if (!fits || left != 1) {
    return Misfit(
        "shape",
        absl::StrCat(Text(tensor.shape), " of ", v1::Dtype_Name(tensor.dtype),
                     " does not have ", tensor.bytes.size(), " bytes"));
  }
  return extents;
}

absl::StatusOr<std::vector<Part>> CutTensor(const TensorView& tensor,
                                            v1::Layout layout, bool whole_heads,
                                            std::int64_t max_bytes) {
  const absl::StatusOr<HeadExtents> extents = ExtentsOf(tensor, layout);
  if (!extents.ok()) return extents.status();
  const std::vector<Axis> axes = AxesOf(layout);
  // Bytes of one index along each axis.
  std::vector<std::int64_t> step(axes.size());
  std::int64_t bytes = ElementBytes(tensor.dtype);
  for (std::size_t i = axes.size(); i-- > 0;) {
    step[i] = bytes;
    bytes *= tensor.shape[i];
  }
  // Parts are ranges along one axis: the outermost with small enough steps, or
  // else the last that may be cut.
  std::size_t cut = 0;
  while (cut + 1 < Cuttable(layout, whole_heads) && step[cut] > max_bytes) {
    ++cut;
  }
  const std::int64_t extent = tensor.shape[cut];
  const std::int64_t run =
      std::clamp<std::int64_t>(max_bytes / step[cut], 1, extent);

  std::vector<Part> parts;
  Part part;
  part.batch_end = extents->batch;
  part.token_end = extents->tokens;
  part.head_end = extents->heads;
  std::vector<std::int64_t> index(cut, 0);  // along the axes outside of it
  while (part.offset < bytes) {
    for (std::int64_t begin = 0; begin < extent; begin += run) {
      const std::int64_t end = std::min(begin + run, extent);
      part.shape = tensor.shape;
      std::fill_n(part.shape.begin(), cut, 1);
      part.shape[cut] = end - begin;
      for (std::size_t i = 0; i < cut; ++i) {
        SetRange(axes[i], index[i], index[i] + 1, &part);
      }
      SetRange(axes[cut], begin, end, &part);
      part.bytes = (end - begin) * step[cut];
      parts.push_back(part);
      part.offset += part.bytes;
    }
    for (std::size_t i = cut; i-- > 0;) {
      if (++index[i] < tensor.shape[i]) break;
      index[i] = 0;
    }
  }
  return parts;
}

bool NeedAxes(const v1::Tensor& ids, v1::Layout layout,
              const HeadExtents& extents) {
  return layout != v1::LAYOUT_THD && ids.shape_size() == 2 &&
         ids.shape(0) == extents.batch && extents.batch > 1;
}

bool NeedAxes(const v1::Positions& positions, v1::Layout layout,
              const HeadExtents& extents) {
  return positions.has_ids() && NeedAxes(positions.ids(), layout, extents);
}

bool NeedAxes(const v1::Movement& movement, v1::Layout layout,
              const HeadExtents& extents) {
  return NeedAxes(movement.old_positions(), layout, extents) ||
         NeedAxes(movement.new_positions(), layout, extents) ||
         NeedAxes(movement.shifts(), layout, extents);
}

absl::StatusOr<v1::Tensor> CutIds(const v1::Tensor& ids, v1::Layout layout,
                                  const HeadExtents& extents, bool several_axes,
                                  const Part& part) {
  const absl::Span<const std::int64_t> shape(ids.shape().data(),
                                             ids.shape_size());
  // Ids are [S], [B, S], [axes, S] or [axes, B, S]; [T] or [axes, T] if packed.
  // Rank and first extent tell which, except if NeedAxes().
  const std::size_t rank = shape.size();
  const bool packed = layout == v1::LAYOUT_THD;
  if (rank == (packed ? 2 : 3)) several_axes = true;
  if (rank == 2 && !packed && shape[0] != extents.batch) several_axes = true;
  const std::int64_t axes = several_axes && rank > 0 ? shape[0] : 1;
  const std::size_t inner = rank - (several_axes ? 1 : 0);
  const bool per_sequence = inner == 2 && !packed;
  const std::int64_t batch = per_sequence ? extents.batch : 1;
  const bool fits = (inner == 1 || per_sequence) &&
                    shape[rank - 1] == extents.tokens &&
                    (!per_sequence || shape[rank - 2] == extents.batch) &&
                    axes > 0 && axes <= kMaxAxes;
  // Does not overflow: the tokens are in memory.
  const std::int64_t count = fits ? axes * batch * extents.tokens : 0;
  const bool complete =
      ids.values_size() > 0
          ? ids.values_size() == count
          : ElementBytes(ids.dtype()) > 0 &&
                static_cast<std::int64_t>(ids.data().size()) ==
                    count * ElementBytes(ids.dtype());
  if (!fits || !complete) {
    return Misfit("positions", absl::StrCat("ids ", Text(shape),
                                            " are not those of ", extents.batch,
                                            " x ", extents.tokens, " tokens"));
  }
  // The ids are a matrix of axes * batch rows, with a column for every token. A
  // part has some sequences of each axis, and some tokens of these.
  v1::Tensor cut;
  cut.set_dtype(ids.dtype());
  if (several_axes) cut.add_shape(axes);
  const std::int64_t row_begin = per_sequence ? part.batch_begin : 0;
  const std::int64_t row_end = per_sequence ? part.batch_end : 1;
  if (per_sequence) cut.add_shape(row_end - row_begin);
  cut.add_shape(part.token_end - part.token_begin);
  for (std::int64_t axis = 0; axis < axes; ++axis) {
    CopyBlock(ids, extents.tokens, axis * batch + row_begin,
              axis * batch + row_end, part.token_begin, part.token_end, &cut);
  }
  return cut;
}

absl::StatusOr<v1::Positions> CutPositions(const v1::Positions& positions,
                                           v1::Layout layout,
                                           const HeadExtents& extents,
                                           bool several_axes,
                                           const Part& part) {
  v1::Positions cut;
  switch (positions.kind_case()) {
    case v1::Positions::kStart:
      cut.set_start(Later(positions.start(), part.token_begin));
      return cut;
    case v1::Positions::kStarts:
      if (positions.starts().values_size() != extents.batch) {
        return Misfit("positions.starts",
                      absl::StrCat(positions.starts().values_size(), " of ",
                                   extents.batch, " sequences"));
      }
      cut.mutable_starts();
      for (std::int64_t b = part.batch_begin; b < part.batch_end; ++b) {
        cut.mutable_starts()->add_values(Later(
            positions.starts().values(static_cast<int>(b)), part.token_begin));
      }
      return cut;
    case v1::Positions::kIds: {
      absl::StatusOr<v1::Tensor> ids =
          CutIds(positions.ids(), layout, extents, several_axes, part);
      if (!ids.ok()) return ids.status();
      *cut.mutable_ids() = *std::move(ids);
      return cut;
    }
    case v1::Positions::kPacked:
      if (layout != v1::LAYOUT_THD) {
        return Misfit("positions.packed", "goes with layout THD");
      }
      return CutPacked(positions.packed(), extents, part);
    default:
      return cut;  // the server reports that they are missing
  }
}

absl::StatusOr<v1::Movement> CutMovement(const v1::Movement& movement,
                                         v1::Layout layout,
                                         const HeadExtents& extents,
                                         bool several_axes, const Part& part) {
  v1::Movement cut;
  if (movement.has_old_positions()) {
    absl::StatusOr<v1::Positions> positions = CutPositions(
        movement.old_positions(), layout, extents, several_axes, part);
    if (!positions.ok()) return positions.status();
    *cut.mutable_old_positions() = *std::move(positions);
  }
  if (movement.has_new_positions()) {
    absl::StatusOr<v1::Positions> positions = CutPositions(
        movement.new_positions(), layout, extents, several_axes, part);
    if (!positions.ok()) return positions.status();
    *cut.mutable_new_positions() = *std::move(positions);
  } else if (movement.has_shifts()) {
    absl::StatusOr<v1::Tensor> shifts =
        CutIds(movement.shifts(), layout, extents, several_axes, part);
    if (!shifts.ok()) return shifts.status();
    *cut.mutable_shifts() = *std::move(shifts);
  } else if (movement.target_case() == v1::Movement::kShift) {
    cut.set_shift(movement.shift());
  }
  return cut;
}

}  // namespace posenc
