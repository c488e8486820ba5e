// ConvertPairing reorders the rows of a projection weight for the other
// pairing.

#include "core/rotation/convert_pairing.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "core/base/error.h"
#include "posenc/v1/service.pb.h"
#include "server/convert/rope.h"
#include "server/methods/methods.h"

namespace posenc::server {
namespace {

using Request = v1::ConvertPairingRequest;

// Number of bytes that one tile copies. This takes much less than a
// millisecond.
constexpr std::size_t kTileBytes = 1 << 20;

}  // namespace

absl::StatusOr<TensorAnswer> AnswerConvertPairing(
    const Request& request, const MethodContext& context,
    v1::ConvertPairingResponse* /*response*/) {
  absl::StatusOr<InputTensor> weight =
      ReadRequiredTensor("weight", request.has_weight(), request.weight(),
                         context.borrowed.Find(Request::kWeightFieldNumber));
  if (!weight.ok()) {
    core::Faults faults;
    faults.Note(weight.status());
    faults.Note(core::CheckConvertPairing(ReadConvertPairing(request)));
    return faults.status();
  }
  const absl::StatusOr<core::PairingRows> rows = core::PairingRows::Create(
      ReadConvertPairing(request), weight->view.dtype, weight->view.shape);
  if (!rows.ok()) return rows.status();

  TensorAnswer answer;
  answer.outputs.push_back({v1::ConvertPairingResponse::kWeightFieldNumber,
                            weight->view.dtype, weight->view.shape});
  const std::size_t bytes = rows->row_bytes();
  const std::int64_t tile_rows =
      std::max<std::int64_t>(1, kTileBytes / std::max<std::size_t>(bytes, 1));
  const std::int64_t tiles =
      bytes == 0 ? 0 : (rows->rows() + tile_rows - 1) / tile_rows;
  const auto input = std::make_shared<InputTensor>(*std::move(weight));
  answer.computation = std::make_unique<TileFunction>(
      tiles, [rows = *rows, input, bytes, tile_rows](
                 std::int64_t tile, absl::Span<const OutputBuffer> outputs,
                 StopCheck) {
        const std::int64_t first = tile * tile_rows;
        const std::int64_t end = std::min(first + tile_rows, rows.rows());
        char* const out = outputs[0].data();
        for (std::int64_t row = first; row < end; ++row) {
          input->pieces.Read(rows.Source(row) * bytes, bytes,
                             out + row * bytes);
        }
        return absl::OkStatus();
      });
  return answer;
}

}  // namespace posenc::server
