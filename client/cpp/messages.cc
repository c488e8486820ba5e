#include "posenc/messages.h"

#include "absl/strings/cord.h"
#include "posenc/rpc/status.pb.h"
#include "status_type.h"

namespace posenc {
namespace {

constexpr char kErrorInfoType[] = "type.googleapis.com/google.rpc.ErrorInfo";
constexpr char kErrorDomain[] = "posenc";

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

v1::Positions StartAt(std::int64_t start) {
  v1::Positions positions;
  positions.set_start(start);
  return positions;
}

v1::RopeSource FromPreset(absl::string_view name) {
  v1::RopeSource source;
  source.set_preset(name.data(), name.size());
  return source;
}

v1::RopeSource FromConfigJson(absl::string_view config_json) {
  v1::RopeSource source;
  source.set_config_json(config_json.data(), config_json.size());
  return source;
}

v1::Tensor ToTensor(const TensorView& view) {
  v1::Tensor tensor;
  tensor.set_dtype(view.dtype);
  tensor.mutable_shape()->Add(view.shape.begin(), view.shape.end());
  tensor.set_data(view.bytes.data(), view.bytes.size());
  return tensor;
}

std::string ErrorReason(const absl::Status& status) {
  return InfoOf(status).reason();
}

std::string ErrorFact(const absl::Status& status, absl::string_view name) {
  const rpc::ErrorInfo info = InfoOf(status);
  const auto fact = info.metadata().find(std::string(name));
  return fact == info.metadata().end() ? "" : fact->second;
}

}  // namespace posenc
