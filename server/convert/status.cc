#include "server/convert/status.h"

#include <cstddef>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "core/base/error.h"
#include "posenc/rpc/status.pb.h"
#include "posenc/v1/errors.pb.h"
#include "server/base/utf8.h"
#include "server/convert/fields.h"

namespace posenc::server {
namespace {

// gRPC's clients accept at most 8 KiB of trailers for a call. The trailers
// contain the message three times: percent-encoded (up to 3 bytes for one
// byte), and in base64 in google.rpc.Status and in BadRequest. They contain the
// values of the error's metadata once. Faults after the first are added while
// they fit. kMaxTrailerBytes leaves space for other trailers.
constexpr std::size_t kMaxMessageBytes = 1024;
constexpr std::size_t kMaxValueBytes = 256;
constexpr std::size_t kMaxMoreBytes = 256;  // for further fields
constexpr std::size_t kMaxTrailerBytes = 7 << 10;
// Number of bytes that packing adds to a detail: type URL and lengths.
constexpr std::size_t kPackBytes = 64;

// Time after which a client should try an overloaded server again: about as
// long as the largest request takes.
constexpr int kRetrySeconds = 1;

// Returns the size of a message in the trailers, where it is percent-encoded.
std::size_t EncodedBytes(absl::string_view message) {
  std::size_t bytes = 0;
  for (const char c : message) {
    bytes += c >= ' ' && c <= '~' && c != '%' ? 1 : 3;
  }
  return bytes;
}

// Returns a text such as " (2 more: layout, positions)", or "".
std::string MoreText(const std::vector<core::Fault>& more) {
  if (more.empty()) return "";
  const auto field = [](std::string* out, const core::Fault& fault) {
    out->append(fault.field.empty() ? "the request" : fault.field);
  };
  return absl::StrCat(
      " (", more.size(),
      " more: ", Utf8(absl::StrJoin(more, ", ", field), kMaxMoreBytes), ")");
}

void AddViolation(absl::string_view field, absl::string_view description,
                  rpc::BadRequest* bad) {
  rpc::BadRequest::FieldViolation* const violation =
      bad->add_field_violations();
  violation->set_field(std::string(field));
  violation->set_description(std::string(description));
}

// Returns all faults that fit into the trailers together with `message` and
// `rich`.
rpc::BadRequest Violations(const core::ErrorDetails& details,
                           absl::string_view field, absl::string_view first,
                           absl::string_view message, const rpc::Status& rich) {
  rpc::BadRequest bad;
  absl::ConsumePrefix(&first, details.field);
  absl::ConsumePrefix(&first, ": ");
  AddViolation(field, first, &bad);
  for (const core::Fault& fault : details.more) {
    AddViolation(Utf8(fault.field, kMaxValueBytes),
                 Utf8(fault.fact, kMaxValueBytes), &bad);
    const std::size_t in_base64 =
        (rich.ByteSizeLong() + kPackBytes + bad.ByteSizeLong()) * 4 / 3;
    if (EncodedBytes(message) + in_base64 > kMaxTrailerBytes) {
      bad.mutable_field_violations()->RemoveLast();
      break;
    }
  }
  return bad;
}

void Pack(absl::string_view name, const google::protobuf::Message& detail,
          rpc::Status* status) {
  google::protobuf::Any* const any = status->add_details();
  any->set_type_url("type.googleapis.com/google.rpc." + std::string(name));
  any->set_value(Serialize(detail));
}

}  // namespace

std::string ReasonName(const absl::Status& status) {
  const std::optional<core::ErrorDetails> details =
      core::GetErrorDetails(status);
  if (!details.has_value()) return "";
  return v1::ErrorReason_Name(static_cast<v1::ErrorReason>(details->reason));
}

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const auto code = static_cast<grpc::StatusCode>(status.raw_code());
  const std::optional<core::ErrorDetails> details =
      core::GetErrorDetails(status);
  if (!details.has_value()) {
    return grpc::Status(code, Utf8(status.message(), kMaxMessageBytes));
  }
  const std::string more = MoreText(details->more);
  const std::string first =
      Utf8(status.message(), kMaxMessageBytes - more.size());
  const std::string message = first + more;

  rpc::Status rich;
  rich.set_code(status.raw_code());
  rich.set_message(message);

  const std::string field = Utf8(details->field, kMaxValueBytes);
  rpc::ErrorInfo info;
  info.set_reason(ReasonName(status));
  info.set_domain("posenc");
  if (!field.empty()) (*info.mutable_metadata())["field"] = field;
  for (const auto& [key, value] : details->metadata) {
    (*info.mutable_metadata())[key] = Utf8(value, kMaxValueBytes);
  }
  Pack("ErrorInfo", info, &rich);

  const bool bad_request = code == grpc::StatusCode::INVALID_ARGUMENT ||
                           code == grpc::StatusCode::OUT_OF_RANGE;
  if ((bad_request && !field.empty()) || !details->more.empty()) {
    Pack("BadRequest", Violations(*details, field, first, message, rich),
         &rich);
  }
  if (details->reason == core::ErrorReason::kOverloaded) {
    rpc::RetryInfo retry;
    retry.mutable_retry_delay()->set_seconds(kRetrySeconds);
    Pack("RetryInfo", retry, &rich);
  }
  return grpc::Status(code, message, rich.SerializeAsString());
}

}  // namespace posenc::server
