// Finds the tensors of a call that lie in the client's regions.

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "client/cpp/tensors/bulk_message.h"
#include "posenc/shared_region.h"
#include "posenc/v1/service.pb.h"

namespace posenc {

// Says which tensors of a unary call are passed as bytes; the other tensors are
// passed by their places in regions. Keeps these regions alive.
struct SharedParts {
  std::vector<TensorField> sent;  // tensors passed as bytes
  // True if an output overwrites an input. In this case the call must not be
  // made twice.
  bool in_place = false;
  std::vector<std::shared_ptr<SharedRegion>>
      owners;  // empty: nothing is shared
};

// Safe for any number of threads.
class Regions {
 public:
  void Add(const std::shared_ptr<SharedRegion>& region);

  // False if no tensor can lie in a region.
  bool any() const { return on_.load(); }

  // Makes this object find no tensors until the next Add(), because the server
  // shares no memory with this client.
  void SwitchOff() { on_.store(false); }

  // Sets in `request` the tensors and outputs that lie in regions. The place of
  // an output is passed only if the output has exactly the size of the result.
  SharedParts Share(absl::Span<const TensorField> fields,
                    absl::Span<const WantedTensor> wanted,
                    const google::protobuf::Message& response,
                    google::protobuf::Message* request);

  // Returns the size in bytes of all tensors that lie in regions, and so are
  // not sent.
  std::int64_t SharedBytes(absl::Span<const TensorField> fields);

 private:
  struct Found {
    std::shared_ptr<SharedRegion> region;
    v1::SharedMemory place;
  };
  absl::optional<Found> Find(absl::Span<const char> bytes);
  absl::optional<Found> FindTensor(const TensorView& view);

  std::atomic<bool> on_{false};
  std::mutex mutex_;
  std::vector<std::weak_ptr<SharedRegion>> regions_;
};

}  // namespace posenc
