#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "client/tools/load/workload.h"
#include "core/base/status_macros.h"
#include "google/protobuf/message.h"
#include "posenc/client.h"

namespace posenc::load {
namespace {

namespace pb = google::protobuf;

// The size of a page. Tensors are aligned to it, so that slots share no pages.
constexpr std::size_t kAlignment = 4096;

std::size_t Aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Parses a message of the contract. `name` is the name of its type, for example
// "ApplyRopeRequest". Returns INTERNAL if the bytes are not such a message.
absl::StatusOr<std::unique_ptr<pb::Message>> ParseMessage(
    const std::string& name, const std::string& bytes) {
  const pb::Descriptor* const type =
      v1::GetServerInfoRequest::descriptor()->file()->FindMessageTypeByName(
          name);
  std::unique_ptr<pb::Message> message(
      pb::MessageFactory::generated_factory()->GetPrototype(type)->New());
  if (message->ParseFromString(bytes)) return message;
  return absl::InternalError(absl::StrCat("no ", name, ": it does not parse"));
}

// Returns the contents of a message's tensors, one after the other.
std::string TensorBytes(const pb::Message& message) {
  std::vector<const pb::FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  std::string bytes;
  for (const auto* const field : fields) {
    if (field->message_type() != v1::Tensor::descriptor()) continue;
    bytes += static_cast<const v1::Tensor&>(
                 message.GetReflection()->GetMessage(message, field))
                 .data();
  }
  return bytes;
}

// A parsed request, from which the requests of all slots are made. Its tensor
// and its output have no place in shared memory yet. The result must have the
// same size as the tensor.
struct Template {
  std::unique_ptr<pb::Message> request;  // without the tensor's bytes
  v1::Tensor* tensor = nullptr;          // null: no tensor
  v1::SharedMemory* output = nullptr;
};

absl::StatusOr<Template> TemplateOf(const Case& one, Request* request) {
  Template made;
  ASSIGN_OR_RETURN(made.request, ParseMessage(one.rpc + "Request",
                                              BytesOf(request->message)));
  const pb::Reflection& reflection = *made.request->GetReflection();
  std::vector<const pb::FieldDescriptor*> fields;
  reflection.ListFields(*made.request, &fields);
  for (const pb::FieldDescriptor* const field : fields) {
    if (field->message_type() != v1::Tensor::descriptor()) continue;
    made.tensor = static_cast<v1::Tensor*>(
        reflection.MutableMessage(made.request.get(), field));
    made.output = static_cast<v1::SharedMemory*>(reflection.MutableMessage(
        made.request.get(), made.request->GetDescriptor()->FindFieldByName(
                                absl::StrCat(field->name(), "_output"))));
    request->input = std::move(*made.tensor->mutable_data());
    made.tensor->clear_data();
  }
  if (made.tensor == nullptr || request->answer.empty()) return made;
  ASSIGN_OR_RETURN(const auto answer,
                   ParseMessage(one.rpc + "Response", request->answer));
  request->expected = TensorBytes(*answer);
  if (request->expected.size() == request->input.size()) return made;
  return absl::InternalError(
      absl::StrCat(one.name, ": results of ", request->expected.size(),
                   " bytes where ", request->input.size(), " have a place"));
}

}  // namespace

absl::StatusOr<std::shared_ptr<SharedRegion>> ShareWorkload(
    const Client& client, bool in_place, int slots,
    std::vector<Case>* workload) {
  std::vector<Template> templates;  // of all requests, in their order
  std::size_t largest = 0;
  for (Case& one : *workload) {
    for (Request& request : one.requests) {
      ASSIGN_OR_RETURN(templates.emplace_back(), TemplateOf(one, &request));
      largest = std::max(largest, Aligned(request.input.size()));
    }
  }
  const std::size_t of_slot = in_place ? largest : 2 * largest;
  ASSIGN_OR_RETURN(
      std::shared_ptr<SharedRegion> region,
      client.MakeRegion(of_slot * static_cast<std::size_t>(slots)));
  if (region->name().empty()) {
    return absl::FailedPreconditionError(
        "--shared-memory: the server shares no memory, or not with callers "
        "from here; see posencd --shared-memory-prefix");
  }
  std::size_t next = 0;
  for (Case& one : *workload) {
    for (Request& request : one.requests) {
      const Template& made = templates[next++];
      if (made.tensor == nullptr) continue;
      for (int slot = 0; slot < slots; ++slot) {
        const std::size_t in = of_slot * static_cast<std::size_t>(slot);
        const std::size_t out = in_place ? in : in + largest;
        made.tensor->mutable_shared()->set_name(region->name());
        made.tensor->mutable_shared()->set_offset(
            static_cast<std::int64_t>(in));
        made.output->set_name(region->name());
        made.output->set_offset(static_cast<std::int64_t>(out));
        SlotRequest& added = request.slots.emplace_back();
        const grpc::Slice slice(made.request->SerializeAsString());
        added.message = grpc::ByteBuffer(&slice, 1);
        added.bytes_text = absl::StrCat(slice.size());
        added.input = region->bytes().subspan(in, request.input.size());
        added.output = region->bytes().subspan(out, request.input.size());
        std::copy(request.input.begin(), request.input.end(),
                  added.input.begin());
      }
    }
  }
  return region;
}

}  // namespace posenc::load
