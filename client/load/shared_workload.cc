#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client/flags/status_macros.h"
#include "client/load/workload.h"
#include "google/protobuf/message.h"
#include "posenc/client.h"

namespace posenc::load {
namespace {

namespace pb = google::protobuf;

// The size of a page: slots share no pages.
constexpr std::size_t kAlignment = 4096;

std::size_t Aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Parses a message of the contract by its name, "ApplyRopeRequest". INTERNAL if
// the bytes are no such message.
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

// Returns the bytes of a message's tensors, one after the other.
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

// A call's inputs and outputs, without the slot's place.
struct Template {
  std::unique_ptr<pb::Message> request;  // without the tensor's bytes
  v1::Tensor* tensor = nullptr;          // of the request; null: it has none
  struct Output {
    const pb::FieldDescriptor* field;  // X_output
    std::size_t bytes;
  };
  std::vector<Output> outputs;
  std::size_t in_bytes = 0, out_bytes = 0;
};

absl::StatusOr<Template> TemplateOf(const Case& one, Request* request) {
  Template made;
  ASSIGN_OR_RETURN(made.request, ParseMessage(one.rpc + "Request",
                                              BytesOf(request->message)));
  const auto output = [&](absl::string_view name, std::size_t bytes) {
    made.outputs.push_back({made.request->GetDescriptor()->FindFieldByName(
                                absl::StrCat(name, "_output")),
                            bytes});
    made.out_bytes += bytes;
  };
  std::vector<const pb::FieldDescriptor*> fields;
  made.request->GetReflection()->ListFields(*made.request, &fields);
  for (const pb::FieldDescriptor* const field : fields) {
    if (field->message_type() != v1::Tensor::descriptor()) continue;
    made.tensor =
        static_cast<v1::Tensor*>(made.request->GetReflection()->MutableMessage(
            made.request.get(), field));
    request->input = std::move(*made.tensor->mutable_data());
    made.tensor->clear_data();
    made.in_bytes = request->input.size();
    output(field->name(), made.in_bytes);
  }
  if (one.rpc == "BuildTable") {
    if (static_cast<const v1::BuildTableRequest&>(*made.request)
            .rope()
            .has_preset()) {
      return absl::InvalidArgumentError(
          "--shared-memory: a preset's table is as wide as the model; leave "
          "BuildTable out of --mix, or --preset");
    }
    // Each has half of a row's channels, as in the workload's request.
    const std::size_t bytes = static_cast<std::size_t>(one.tensor_bytes) / 2;
    output("cos", bytes);
    output("sin", bytes);
  }
  if (!request->answer.empty()) {
    ASSIGN_OR_RETURN(const auto answer,
                     ParseMessage(one.rpc + "Response", request->answer));
    request->expected = TensorBytes(*answer);
    if (request->expected.size() != made.out_bytes) {
      return absl::InternalError(
          absl::StrCat(one.name, ": results of ", request->expected.size(),
                       " bytes where ", made.out_bytes, " have a place"));
    }
  }
  return made;
}

}  // namespace

absl::StatusOr<std::shared_ptr<SharedRegion>> ShareWorkload(
    const Client& client, bool in_place, int slots,
    std::vector<Case>* workload) {
  std::vector<Template> templates;  // of all requests, in their order
  std::size_t in_bytes = 0, out_bytes = 0;
  for (Case& one : *workload) {
    for (Request& request : one.requests) {
      ASSIGN_OR_RETURN(Template made, TemplateOf(one, &request));
      in_bytes = std::max(in_bytes, made.in_bytes);
      // Results in place need no other place.
      if (!in_place || made.in_bytes == 0) {
        out_bytes = std::max(out_bytes, made.out_bytes);
      }
      templates.push_back(std::move(made));
    }
  }
  const std::size_t of_slot = Aligned(in_bytes) + Aligned(out_bytes);
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
      Template& made = templates[next++];
      if (made.in_bytes + made.out_bytes == 0) continue;  // no tensors
      for (int slot = 0; slot < slots; ++slot) {
        const std::size_t in = of_slot * static_cast<std::size_t>(slot);
        // A table has no input to be written over.
        const bool over = in_place && made.in_bytes > 0;
        const std::size_t out = over ? in : in + Aligned(in_bytes);
        if (made.tensor != nullptr) {
          made.tensor->mutable_shared()->set_name(region->name());
          made.tensor->mutable_shared()->set_offset(
              static_cast<std::int64_t>(in));
        }
        std::size_t at = out;
        for (const Template::Output& output : made.outputs) {
          auto* const place = static_cast<v1::SharedMemory*>(
              made.request->GetReflection()->MutableMessage(made.request.get(),
                                                            output.field));
          place->set_name(region->name());
          place->set_offset(static_cast<std::int64_t>(at));
          at += output.bytes;
        }
        SlotRequest& added = request.slots.emplace_back();
        const grpc::Slice slice(made.request->SerializeAsString());
        added.message = grpc::ByteBuffer(&slice, 1);
        added.bytes_text = absl::StrCat(slice.size());
        added.input = region->bytes().subspan(in, made.in_bytes);
        added.output = region->bytes().subspan(out, made.out_bytes);
        std::copy(request.input.begin(), request.input.end(),
                  added.input.begin());
      }
    }
  }
  return region;
}

}  // namespace posenc::load
