// BuildTable and BuildTableStream make rows of cosines and sines, or of an
// absolute encoding.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "posenc/v1/service.pb.h"
#include "server/convert/fields.h"
#include "server/methods/checked_table.h"
#include "server/methods/methods.h"
#include "server/methods/stream.h"

namespace posenc::server {
namespace {

// Number of bytes reserved in a stream's message for fields other than its
// tensors.
constexpr std::int64_t kMessageOverhead = 64;

// Converts a table's error to an error of the stream's request. The request has
// the table in the field `table`. An error without a field is about the size of
// a message. So this error gets the field rows_per_message, if the client has
// set this field.
absl::Status OfStream(const absl::Status& status, bool rows_given) {
  const std::optional<core::ErrorDetails> details =
      core::GetErrorDetails(status);
  if (details.has_value() && !details->field.empty()) {
    return core::Prefixed("table", status);
  }
  return core::Prefixed(rows_given ? "rows_per_message" : "", status);
}

}  // namespace

absl::StatusOr<TensorAnswer> AnswerBuildTable(
    const v1::BuildTableRequest& request, const MethodContext& context) {
  // A tensor in shared memory is not in the response, but must fit into a file.
  // The size of the response is checked again when the places of its tensors
  // are known.
  const bool placed = request.has_cos_output() || request.has_sin_output() ||
                      request.has_table_output();
  std::int64_t most = context.limits->max_response_bytes;
  if (placed && context.sharing.files != nullptr) {
    most = std::max(most, context.sharing.files->max_bytes());
  }
  ASSIGN_OR_RETURN(const auto table,
                   CheckedTable::Check(request, context, most, 0));
  TensorAnswer answer = table->Answer(0, table->rows());
  if (table->rotary()) {
    auto response = std::make_shared<v1::BuildTableResponse>();
    response->set_amplitude(table->attention_factor());
    answer.response = std::move(response);
  }
  return answer;
}

namespace {

absl::StatusOr<NextPart> BeginTable(const v1::BuildTableStreamRequest& request,
                                    const MethodContext& context) {
  std::int64_t rows = request.rows_per_message();
  if (!request.has_table()) return core::FieldRequired("table", "not given");
  if (rows < 0) {
    return core::FieldInvalid("rows_per_message", rows,
                              "; must be positive, or unset");
  }
  const std::int64_t limit = context.limits->max_response_bytes;
  // If the client leaves the number of rows to the server, one row must fit
  // into a message.
  absl::StatusOr<std::shared_ptr<const CheckedTable>> checked =
      CheckedTable::Check(request.table(), context, limit,
                          std::max<std::int64_t>(1, rows));
  if (!checked.ok()) return OfStream(checked.status(), rows != 0);
  if (rows == 0) {
    const auto row_bytes = static_cast<std::int64_t>(
        absl::Uint128Low64((*checked)->FieldBytes(1)));
    rows = std::max<std::int64_t>(
        1, std::min(kStreamChunkBytes, limit - kMessageOverhead) / row_bytes);
  }
  return [table = *std::move(checked), rows,
          first = std::int64_t{0}]() mutable {
    const std::int64_t n = std::min(rows, table->rows() - first);
    v1::BuildTableStreamResponse response;
    if (table->rotary()) response.set_amplitude(table->attention_factor());
    response.set_first_row(first);
    if (first == 0) {
      Append(table->WholeShape(), response.mutable_whole_shape());
    }
    ResultPart part = {table->Answer(first, n), response.SerializeAsString()};
    first += n;
    // A table without rows is also sent as one message.
    part.last = first >= table->rows();
    return part;
  };
}

}  // namespace

std::unique_ptr<CallHandler> StartBuildTableStream(
    const MethodContext& context) {
  return std::make_unique<PartsStream<v1::BuildTableStreamRequest, BeginTable>>(
      context, "table");
}

}  // namespace posenc::server
