#include "client/cpp/connection/call_identity.h"

#include <algorithm>
#include <cstdint>
#include <random>

#include "absl/strings/str_cat.h"
#include "client/cpp/connection/error_fields.h"

namespace posenc {
namespace {

constexpr char kRequestId[] = "x-request-id";
constexpr char kTraceparent[] = "traceparent";

// Limit on the bytes of a request id or traceparent. Servers log at most this
// many bytes.
constexpr std::size_t kMaxBytes = 128;

// Refuses bytes that are not printable ASCII, because gRPC would abort the
// process if a header had such bytes.
absl::Status CheckText(const char* option, const std::string& text) {
  const bool plain = std::all_of(text.begin(), text.end(),
                                 [](char c) { return c >= ' ' && c <= '~'; });
  if (plain && text.size() <= kMaxBytes) return absl::OkStatus();
  return WrongArgument(
      option, absl::StrCat(text.size(), " bytes; must be at most ", kMaxBytes,
                           " of printable ASCII"));
}

}  // namespace

std::string RandomId() {
  thread_local std::mt19937_64 random = [] {
    std::random_device device;
    std::seed_seq seed{device(), device(), device(), device()};
    return std::mt19937_64(seed);
  }();
  const std::uint64_t high = random();
  return absl::StrCat(absl::Hex(high, absl::kZeroPad16),
                      absl::Hex(random(), absl::kZeroPad16));
}

absl::StatusOr<std::string> AddIdentity(const std::string& request_id,
                                        const std::string& traceparent,
                                        grpc::ClientContext* context) {
  absl::Status status = CheckText("request_id", request_id);
  if (status.ok()) status = CheckText("traceparent", traceparent);
  if (!status.ok()) return status;
  std::string id = request_id.empty() ? RandomId() : request_id;
  context->AddMetadata(kRequestId, id);
  if (!traceparent.empty()) context->AddMetadata(kTraceparent, traceparent);
  return id;
}

}  // namespace posenc
