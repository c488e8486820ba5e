#include "client/cpp/tensors/regions.h"

#include <algorithm>
#include <functional>
#include <string>

#include "absl/strings/str_cat.h"

namespace posenc {
namespace {

using google::protobuf::FieldDescriptor;

// Returns the request's field that names the place for tensor `number` of the
// response; null if there is none.
const FieldDescriptor* OutputField(const google::protobuf::Message& request,
                                   const google::protobuf::Message& response,
                                   int number) {
  const FieldDescriptor* const tensor =
      response.GetDescriptor()->FindFieldByNumber(number);
  return request.GetDescriptor()->FindFieldByName(
      absl::StrCat(tensor->name(), "_output"));
}

bool Overlap(absl::Span<const char> a, absl::Span<const char> b) {
  const std::less<const char*> before;
  return before(a.data(), b.data() + b.size()) &&
         before(b.data(), a.data() + a.size());
}

}  // namespace

void Regions::Add(const std::shared_ptr<SharedRegion>& region) {
  const std::lock_guard<std::mutex> lock(mutex_);
  regions_.erase(
      std::remove_if(regions_.begin(), regions_.end(),
                     [](const auto& gone) { return gone.expired(); }),
      regions_.end());
  regions_.push_back(region);
  on_.store(true);
}

absl::optional<Regions::Found> Regions::Find(absl::Span<const char> bytes) {
  if (!on_.load() || bytes.empty()) return absl::nullopt;
  const std::less_equal<const char*> not_after;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const std::weak_ptr<SharedRegion>& each : regions_) {
    const std::shared_ptr<SharedRegion> region = each.lock();
    if (region == nullptr || region->name().empty()) continue;
    const absl::Span<const char> all = region->bytes();
    if (!not_after(all.data(), bytes.data()) ||
        !not_after(bytes.data() + bytes.size(), all.data() + all.size())) {
      continue;
    }
    Found found;
    found.region = region;
    found.place.set_name(region->name());
    found.place.set_offset(bytes.data() - all.data());
    return found;
  }
  return absl::nullopt;
}

// Finds only views whose number of bytes fits their dtype and shape. The server
// computes from dtype and shape how much it reads, so for other views it could
// read outside of the view. The bytes of such views are sent instead, and the
// server reports the fault.
absl::optional<Regions::Found> Regions::FindTensor(const TensorView& view) {
  return IsWhole(view) ? Find(view.bytes) : absl::nullopt;
}

std::int64_t Regions::SharedBytes(absl::Span<const TensorField> fields) {
  std::int64_t bytes = 0;
  for (const TensorField& field : fields) {
    if (FindTensor(*field.view)) {
      bytes += static_cast<std::int64_t>(field.view->bytes.size());
    }
  }
  return bytes;
}

SharedParts Regions::Share(absl::Span<const TensorField> fields,
                           absl::Span<const WantedTensor> wanted,
                           const google::protobuf::Message& response,
                           google::protobuf::Message* request) {
  SharedParts parts;
  if (!on_.load()) return parts;
  const google::protobuf::Reflection& reflection = *request->GetReflection();
  std::vector<absl::Span<const char>> read;
  for (const TensorField& field : fields) {
    const absl::optional<Found> found = FindTensor(*field.view);
    if (!found) {
      parts.sent.push_back(field);
      continue;
    }
    *SetForm(field, request)->mutable_shared() = found->place;
    read.push_back(field.view->bytes);
    parts.owners.push_back(found->region);
  }
  for (const WantedTensor& tensor : wanted) {
    const Output& into = tensor.into;
    if (!into || !tensor.like ||
        !IsWhole({tensor.like->dtype, tensor.like->shape, *into})) {
      continue;
    }
    const FieldDescriptor* const output =
        OutputField(*request, response, tensor.field);
    const absl::optional<Found> found = Find(*into);
    if (output == nullptr || !found) continue;
    *static_cast<v1::SharedMemory*>(
        reflection.MutableMessage(request, output)) = found->place;
    parts.owners.push_back(found->region);
    for (const absl::Span<const char>& input : read) {
      parts.in_place = parts.in_place || Overlap(input, *into);
    }
  }
  return parts;
}

}  // namespace posenc
