// Has writes to sockets wait for others, by a function that stands in for
// gRPC's own: see server/rpc/held_writes.h. The linker sends the calls of it
// here (grpc_archives.cmake).
//
// docs/adr/0008-functions-of-grpc.md says what such functions depend on.

#include "server/rpc/held_writes.h"

struct grpc_closure;
struct grpc_endpoint;
struct grpc_slice_buffer;

namespace posenc::server {

// grpc_endpoint_write() in gRPC's src/core/lib/iomgr/endpoint.h: writes
// `slices`, which stay until `done` is called, as the endpoint does.
void GrpcWrite(grpc_endpoint* endpoint, grpc_slice_buffer* slices,
               grpc_closure* done, void* arg,
               int max_frame_bytes) __asm__("__real_" POSENC_ENDPOINT_WRITE);

void Write(grpc_endpoint* endpoint, grpc_slice_buffer* slices,
           grpc_closure* done, void* arg,
           int max_frame_bytes) __asm__("__wrap_" POSENC_ENDPOINT_WRITE);

void Write(grpc_endpoint* endpoint, grpc_slice_buffer* slices,
           grpc_closure* done, void* arg, int max_frame_bytes) {
  HeldWrites* const held = HeldWrites::ForNext();
  if (held == nullptr) {
    return GrpcWrite(endpoint, slices, done, arg, max_frame_bytes);
  }
  held->Hold([=] { GrpcWrite(endpoint, slices, done, arg, max_frame_bytes); });
}

}  // namespace posenc::server
