#include "server/rpc/call_ending.h"

#include <algorithm>
#include <string>

namespace posenc::server {
namespace {

// Tells clients' retries to wait (gRFC A6), and how long: about what the
// largest request takes.
constexpr char kPushback[] = "grpc-retry-pushback-ms";
constexpr char kPushbackMs[] = "1000";

// What gRPC's protocol allows in metadata (ASCII-Value). gRPC refuses the
// operation if there is any other byte, and the process would end for it.
bool IsMetadata(absl::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return c >= ' ' && c <= '~'; });
}

}  // namespace

// The text is sent as a trailer of its name. gRPC would make the same trailer
// of it, and put a copy into an error object that nobody reads. A text that
// repeats what a caller wrote may have any bytes, and is left to gRPC.
CallEnding::CallEnding(const grpc::Status& status, bool pushback)
    : code_(static_cast<grpc_status_code>(status.error_code())) {
  const std::string& text = status.error_message();
  if (!IsMetadata(text)) {
    details_ = grpc_slice_from_copied_buffer(text.data(), text.size());
  } else if (!text.empty()) {
    Add("grpc-message", text);
  }
  if (!status.error_details().empty()) {
    Add("grpc-status-details-bin", status.error_details());
  }
  if (pushback) Add(kPushback, kPushbackMs);
}

CallEnding::CallEnding(const CallEnding& other)
    : code_(other.code_),
      trailers_(other.trailers_),
      details_(grpc_slice_ref(other.details_)) {
  for (const grpc_metadata& trailer : trailers_) grpc_slice_ref(trailer.value);
}

CallEnding::~CallEnding() {
  for (const grpc_metadata& trailer : trailers_) {
    grpc_slice_unref(trailer.value);
  }
  grpc_slice_unref(details_);
}

void CallEnding::Add(const char* name, absl::string_view value) {
  grpc_metadata trailer = {};
  trailer.key = grpc_slice_from_static_string(name);
  trailer.value = grpc_slice_from_copied_buffer(value.data(), value.size());
  trailers_.push_back(trailer);
}

}  // namespace posenc::server
