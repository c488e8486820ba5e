#include "server/calls/call.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "core/error.h"
#include "google/protobuf/descriptor.h"

namespace posenc::server {
namespace {

v1::Tensor* MutableTensor(int field, google::protobuf::Message* message) {
  return static_cast<v1::Tensor*>(message->GetReflection()->MutableMessage(
      message, message->GetDescriptor()->FindFieldByNumber(field)));
}

}  // namespace

const wire::BorrowedBytes* TakenTensors::Find(int field) const {
  for (std::size_t i = 0; i < fields_.size(); ++i) {
    if (fields_[i] == field) return &bytes_[i];
  }
  return nullptr;
}

absl::Status CheckSize(absl::string_view field, absl::string_view what,
                       absl::uint128 bytes, std::int64_t limit,
                       absl::string_view remedy) {
  if (bytes <= static_cast<std::uint64_t>(limit)) return absl::OkStatus();
  const std::string size = ToString(bytes);
  return core::MakeError(
      absl::StatusCode::kResourceExhausted, core::ErrorReason::kMessageTooLarge,
      field,
      absl::StrCat(what, " of ", size, " bytes, over the limit of ", limit,
                   "; ", remedy),
      {{"sizeBytes", size}, {"limitBytes", absl::StrCat(limit)}});
}

absl::Status CheckRequest(std::size_t bytes, std::int64_t limit) {
  return CheckSize("", "request", bytes, limit,
                   "send less in one call, or raise --max-request-bytes");
}

absl::Status CheckResponse(absl::uint128 bytes, std::int64_t limit) {
  return CheckSize("", "response", bytes, limit,
                   "ask for less in one call, or raise --max-response-bytes");
}

absl::Status OutOfMemory() {
  return core::MakeError(
      absl::StatusCode::kResourceExhausted, core::ErrorReason::kOverloaded, "",
      "out of memory for this call; retry later, or send less in one call",
      {{"resource", "memory"}});
}

absl::Status AnswerWithTensors(absl::StatusOr<TensorCall> call,
                               std::int64_t limit, StopCheck stop,
                               google::protobuf::Message* response) {
  if (!call.ok()) return call.status();
  absl::uint128 bytes = response->ByteSizeLong();
  for (const OutputTensor& output : call->outputs) {
    bytes += TensorFieldBytes(output.dtype, output.shape, output.form);
  }
  absl::Status status = CheckResponse(bytes, limit);
  if (!status.ok()) return status;

  std::vector<core::TensorView> room;
  for (const OutputTensor& output : call->outputs) {
    room.push_back(AllocateTensor(output.dtype, output.shape,
                                  MutableTensor(output.field, response)));
  }
  for (std::size_t i = 0; i < room.size(); ++i) {
    const OutputTensor& output = call->outputs[i];
    if (output.map == nullptr) continue;
    const core::Pieces to(room[i].data,
                          output.map->rows() * output.map->out_bytes());
    core::MapRows(*output.map, output.input, to, 0, output.map->rows());
  }
  for (std::int64_t part = 0; part < call->parts; ++part) {
    status = stop();
    if (status.ok()) status = call->compute(part, room, stop);
    if (!status.ok()) return status;
  }
  for (const OutputTensor& output : call->outputs) {
    if (output.form == TensorForm::kValues) {
      SpellOut(MutableTensor(output.field, response));
    }
  }
  return absl::OkStatus();
}

}  // namespace posenc::server
