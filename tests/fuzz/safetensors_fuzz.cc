// libFuzzer target: safetensors files, read whole, and by header only, as in
// doctor. Accepted tensors cover the data without hole or overlap, and writing
// and reading their header gives the same tensors.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "absl/types/span.h"
#include "client/tools/files/safetensors.h"

namespace posenc::cli {
namespace {

void Demand(bool holds) {
  if (!holds) std::abort();
}

// Each tensor begins at the end of the previous one, and the last ends the
// data.
void DemandCover(const Safetensors& file, absl::Span<const char> data) {
  const char* next = data.data();
  for (const SafetensorsEntry& entry : file.entries) {
    Demand(entry.bytes.data() == next);
    next += entry.bytes.size();
    // The address sanitizer detects a read out of bounds.
    std::size_t sum = 0;
    for (const char byte : entry.bytes) sum += static_cast<unsigned char>(byte);
    Demand(sum <= 255 * entry.bytes.size());
    AsTensor(entry).status().IgnoreError();
  }
  Demand(next == data.data() + data.size());
}

void DemandRoundTrip(const Safetensors& file, absl::Span<const char> data) {
  std::string bytes = SafetensorsHeader(file);
  bytes.append(data.data(), data.size());
  const auto again = ParseSafetensors(bytes);
  Demand(again.ok());
  Demand(again->metadata == file.metadata);
  Demand(again->entries.size() == file.entries.size());
  for (std::size_t i = 0; i < file.entries.size(); ++i) {
    Demand(again->entries[i].name == file.entries[i].name);
    Demand(again->entries[i].dtype == file.entries[i].dtype);
    Demand(again->entries[i].shape == file.entries[i].shape);
    Demand(again->entries[i].bytes.size() == file.entries[i].bytes.size());
  }
}

void Check(absl::Span<const char> bytes) {
  const auto size = SafetensorsHeaderSize(bytes, bytes.size());
  const auto file = ParseSafetensors(bytes);
  if (!size.ok()) return Demand(file.status() == size.status());
  const absl::Span<const char> data = bytes.subspan(8 + *size);
  const auto layout =
      ParseSafetensorsHeader(bytes.subspan(8, *size), data.size());
  Demand(layout.status() == file.status());
  if (!file.ok()) return Demand(!file.status().message().empty());
  Demand(layout->entries.size() == file->entries.size());
  DemandCover(*file, data);
  DemandRoundTrip(*file, data);
}

}  // namespace
}  // namespace posenc::cli

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size) {
  posenc::cli::Check({reinterpret_cast<const char*>(data), size});
  return 0;
}
