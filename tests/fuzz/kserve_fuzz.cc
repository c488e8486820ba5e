// libFuzzer target: KServe's envelope, from the bytes of ModelInferRequest to
// those of the answer, without a socket; and the envelope's hand-written
// parser, compared with the generated parser.
//
// Input: byte 0 chooses ModelInfer or ModelStreamInfer, byte 1 the slices of
// the message, byte 2 the place where a stream's second message begins; the
// rest is messages. They may name the regions "a" and "b".

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "inference/inference.pb.h"
#include "posenc/compat.h"
#include "posenc/wire/split.h"
#include "server/adapters/kserve/inference.h"
#include "server/methods/methods.h"
#include "tests/fuzz/handler_run.h"
#include "tests/fuzz/shared_folder.h"

namespace posenc::server {
namespace {

constexpr std::size_t kHeader = 3;
constexpr std::size_t kMostValues = 5;

// If the split succeeds, its rest and the borrowed bytes together are the
// message that the generated parser reads.
void CheckSplit(const RequestMessage& message) {
  std::string whole;
  const auto pieces = message.pieces();
  for (const auto piece : pieces) whole.append(piece.data(), piece.size());
  wire::SplitEnvelope split;
  if (!wire::SplitValues(pieces, 7, kMostValues, &split)) return;
  inference::ModelInferRequest expected, actual;
  const bool good = expected.ParseFromString(whole);
  if (actual.ParseFromString(split.rest) != good) std::abort();
  if (!good || split.records[7] > kMostValues) return;
  for (const wire::BorrowedBytes& value : split.values) {
    std::string* const bytes = actual.add_raw_input_contents();
    for (const auto piece : value.pieces) {
      bytes->append(piece.data(), piece.size());
    }
    if (bytes->size() != value.size) std::abort();
  }
  // A field 7 with another wire type is unknown to both parsers, and stays in
  // the rest.
  if (actual.raw_input_contents_size() != expected.raw_input_contents_size()) {
    std::abort();
  }
  for (int i = 0; i < actual.raw_input_contents_size(); ++i) {
    if (actual.raw_input_contents(i) != expected.raw_input_contents(i)) {
      std::abort();
    }
  }
}

// The files of shared memory, registered as regions with the same names.
class SharedRegions {
 public:
  SharedRegions() {
    facts_.regions = std::make_unique<Regions>(folder_.files());
    for (const char* const name : {"a", "b"}) {
      inference::SystemSharedMemoryRegisterRequest request;
      request.set_name(name);
      request.set_key(name);
      request.set_byte_size(4096);
      if (!facts_.regions->Register(request).ok()) std::abort();
    }
  }

  SharedFiles* files() const { return folder_.files(); }
  Facts* facts() { return &facts_; }

 private:
  const SharedFolder folder_;
  Facts facts_;
};

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
  const bool stream = data[0] % 2 == 1;
  const Limits limits = SmallLimits();
  RopeCache cache(kCacheBytes);
  const absl::string_view rest = bytes.substr(kHeader);
  const std::size_t first =
      stream ? rest.size() * (256 - data[2]) / 256 : rest.size();
  RequestMessage one = Message(rest.substr(0, first), data[1] % 17);
  RequestMessage two = Message(rest.substr(first), data[1] % 17);
  CheckSplit(one);
  std::vector<RequestMessage*> messages = {&one};
  if (first < rest.size()) messages.push_back(&two);
  static SharedRegions shared;
  const MethodContext context = {&limits, &cache, {shared.files()}};
  try {
    RunHandler(StartInference(context, shared.facts(), stream).get(), messages);
  } catch (const std::bad_alloc&) {  // like Step
  } catch (const std::length_error&) {
  }
  return 0;
}
