#include "server/kserve/regions.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "core/error.h"

namespace posenc::server {
namespace {

// Registering never ends for some clients.
constexpr std::size_t kMostRegions = 1024;

absl::Status NotRegistered() {
  return absl::NotFoundError("shared memory: no such region is registered");
}

}  // namespace

absl::Status Regions::Register(
    const inference::SystemSharedMemoryRegisterRequest& request) {
  if (request.name().empty()) {
    return core::FieldRequired("name", "not given; regions need one");
  }
  if (request.byte_size() == 0) {
    return core::FieldInvalid("byte_size", "0; a region has bytes");
  }
  absl::string_view name = request.key();
  absl::ConsumePrefix(&name, "/");
  const auto file = files_->Map(name);
  if (!file.ok()) return core::Prefixed("key", file.status());
  const absl::Status range =
      CheckRange(**file, request.offset(), request.byte_size());
  if (!range.ok()) return core::Prefixed("byte_size", range);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (regions_.contains(request.name())) {
    return absl::AlreadyExistsError(absl::StrCat(
        "shared memory: the region ", request.name(), " is registered"));
  }
  if (regions_.size() >= kMostRegions) {
    return absl::ResourceExhaustedError(
        absl::StrCat("shared memory: ", kMostRegions,
                     " regions are registered; unregister some"));
  }
  regions_[request.name()] = {request.key(), std::string(name),
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

absl::StatusOr<SharedPlace> Regions::Find(const std::string& name,
                                          std::uint64_t offset,
                                          std::uint64_t bytes) {
  Region region;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = regions_.find(name);
    if (found == regions_.end()) return NotRegistered();
    region = found->second;
  }
  if (offset > region.bytes || bytes > region.bytes - offset) {
    return core::FieldInvalid(
        "", absl::StrCat("bytes from ", offset, " on, ", bytes,
                         " of them, are not within the region's ",
                         region.bytes));
  }
  auto file = files_->Map(region.file);
  if (!file.ok()) return file.status();
  // The file may have become shorter, and the sum fits: the region was within
  // a file.
  const absl::Status range =
      CheckRange(**file, region.offset + offset, bytes);
  if (!range.ok()) return range;
  SharedPlace place;
  place.data = (*file)->data() + region.offset + offset;
  place.bytes = bytes;
  place.file = *std::move(file);
  return place;
}

}  // namespace posenc::server
