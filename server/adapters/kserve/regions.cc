#include "server/adapters/kserve/regions.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "core/base/error.h"
#include "server/base/errors.h"

namespace posenc::server {
namespace {

// Limits the memory for regions, because some clients never unregister. A
// region takes a few hundred bytes.
constexpr std::size_t kMostRegions = 1024;
constexpr std::size_t kLongestName = 255;

// Clients write "/name", as for shm_open().
absl::string_view FileOf(absl::string_view key) {
  return absl::StripPrefix(key, "/");
}

// The error does not list the regions, because it must not reveal the names of
// other clients' regions.
absl::Status NotRegistered() {
  return core::MakeError(absl::StatusCode::kNotFound,
                         core::ErrorReason::kSharedMemoryUnavailable, "",
                         "no such region of shared memory is registered");
}

}  // namespace

absl::Status Regions::Register(
    const inference::SystemSharedMemoryRegisterRequest& request) {
  const std::string& name = request.name();
  if (name.empty()) {
    return core::FieldRequired("name", "not given; regions need one");
  }
  if (name.size() > kLongestName) {
    return core::FieldInvalid("name", name.size(), " bytes; at most ",
                              kLongestName);
  }
  if (request.byte_size() == 0) {
    return core::FieldInvalid("byte_size", "is 0; a region has bytes");
  }
  const absl::StatusOr<SharedPlace> place =
      files_->Map(FileOf(request.key()), request.offset(), request.byte_size());
  if (!place.ok()) {
    const auto details = core::GetErrorDetails(place.status());
    return WithField(place.status(),
                     details && details->field == "name" ? "key" : "byte_size");
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (registered_.regions().contains(name)) {
    return absl::AlreadyExistsError(
        "name: a region of this name is registered; unregister it first");
  }
  if (registered_.regions().size() >= kMostRegions) {
    return absl::ResourceExhaustedError(
        absl::StrCat(kMostRegions, " regions are registered; unregister some"));
  }
  auto& region = (*registered_.mutable_regions())[name];
  region.set_name(name);
  region.set_key(request.key());
  region.set_offset(request.offset());
  region.set_byte_size(request.byte_size());
  return absl::OkStatus();
}

void Regions::Unregister(const std::string& name) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (name.empty()) registered_.Clear();
  registered_.mutable_regions()->erase(name);
}

absl::Status Regions::Tell(
    const std::string& name,
    inference::SystemSharedMemoryStatusResponse* response) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (name.empty()) {
    *response = registered_;
    return absl::OkStatus();
  }
  const auto found = registered_.regions().find(name);
  if (found == registered_.regions().end()) return NotRegistered();
  (*response->mutable_regions())[name] = found->second;
  return absl::OkStatus();
}

absl::StatusOr<v1::SharedMemory> Regions::Find(const std::string& name,
                                               std::uint64_t offset,
                                               std::uint64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = registered_.regions().find(name);
  if (found == registered_.regions().end()) return NotRegistered();
  const auto& region = found->second;
  if (offset > region.byte_size() || bytes > region.byte_size() - offset) {
    return core::FieldInvalid("", bytes, " bytes from ", offset,
                              " on are not within the region's ",
                              region.byte_size());
  }
  v1::SharedMemory place;
  place.set_name(std::string(FileOf(region.key())));
  // The sum is within a file that was mapped, so it is below 2^63.
  place.set_offset(static_cast<std::int64_t>(region.offset() + offset));
  return place;
}

}  // namespace posenc::server
