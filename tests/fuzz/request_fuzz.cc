// libFuzzer target: requests of every RPC, from their bytes to the bytes of
// their answers, through the handlers that calls use, without a socket.
//
// Input: byte 0 chooses the method, byte 1 the slices in which the message
// came, byte 2 where a second message of the same call begins; the rest is
// messages. Limits are small, so that an input that asks for much is refused
// rather than slow. Anything but an answer or a status that clients may get is
// a finding; sanitizers see the others.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <stdexcept>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "google/protobuf/stubs/logging.h"
#include "server/budget/admission.h"
#include "server/budget/limits.h"
#include "server/memory/response_buffers.h"
#include "server/methods/methods.h"

namespace posenc::server {
namespace {

// In the order of service.proto: an input means the same in every version.
constexpr absl::string_view kMethods[] = {
    "GetServerInfo",  "ResolveRope",      "BuildTable",  "BuildTableStream",
    "BuildBias",      "BuildPositions",   "ApplyRope",   "ApplyRopeStream",
    "Reposition",     "RepositionStream", "AddEncoding", "ScoreRelative",
    "ConvertPairing", "AnalyzeRope"};

constexpr std::int64_t kMaxBytes = std::int64_t{1} << 20;
constexpr std::size_t kCacheBytes = std::size_t{1} << 20;
constexpr std::size_t kHeader = 3;
// Responses of one call that are looked at.
constexpr int kMaxResponses = 4;

RequestMessage Message(absl::string_view bytes, std::size_t slice_bytes) {
  std::vector<grpc::Slice> slices;
  const std::size_t step = slice_bytes == 0 ? bytes.size() : slice_bytes;
  for (std::size_t i = 0; i < bytes.size(); i += step) {
    const std::size_t n = std::min(step, bytes.size() - i);
    slices.emplace_back(bytes.data() + i, n);  // a copy
  }
  return RequestMessage(std::move(slices), true);
}

void Judge(const absl::Status& status) {
  // Whatever a request says, the server is not at fault.
  if (status.code() != absl::StatusCode::kInternal &&
      status.code() != absl::StatusCode::kUnknown) {
    return;
  }
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::abort();
}

// False if the response cannot be had.
bool Compute(PendingResponse* pending, Admission* admission,
             ResponseBuffers* buffers) {
  const std::int64_t bytes = pending->bytes_to_claim();
  if (bytes > 0 && !admission->TryClaim(bytes)) return false;
  const absl::Status allocated = pending->Allocate(buffers);
  if (!allocated.ok()) {
    admission->Release(pending->bytes_to_claim());
    return false;
  }
  const auto go_on = [] { return absl::OkStatus(); };
  for (std::int64_t tile = 0; tile < pending->tiles(); ++tile) {
    const absl::Status computed = pending->Compute(tile, go_on);
    Judge(computed);
    if (!computed.ok()) return false;
  }
  grpc::ByteBuffer response;
  pending->Finish(&response);
  return true;
}

void Call(const Method& method, const MethodContext& context,
          const std::vector<RequestMessage*>& messages) {
  const auto admission = std::make_shared<Admission>(8 * kMaxBytes, 16);
  ResponseBuffers buffers(admission);
  const std::unique_ptr<CallHandler> handler = method.start(context);
  for (RequestMessage* const message : messages) {
    const absl::Status received = handler->Receive(std::move(*message));
    Judge(received);
    if (!received.ok()) return;
    for (int i = 0; i < kMaxResponses; ++i) {
      auto pending = handler->Next();
      Judge(pending.status());
      if (!pending.ok()) return;
      if (*pending == nullptr) break;
      if (!Compute(pending->get(), admission.get(), &buffers)) return;
    }
  }
}

}  // namespace
}  // namespace posenc::server

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  // It logs every string that is not UTF-8.
  google::protobuf::SetLogHandler(nullptr);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size) {
  using namespace posenc::server;  // NOLINT(google-build-using-namespace)
  if (size < kHeader) return 0;
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  const Method* const method =
      FindMethod(kMethods[data[0] % std::size(kMethods)]);
  if (method == nullptr) std::abort();
  Limits limits;
  limits.max_request_bytes = limits.max_response_bytes = kMaxBytes;
  limits.in_flight_bytes = 8 * kMaxBytes;
  limits.threads = 1;
  limits = WithDefaults(limits);
  RopeCache cache(kCacheBytes);
  const absl::string_view rest = bytes.substr(kHeader);
  const std::size_t first =
      method->stream ? rest.size() * (256 - data[2]) / 256 : rest.size();
  RequestMessage one = Message(rest.substr(0, first), data[1] % 17);
  RequestMessage two = Message(rest.substr(first), data[1] % 17);
  std::vector<RequestMessage*> messages = {&one};
  if (first < rest.size()) messages.push_back(&two);
  try {
    Call(*method, {&limits, &cache}, messages);
  } catch (const std::bad_alloc&) {  // as Execution does
  } catch (const std::length_error&) {
  }
  return 0;
}
