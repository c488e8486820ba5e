// BuildTable and BuildTableStream make rows of cosines and sines, or of an
// absolute encoding.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "posenc/v1/service.pb.h"
#include "server/convert/fields.h"
#include "server/methods/checked_table.h"
#include "server/methods/methods.h"
#include "server/methods/stream.h"
#include "server/methods/takes_long.h"

namespace posenc::server {
namespace {

// Number of bytes reserved in a stream's message for fields other than its
// tensors.
constexpr std::int64_t kMessageOverhead = 64;

// Converts a table's error to an error of the stream's request. The request has
// the table in the field `table`. An error without a field is about the size of
// a message. So its field is rows_per_message, if the client has set
// rows_per_message.
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

// Receives one message, and sends the table's rows.
class BuildTableStreamHandler final : public CallHandler {
 public:
  explicit BuildTableStreamHandler(const MethodContext& context)
      : context_(context),
        max_response_bytes_(context.limits->max_response_bytes) {}

  absl::Status Receive(RequestMessage message) override {
    if (request_ != nullptr) {
      return core::FieldInvalid("table", "given twice; one table a call");
    }
    ASSIGN_OR_RETURN(auto parsed, ParseOfStream<v1::BuildTableStreamRequest>(
                                      std::move(message)));
    const v1::BuildTableStreamRequest& request = parsed->request;
    if (!request.has_table()) {
      return core::FieldRequired("table", "not given");
    }
    if (request.rows_per_message() < 0) {
      return core::FieldInvalid("rows_per_message",
                                absl::StrCat(request.rows_per_message(),
                                             "; must be positive, or unset"));
    }
    context_.reserve = parsed->Claim();
    request_ = std::move(parsed);
    return absl::OkStatus();
  }

  // The first answer may have to expand the positions of any number of rows.
  bool TakesLong() const override {
    return table_ == nullptr && request_ != nullptr;
  }

  bool HasNext() const override { return request_ != nullptr && !done_; }
  absl::StatusOr<std::unique_ptr<PendingResponse>> Next(
      StopCheck /*stop*/) override {
    if (!HasNext()) return nullptr;
    if (table_ == nullptr) {
      RETURN_IF_ERROR(Begin(request_->request));
    }
    const std::int64_t n =
        std::min(rows_per_message_, table_->rows() - first_row_);
    v1::BuildTableStreamResponse response;
    if (table_->rotary()) response.set_amplitude(table_->attention_factor());
    response.set_first_row(first_row_);
    if (first_row_ == 0) {
      const core::Shape whole = table_->WholeShape();
      Append(whole, response.mutable_whole_shape());
    }
    absl::StatusOr<std::unique_ptr<PendingResponse>> pending =
        MakeResponse(table_->Answer(first_row_, n), request_, nullptr,
                     response.SerializeAsString(), max_response_bytes_);
    if (!pending.ok()) return pending.status();
    first_row_ += n;
    // A table without rows is also one message.
    done_ = first_row_ >= table_->rows();
    return pending;
  }

 private:
  // Checks the table, and chooses the number of rows in a message.
  absl::Status Begin(const v1::BuildTableStreamRequest& request) {
    // If the client leaves the number of rows to the server, one row must fit
    // into a message.
    absl::StatusOr<std::shared_ptr<const CheckedTable>> table =
        CheckedTable::Check(
            request.table(), context_, max_response_bytes_,
            std::max<std::int64_t>(1, request.rows_per_message()));
    if (!table.ok()) {
      return OfStream(table.status(), request.rows_per_message() != 0);
    }
    table_ = *std::move(table);
    rows_per_message_ = request.rows_per_message();
    if (rows_per_message_ == 0) {
      const std::int64_t bytes =
          std::min(kStreamChunkBytes, max_response_bytes_ - kMessageOverhead);
      const auto row_bytes =
          static_cast<std::int64_t>(absl::Uint128Low64(table_->FieldBytes(1)));
      rows_per_message_ = std::max<std::int64_t>(1, bytes / row_bytes);
    }
    return absl::OkStatus();
  }

  MethodContext context_;
  const std::int64_t max_response_bytes_;
  // request_ is null before the first message, and table_ before the first
  // answer.
  std::shared_ptr<const ParsedRequest<v1::BuildTableStreamRequest>> request_;
  std::shared_ptr<const CheckedTable> table_;  // borrows the request
  std::int64_t rows_per_message_ = 0;
  std::int64_t first_row_ = 0;
  bool done_ = false;
};

}  // namespace

std::unique_ptr<CallHandler> StartBuildTableStream(
    const MethodContext& context) {
  return std::make_unique<BuildTableStreamHandler>(context);
}

}  // namespace posenc::server
