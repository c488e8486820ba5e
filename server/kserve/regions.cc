#include "server/kserve/regions.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "core/error.h"

namespace posenc::server {
namespace {

// Some clients register and never unregister. A region takes some hundred
// bytes.
constexpr std::size_t kMostRegions = 1024;
constexpr std::size_t kLongestName = 255;

// The same error, of another field.
absl::Status Of(absl::string_view field, const absl::Status& status) {
  const auto details = core::GetErrorDetails(status);
  if (!details) return status;
  absl::string_view fact = status.message();
  absl::ConsumePrefix(&fact, absl::StrCat(details->field, ": "));
  return core::MakeError(status.code(), details->reason, field, fact,
                         details->metadata);
}

// Names of others' regions are not told.
absl::Status NotRegistered() {
  return core::MakeError(absl::StatusCode::kNotFound,
                         core::ErrorReason::kSharedMemoryUnavailable, "",
                         "no such region of shared memory is registered");
}

}  // namespace

absl::Status Regions::Register(
    const inference::SystemSharedMemoryRegisterRequest& request) {
  if (request.name().empty()) {
    return core::FieldRequired("name", "not given; regions need one");
  }
  if (request.name().size() > kLongestName) {
    return core::FieldInvalid(
        "name",
        absl::StrCat(request.name().size(), " bytes; at most ", kLongestName));
  }
  if (request.byte_size() == 0) {
    return core::FieldInvalid("byte_size", "is 0; a region has bytes");
  }
  absl::string_view file = request.key();
  absl::ConsumePrefix(&file, "/");
  const absl::StatusOr<SharedPlace> place =
      files_->Map(file, request.offset(), request.byte_size());
  if (!place.ok()) {
    const auto details = core::GetErrorDetails(place.status());
    return Of(details && details->field == "name" ? "key" : "byte_size",
              place.status());
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (regions_.contains(request.name())) {
    return absl::AlreadyExistsError(
        "name: a region of this name is registered; unregister it first");
  }
  if (regions_.size() >= kMostRegions) {
    return absl::ResourceExhaustedError(
        absl::StrCat(kMostRegions, " regions are registered; unregister some"));
  }
  regions_[request.name()] = {request.key(), std::string(file),
                              request.offset(), request.byte_size()};
  return absl::OkStatus();
}

void Regions::Unregister(const std::string& name) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (name.empty()) {
    regions_.clear();
  } else {
    regions_.erase(name);
  }
}

absl::Status Regions::Tell(
    const std::string& name,
    inference::SystemSharedMemoryStatusResponse* response) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!name.empty() && !regions_.contains(name)) return NotRegistered();
  for (const auto& [each, region] : regions_) {
    if (!name.empty() && each != name) continue;
    auto& to = (*response->mutable_regions())[each];
    to.set_name(each);
    to.set_key(region.key);
    to.set_offset(region.offset);
    to.set_byte_size(region.bytes);
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::SharedMemory> Regions::Find(const std::string& name,
                                               std::uint64_t offset,
                                               std::uint64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = regions_.find(name);
  if (found == regions_.end()) return NotRegistered();
  const Region& region = found->second;
  if (offset > region.bytes || bytes > region.bytes - offset) {
    return core::FieldInvalid(
        "", absl::StrCat(bytes, " bytes from ", offset,
                         " on are not within the region's ", region.bytes));
  }
  v1::SharedMemory place;
  place.set_name(region.file);
  // The sum is within a file that was mapped, and so below 2^63.
  place.set_offset(static_cast<std::int64_t>(region.offset + offset));
  return place;
}

}  // namespace posenc::server
