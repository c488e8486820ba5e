// libFuzzer target: requests of every RPC, from their bytes to the bytes of
// their answers, through the handlers of calls, without a socket.
//
// Input: byte 0 chooses the method. Byte 1 chooses the slices of the message;
// if it is 128 or more, the call is a retry. Byte 2 chooses where a second
// message of the same call begins. The rest is messages. They may name files in
// shared memory (shared_folder.h). Sanitizers detect errors that handler_run.h
// does not.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <vector>

#include "absl/strings/string_view.h"
#include "posenc/compat.h"
#include "server/methods/methods.h"
#include "tests/fuzz/handler_run.h"
#include "tests/fuzz/shared_folder.h"

namespace posenc::server {
namespace {

// The methods are in the order of service.proto, so that an input means the
// same in every version.
constexpr absl::string_view kMethods[] = {
    "GetServerInfo",  "ResolveRope",      "BuildTable",  "BuildTableStream",
    "BuildBias",      "BuildPositions",   "ApplyRope",   "ApplyRopeStream",
    "Reposition",     "RepositionStream", "AddEncoding", "ScoreRelative",
    "ConvertPairing", "AnalyzeRope",      "DiagnoseRope"};

constexpr std::size_t kHeader = 3;

}  // namespace
}  // namespace posenc::server

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  // protobuf logs every string that is not UTF-8.
  posenc::compat::SetLog(nullptr);
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
  static const SharedFolder folder;
  const Limits limits = SmallLimits();
  RopeCache cache(kCacheBytes);
  const CallSharing sharing = {folder.files(), true, data[1] > 127};
  const absl::string_view rest = bytes.substr(kHeader);
  const std::size_t first =
      method->stream ? rest.size() * (256 - data[2]) / 256 : rest.size();
  RequestMessage one = Message(rest.substr(0, first), data[1] % 17);
  RequestMessage two = Message(rest.substr(first), data[1] % 17);
  std::vector<RequestMessage*> messages = {&one};
  if (first < rest.size()) messages.push_back(&two);
  try {
    const auto handler = method->start({&limits, &cache, sharing});
    if (!handler.ok()) std::abort();
    RunHandler(handler->get(), messages);
  } catch (const std::bad_alloc&) {  // like Step
  } catch (const std::length_error&) {
  }
  return 0;
}
