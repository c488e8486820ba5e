#include "client/cpp/connection/error_fields.h"

#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/types/optional.h"
#include "posenc/errors.h"
#include "posenc/rpc/status.pb.h"

namespace posenc {
namespace {

// Removes the prefix, such as "table.", from every word of the text.
std::string Shorter(absl::string_view prefix, absl::string_view text) {
  return absl::StrReplaceAll(absl::StrCat(" ", text),
                             {{absl::StrCat(" ", prefix), " "}})
      .substr(1);
}

void Shorten(absl::string_view prefix, google::protobuf::Any* detail) {
  rpc::ErrorInfo info;
  rpc::BadRequest request;
  if (absl::EndsWith(detail->type_url(), "/google.rpc.ErrorInfo") &&
      info.ParseFromString(detail->value())) {
    const auto field = info.mutable_metadata()->find("field");
    if (field != info.mutable_metadata()->end()) {
      field->second = Shorter(prefix, field->second);
    }
    detail->set_value(info.SerializeAsString());
  } else if (absl::EndsWith(detail->type_url(), "/google.rpc.BadRequest") &&
             request.ParseFromString(detail->value())) {
    for (auto& violation : *request.mutable_field_violations()) {
      violation.set_field(Shorter(prefix, violation.field()));
    }
    detail->set_value(request.SerializeAsString());
  }
}

// Returns the ErrorInfo that the server or WrongArgument() added; empty if
// there is none.
rpc::ErrorInfo InfoOf(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kStatusType);
  rpc::Status details;
  if (!payload || !details.ParseFromString(std::string(*payload))) return {};
  for (const google::protobuf::Any& detail : details.details()) {
    rpc::ErrorInfo info;
    if (detail.type_url() == kErrorInfoType &&
        info.ParseFromString(detail.value()) && info.domain() == kErrorDomain) {
      return info;
    }
  }
  return {};
}

}  // namespace

std::string ErrorReason(const absl::Status& status) {
  return InfoOf(status).reason();
}

std::string ErrorFact(const absl::Status& status, absl::string_view name) {
  if (name == "requestId") {
    const absl::optional<absl::Cord> id = status.GetPayload(kRequestIdType);
    return id ? std::string(*id) : "";
  }
  const rpc::ErrorInfo info = InfoOf(status);
  const auto fact = info.metadata().find(std::string(name));
  return fact == info.metadata().end() ? "" : fact->second;
}

absl::Status WrongArgument(absl::string_view field, absl::string_view fact) {
  absl::Status out =
      absl::InvalidArgumentError(absl::StrCat(field, ": ", fact));
  rpc::ErrorInfo info;
  info.set_domain(kErrorDomain);
  (*info.mutable_metadata())["field"] = std::string(field);
  rpc::Status details;
  details.set_code(static_cast<int>(out.code()));
  details.set_message(std::string(out.message()));
  google::protobuf::Any* const detail = details.add_details();
  detail->set_type_url(kErrorInfoType);
  detail->set_value(info.SerializeAsString());
  out.SetPayload(kStatusType, absl::Cord(details.SerializeAsString()));
  return out;
}

absl::Status OutsideOf(absl::string_view path, const absl::Status& error) {
  const std::string prefix = absl::StrCat(path, ".");
  absl::Status out(error.code(), Shorter(prefix, error.message()));
  error.ForEachPayload([&](absl::string_view type, const absl::Cord& payload) {
    rpc::Status details;
    if (type != kStatusType || !details.ParseFromString(std::string(payload))) {
      out.SetPayload(type, payload);
      return;
    }
    details.set_message(Shorter(prefix, details.message()));
    for (auto& detail : *details.mutable_details()) Shorten(prefix, &detail);
    out.SetPayload(type, absl::Cord(details.SerializeAsString()));
  });
  return out;
}

}  // namespace posenc
