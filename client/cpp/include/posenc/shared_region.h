// Memory that client and server on one host both map, so that tensors in it
// need not be sent (C++17).
//
//   auto client = posenc::Client::Connect({"unix:/run/posenc.sock"});
//   auto region = client.MakeRegion(q_bytes);
//   args.q = posenc::ViewOf((*region)->Elements<float>(0, n), {1, S, H, D});
//   args.q_out = posenc::OutputTo((*region)->Elements<float>(0, n));
//   client.ApplyRope(args);  // rotates in place, nothing is copied
//
// For a view or output that lies completely within a region, the call sends
// only its place: the name of the region's file and an offset. If the server
// shares no memory with this client, the same calls send the bytes, and the
// results are the same.
//
// If an output is the memory of its input, the call must not be made twice, so
// the client never retries it. If such a call ends as INVALID_ARGUMENT,
// NOT_FOUND, PERMISSION_DENIED or UNIMPLEMENTED, it has not changed the tensor.
// After any other error the tensor may be rotated completely, partly or not at
// all: write it again. The message of the error gives this advice.

#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace posenc {

// A file in shared memory that this process has mapped. The destructor removes
// the file; the server does not keep it. All bytes are zero at first. Do not
// read or write bytes that a running call uses.
class SharedRegion {
 public:
  // Makes the file directory/name and allocates its full size. The mode is
  // 0600. If the directory has the set-group-ID bit, new files get the
  // directory's group, and the mode is 0660. INVALID_ARGUMENT if the name has
  // characters other than letters, digits, '.', '_' and '-'; ALREADY_EXISTS if
  // the file exists; RESOURCE_EXHAUSTED if the file system has too little
  // space; NOT_FOUND and similar errors if the directory cannot be used.
  // Client::MakeRegion gets the directory from the server.
  static absl::StatusOr<std::shared_ptr<SharedRegion>> Create(
      const std::string& directory, const std::string& name, std::size_t bytes);

  // Allocates private memory of this process, for servers without shared
  // memory. Calls send the bytes of tensors in private memory.
  // RESOURCE_EXHAUSTED if there is too little memory.
  static absl::StatusOr<std::shared_ptr<SharedRegion>> CreatePrivate(
      std::size_t bytes);

  ~SharedRegion();
  SharedRegion(const SharedRegion&) = delete;
  SharedRegion& operator=(const SharedRegion&) = delete;

  // Returns the file's name without its directory; empty if the region is
  // private.
  const std::string& name() const { return name_; }
  absl::Span<char> bytes() const { return bytes_; }

  // Returns `count` elements that begin at byte `offset`. Empty if `offset` is
  // not a multiple of their alignment, or if they do not lie within the region.
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
