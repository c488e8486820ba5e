// Memory that client and server on one host both map, so that tensors in it
// need not be sent (C++17).
//
//   auto client = posenc::Client::Connect({"unix:/run/posenc.sock"});
//   auto region = client.MakeRegion(q_bytes);
//   args.q = posenc::ViewOf((*region)->Elements<float>(0, n), {1, S, H, D});
//   args.q_out = posenc::OutputTo((*region)->Elements<float>(0, n));
//   client.ApplyRope(args);  // rotates in place, nothing is copied
//
// For a view or output that lies completely within a region, the call passes
// only its place. If the server shares no memory with this client, the same
// calls send the bytes, and the results are the same.
//
// A call in place must not be made twice, so it is never retried. If it ends as
// INVALID_ARGUMENT, NOT_FOUND, PERMISSION_DENIED, UNIMPLEMENTED or ABORTED,
// nothing was done. After any other error the tensor may be rotated completely,
// partly or not at all: write it again. The error's message says this.

#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace posenc {

// A file in shared memory that is mapped here. It is removed when the region is
// destroyed; the server does not keep it. Its bytes are zeros at first. Do not
// touch bytes that a call is reading or writing.
class SharedRegion {
 public:
  // Makes the file directory/name, of its full size. Its mode is 0600, or 0660
  // in a directory that gives its files its group (set-group-ID).
  // INVALID_ARGUMENT if the name has other characters than letters, digits,
  // '.', '_' and '-'; ALREADY_EXISTS; RESOURCE_EXHAUSTED if the file system has
  // too little space; NOT_FOUND and the like if the directory cannot be used.
  // Client::MakeRegion gets the directory from the server.
  static absl::StatusOr<std::shared_ptr<SharedRegion>> Create(
      const std::string& directory, const std::string& name, std::size_t bytes);

  // Makes memory of this process alone, for servers without shared memory:
  // tensors in it are sent. RESOURCE_EXHAUSTED if there is too little.
  static absl::StatusOr<std::shared_ptr<SharedRegion>> CreatePrivate(
      std::size_t bytes);

  ~SharedRegion();
  SharedRegion(const SharedRegion&) = delete;
  SharedRegion& operator=(const SharedRegion&) = delete;

  // Returns the file's name without its directory; empty if the region is
  // private.
  const std::string& name() const { return name_; }
  absl::Span<char> bytes() const { return bytes_; }

  // Returns the elements from byte `offset` on, a multiple of the element's
  // alignment; empty if they are not within the region.
  template <typename T>
  absl::Span<T> Elements(std::size_t offset, std::size_t count) const {
    if (offset % alignof(T) != 0 || offset > bytes_.size() ||
        count > (bytes_.size() - offset) / sizeof(T)) {
      return {};
    }
    return absl::MakeSpan(reinterpret_cast<T*>(bytes_.data() + offset), count);
  }

 private:
  SharedRegion(std::string directory, std::string name)
      : directory_(std::move(directory)), name_(std::move(name)) {}

  const std::string directory_, name_;
  absl::Span<char> bytes_;
};

}  // namespace posenc
