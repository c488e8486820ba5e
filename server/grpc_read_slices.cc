// Bounds what a connection keeps to be read into, by two functions that stand
// in for gRPC's own.
//
// Before gRPC 1.51 waits for a connection's next bytes, it allocates slices of
// 64 KiB for them: for as many bytes as came at once lately, up to 4 MiB, and
// no channel argument changes that (GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE is not
// looked at). A connection at rest keeps them for as long as it lasts. After
// one message of 60 MiB each, connections held 0.75 MiB on average. 400 clients
// with one of 32 MiB each left the process at 261 MiB, and 127 now.
//
// The loop that allocates (maybe_make_read_slices() in gRPC's
// src/core/lib/iomgr/tcp_posix.cc) calls two functions for each slice: one that
// makes it, and one that adds it to the buffer. The linker sends the calls of
// both here (grpc_archives.cmake). Of such a slice the first makes a
// placeholder, and the second puts memory in its place while the buffer has
// less than kMostRead, and else adds nothing. gRPC reads into what the buffer
// has, however little that is.
//
// docs/adr/0008-functions-of-grpc.md says what such functions depend on.

#include <cstddef>

#include "grpc/event_engine/memory_allocator.h"
#include "grpc/event_engine/memory_request.h"
#include "grpc/slice.h"
#include "grpc/slice_buffer.h"

namespace posenc::server {
namespace {

using grpc_event_engine::experimental::MemoryAllocator;
using grpc_event_engine::experimental::MemoryRequest;

// kBigAlloc in maybe_make_read_slices(). Nothing else in gRPC asks for slices
// of exactly this size.
constexpr std::size_t kSlice = 64 << 10;

// Unix sockets, one call of 64 and of 16 MiB at a time, medians of 9 rounds in
// turn: with 128 KiB 0.94 and 0.91 of the throughput that 4 MiB give, with
// 256 KiB 1.01 and 1.04 (no difference).
constexpr std::size_t kMostRead = 256 << 10;

// Is never read nor written: it is only known by its address.
const char placeholder[kSlice] = {};

}  // namespace

// The linker knows gRPC's X as __real_X, and what is called in its place as
// __wrap_X. A member function takes its object as its first argument.
grpc_slice GrpcMakeSlice(MemoryAllocator* self, MemoryRequest request) __asm__(
    "__real_" POSENC_MAKE_SLICE);
std::size_t GrpcAddIndexed(grpc_slice_buffer* buffer, grpc_slice slice) __asm__(
    "__real_" POSENC_ADD_INDEXED);

grpc_slice MakeSlice(MemoryAllocator* self, MemoryRequest request) __asm__(
    "__wrap_" POSENC_MAKE_SLICE);
std::size_t AddIndexed(grpc_slice_buffer* buffer,
                       grpc_slice slice) __asm__("__wrap_" POSENC_ADD_INDEXED);

grpc_slice MakeSlice(MemoryAllocator* self, MemoryRequest request) {
  if (request.min() != kSlice || request.max() != kSlice) {
    return GrpcMakeSlice(self, request);
  }
  return grpc_slice_from_static_buffer(placeholder, kSlice);
}

std::size_t AddIndexed(grpc_slice_buffer* buffer, grpc_slice slice) {
  if (GRPC_SLICE_START_PTR(slice) !=
      reinterpret_cast<const unsigned char*>(placeholder)) {
    return GrpcAddIndexed(buffer, slice);
  }
  // Who reads does not use the place that is returned.
  if (buffer->length >= kMostRead) return buffer->count;
  return GrpcAddIndexed(buffer, grpc_slice_malloc(kSlice));
}

}  // namespace posenc::server
