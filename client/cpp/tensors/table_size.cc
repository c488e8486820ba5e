#include "client/cpp/tensors/table_size.h"

#include <cstddef>
#include <limits>

#include "posenc/wire/frame.h"

namespace posenc {
namespace {

std::int64_t LastExtent(const v1::Tensor& tensor) {
  return tensor.shape_size() == 0 ? 0 : *tensor.shape().rbegin();
}

// Returns the number of elements in a row of one tensor; 0 if only the server
// knows it.
std::int64_t TableWidth(const v1::BuildTableRequest& request) {
  const v1::AbsoluteEncoding& absolute = request.absolute();
  switch (absolute.encoding_case()) {
    case v1::AbsoluteEncoding::kSinusoidal:
      return absolute.sinusoidal().dim();
    case v1::AbsoluteEncoding::kLearned:
      return LastExtent(absolute.learned().table());
    case v1::AbsoluteEncoding::kSincosGrid:
      return absolute.sincos_grid().dim();
    case v1::AbsoluteEncoding::kTimestep:
      return absolute.timestep().dim();
    case v1::AbsoluteEncoding::kFourierFeatures:
      return 2 * LastExtent(absolute.fourier_features().frequencies());
    case v1::AbsoluteEncoding::ENCODING_NOT_SET:
      break;
  }
  const std::int64_t width = request.rope().spec().rotary_dim();
  const bool half = request.layout() == v1::TABLE_LAYOUT_UNSPECIFIED ||
                    request.layout() == v1::TABLE_LAYOUT_HALF;
  return half ? width / 2 : width;
}

}  // namespace

std::int64_t RowsOf(const v1::BuildTableRequest& request) {
  const v1::Positions& positions = request.positions();
  // The last extent of ids counts tokens; the other extents count axes or
  // sequences.
  if (positions.has_ids() && positions.ids().shape_size() > 0) {
    return positions.ids().shape(positions.ids().shape_size() - 1);
  }
  if (positions.has_packed() && positions.packed().cu_seqlens_size() > 0) {
    return *positions.packed().cu_seqlens().rbegin();
  }
  if (!request.absolute().has_sincos_grid()) return request.rows();
  const v1::SincosGrid& grid = request.absolute().sincos_grid();
  // A grid has rows for special tokens, then a row for every cell.
  std::int64_t cells = 1;
  for (const std::int64_t extent : grid.extents()) {
    if (extent < 0 ||
        (extent > 0 &&
         cells > std::numeric_limits<std::int32_t>::max() / extent)) {
      return 0;
    }
    cells *= extent;
  }
  return cells + grid.leading_zero_rows();
}

std::int64_t TableBytes(const v1::BuildTableRequest& request) {
  const v1::RopeSpec& spec = request.rope().spec();
  const std::int64_t heads = spec.explicit_frequencies().heads();
  const std::int64_t element = static_cast<std::int64_t>(wire::ElementBytes(
      request.dtype() == v1::DTYPE_UNSPECIFIED ? v1::DTYPE_FLOAT32
                                               : request.dtype()));
  std::int64_t bytes = 1;
  for (const std::int64_t extent : {heads == 0 ? 1 : heads, RowsOf(request),
                                    TableWidth(request), element}) {
    // No memory has 2^62 bytes.
    if (extent <= 0 || bytes > (std::int64_t{1} << 62) / extent) return -1;
    bytes *= extent;
  }
  return bytes;
}

}  // namespace posenc
