// The calls that build tables and biases. Requests are small. Responses may be
// too large for one message, and can come as a stream.

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cpp/connection/calls.h"
#include "client/cpp/connection/error_fields.h"
#include "client/cpp/tensors/tensor_parts.h"
#include "posenc/client.h"

namespace posenc {
namespace {

// The assumed size of a table, because its real size is not known before the
// call. A response of this size uses a bulk connection.
constexpr std::int64_t kTableBytes = std::int64_t{1} << 20;

using TableMessage = v1::BuildTableStreamResponse;
using BiasMessage = v1::BuildBiasResponse;

// The field numbers of the tensors of a TableMessage: cos, sin and table.
const std::vector<int>& TableFields() {
  static const auto& fields = *new std::vector<int>{
      TableMessage::kCosFieldNumber, TableMessage::kSinFieldNumber,
      TableMessage::kTableFieldNumber};
  return fields;
}

// True if the table has cosines and sines, not one tensor.
bool IsPair(const v1::BuildTableRequest& request) {
  return request.has_rope() && request.layout() != v1::TABLE_LAYOUT_COMPLEX;
}

absl::Span<const std::int64_t> Shape(
    const google::protobuf::RepeatedField<std::int64_t>& extents) {
  return {extents.data(), static_cast<std::size_t>(extents.size())};
}

BuildTableResult TableOf(double amplitude, ReceivedTensors tensors) {
  BuildTableResult result;
  result.amplitude = amplitude;
  result.cos = std::move(tensors.views[0]);
  result.sin = std::move(tensors.views[1]);
  result.table = std::move(tensors.views[2]);
  result.owner = std::move(tensors.owner);
  return result;
}

// Refuses outputs for tensors that the table does not have.
absl::Status CheckTableOutputs(const v1::BuildTableRequest& request,
                               const TableOutputs& out) {
  const bool pair = IsPair(request);
  const std::pair<const char*, const Output*> outputs[] = {
      {"cos_output", &out.cos},
      {"sin_output", &out.sin},
      {"table_output", &out.table}};
  for (const auto& [name, output] : outputs) {
    if (!*output || pair != (output == &out.table)) continue;
    return WrongArgument(
        name, absl::StrCat("is set; this table has ",
                           pair ? "cos and sin" : "one tensor, out.table"));
  }
  return absl::OkStatus();
}

// Returns INTERNAL unless the answer has the tensors of the requested layout,
// in the requested dtype.
absl::Status CheckTable(const v1::BuildTableRequest& request,
                        const ReceivedTensors& tensors) {
  const v1::Dtype dtype = request.dtype() == v1::DTYPE_UNSPECIFIED
                              ? v1::DTYPE_FLOAT32
                              : request.dtype();
  const bool pair = IsPair(request);
  constexpr const char* kNames[] = {"cos", "sin", "table"};
  for (std::size_t i = 0; i < std::size(kNames); ++i) {
    const absl::optional<TensorView>& view = tensors.views[i];
    if (pair == (i == 2)) continue;
    if (!view) {
      return absl::InternalError(absl::StrCat("the answer has no ", kNames[i]));
    }
    if (view->dtype != dtype) {
      return absl::InternalError(absl::StrCat(
          "the answer's ", kNames[i], " is ", v1::Dtype_Name(view->dtype),
          "; must be ", v1::Dtype_Name(dtype)));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<BuildTableResult> Client::BuildTable(
    const v1::BuildTableRequest& request, const CallOptions& options) const {
  return BuildTable(request, TableOutputs(), options);
}

absl::StatusOr<BuildTableResult> Client::BuildTable(
    const v1::BuildTableRequest& request, const TableOutputs& out,
    const CallOptions& options) const {
  const absl::Status fit = CheckTableOutputs(request, out);
  if (!fit.ok()) return fit;
  v1::BuildTableResponse response;
  const WantedTensor wanted[] = {{response.kCosFieldNumber, out.cos},
                                 {response.kSinFieldNumber, out.sin},
                                 {response.kTableFieldNumber, out.table}};
  const WholeCall call(options);
  absl::StatusOr<ReceivedTensors> tensors = calls_->Bulk(
      "BuildTable", request, {}, &response, wanted, call.Rest(), kTableBytes);
  if (tensors.ok()) {
    const absl::Status whole = CheckTable(request, *tensors);
    if (!whole.ok()) return whole;
    return TableOf(response.amplitude(), *std::move(tensors));
  }
  if (!TooLarge(tensors.status())) return tensors.status();
  // If frequencies differ by head, a table is [heads, rows, ...].
  const std::size_t row_axis =
      request.rope().spec().explicit_frequencies().heads() > 0 ? 1 : 0;
  // The last argument is the number of tensors of this size: 2 for cosines and
  // sines.
  const auto shared = std::make_shared<std::vector<TensorParts>>();
  std::vector<TensorParts>& parts = *shared;
  parts.emplace_back(row_axis, out.cos, 2);
  parts.emplace_back(row_axis, out.sin, 2);
  parts.emplace_back(row_axis, out.table, 1);
  double amplitude = 1;
  v1::BuildTableStreamRequest stream;
  *stream.mutable_table() = request;
  const absl::Status status = calls_->Receive<TableMessage>(
      "BuildTableStream", stream, TableFields(),
      [&](const TableMessage& chunk, const ReceivedMessage& message) {
        amplitude = chunk.amplitude();
        // All outputs are checked before the first is written.
        for (std::size_t i = 0; i < parts.size(); ++i) {
          if (message.tensor(i) == nullptr || chunk.whole_shape().empty()) {
            continue;
          }
          const absl::Status begun =
              parts[i].Begin(message, i, Shape(chunk.whole_shape()));
          if (!begun.ok()) return begun;
        }
        std::int64_t done = 0, all = 0;
        for (std::size_t i = 0; i < parts.size(); ++i) {
          if (message.tensor(i) == nullptr) continue;
          const absl::Status added =
              parts[i].Add(chunk.first_row(), 0, message, i);
          if (!added.ok()) return added;
          done += static_cast<std::int64_t>(parts[i].bytes_done());
          all += static_cast<std::int64_t>(parts[i].view().bytes.size());
        }
        if (options.on_progress) options.on_progress(done, all);
        return absl::OkStatus();
      },
      call.Rest());
  // The caller's request is the field `table` of `stream`, so errors begin
  // their field names with `table.`, which is removed here.
  if (!status.ok()) return OutsideOf("table", status);
  // All tensors have one owner, so a result is kept or dropped as a whole.
  ReceivedTensors whole;
  whole.owner = shared;
  for (const TensorParts& part : parts) {
    whole.views.emplace_back();
    if (!part.begun()) continue;
    if (part.bytes_done() != part.view().bytes.size() ||
        (request.rows() > 0 && part.view().shape[row_axis] != request.rows())) {
      return absl::InternalError("the table came with rows missing");
    }
    whole.views.back() = part.view();
  }
  const absl::Status complete = CheckTable(request, whole);
  if (!complete.ok()) return complete;
  return TableOf(amplitude, std::move(whole));
}

absl::Status Client::BuildTableStream(
    const v1::BuildTableStreamRequest& request,
    const std::function<bool(const TableChunk&)>& on_rows,
    const CallOptions& options) const {
  return calls_->Receive<TableMessage>(
      "BuildTableStream", request, TableFields(),
      [&](const TableMessage& chunk,
          const ReceivedMessage& message) -> absl::Status {
        absl::StatusOr<ReceivedTensors> tensors =
            TakeTensors(message, std::vector<WantedTensor>(3));
        if (!tensors.ok()) return tensors.status();
        return on_rows({chunk.first_row(),
                        TableOf(chunk.amplitude(), *std::move(tensors))})
                   ? absl::OkStatus()
                   : absl::CancelledError("the caller wants no more rows");
      },
      options);
}

absl::Status Client::BuildBias(
    const v1::BuildBiasRequest& request,
    const std::function<bool(const BiasTile&)>& on_tile,
    const CallOptions& options) const {
  // Holds the bytes of a tile, aligned to 8 bytes.
  std::vector<std::uint64_t> memory;
  return calls_->Receive<BiasMessage>(
      "BuildBias", request, {BiasMessage::kTileFieldNumber},
      [&](const BiasMessage& response, const ReceivedMessage& message) {
        const absl::Status answer = CheckAnswer(message, 0, absl::nullopt);
        if (!answer.ok()) return answer;
        BiasTile tile;
        tile.query_start = response.query_start();
        tile.key_start = response.key_start();
        tile.tensor.dtype = response.tile().dtype();
        tile.tensor.shape.assign(response.tile().shape().begin(),
                                 response.tile().shape().end());
        const wire::BorrowedBytes& bytes = message.bytes(0);
        memory.resize(std::max(memory.size(), (bytes.size + 7) / 8));
        char* const data = reinterpret_cast<char*>(memory.data());
        TensorReader(bytes).Read(bytes.size, data);
        tile.tensor.bytes = absl::MakeConstSpan(data, bytes.size);
        return on_tile(tile)
                   ? absl::OkStatus()
                   : absl::CancelledError("the caller wants no more tiles");
      },
      options);
}

absl::StatusOr<TensorResult> Client::BuildBias(
    const v1::BuildBiasRequest& request, const CallOptions& options) const {
  TensorParts matrix(1, {}, 1);
  TensorResult result;
  result.tensor.shape = {0, request.query_length(), request.key_length()};
  const absl::Status status = calls_->Receive<BiasMessage>(
      "BuildBias", request, {BiasMessage::kTileFieldNumber},
      [&](const BiasMessage& tile, const ReceivedMessage& message) {
        if (!tile.whole_shape().empty()) {
          const absl::Status begun =
              matrix.Begin(message, 0, Shape(tile.whole_shape()));
          if (!begun.ok()) return begun;
        }
        return matrix.Add(tile.query_start() - request.query_start(),
                          tile.key_start() - request.key_start(), message, 0);
      },
      options);
  if (!status.ok()) return status;
  // Trained tables may have 0 heads; then the server sends no tile.
  if (!matrix.begun()) return result;
  result.tensor.shape[0] = matrix.view().shape[0];
  if (matrix.bytes_done() != matrix.view().bytes.size() ||
      matrix.view().shape != result.tensor.shape) {
    return absl::InternalError("the bias came with tiles missing");
  }
  result.tensor = matrix.view();
  result.owner = matrix.owner();
  return result;
}

}  // namespace posenc
