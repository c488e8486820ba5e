// ConvertPairing reorders the rows of a projection weight for the other
// pairing.

#include "core/rotation/convert_pairing.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "posenc/v1/service.pb.h"
#include "server/convert/rope.h"
#include "server/methods/methods.h"

namespace posenc::server {
namespace {

// Number of bytes that one tile copies. A tile may be a part of a row, because
// a row may have any size. Copying a tile takes much less than a millisecond.
constexpr std::size_t kCopiedTileBytes = 1 << 20;

}  // namespace

absl::StatusOr<TensorAnswer> AnswerConvertPairing(
    const v1::ConvertPairingRequest& request, const MethodContext& context) {
  absl::StatusOr<InputTensor> weight = ReadRequiredTensor(
      "weight", request.has_weight(), request.weight(),
      context.borrowed.Find(v1::ConvertPairingRequest::kWeightFieldNumber));
  if (!weight.ok()) {
    core::Faults faults;
    faults.Note(weight.status());
    faults.Note(core::CheckConvertPairing(ReadConvertPairing(request)));
    return faults.status();
  }
  ASSIGN_OR_RETURN(
      const core::PairingRows rows,
      core::PairingRows::Create(ReadConvertPairing(request), weight->view.dtype,
                                weight->view.shape));

  TensorAnswer answer;
  answer.outputs.push_back({v1::ConvertPairingResponse::kWeightFieldNumber,
                            weight->view.dtype, weight->view.shape});
  const std::size_t row_bytes = rows.row_bytes();
  const std::size_t all = row_bytes * static_cast<std::size_t>(rows.rows());
  const auto input = std::make_shared<InputTensor>(*std::move(weight));
  answer.computation = std::make_unique<TileFunction>(
      static_cast<std::int64_t>((all + kCopiedTileBytes - 1) /
                                kCopiedTileBytes),
      [rows, input, row_bytes, all](std::int64_t tile,
                                    absl::Span<const OutputBuffer> outputs,
                                    StopCheck) {
        std::size_t at = static_cast<std::size_t>(tile) * kCopiedTileBytes;
        const std::size_t end = std::min(at + kCopiedTileBytes, all);
        while (at < end) {
          const std::size_t in_row = at % row_bytes;
          const std::size_t bytes = std::min(row_bytes - in_row, end - at);
          const auto row = static_cast<std::int64_t>(at / row_bytes);
          input->pieces.Read(rows.Source(row) * row_bytes + in_row, bytes,
                             outputs[0].data() + at);
          at += bytes;
        }
        return absl::OkStatus();
      });
  return answer;
}

}  // namespace posenc::server
