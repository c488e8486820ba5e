#include "server/rpc/held_writes.h"

#include "grpc/byte_buffer.h"
#include "grpc/slice.h"

namespace posenc::server {
namespace {

thread_local HeldWrites* of_thread = nullptr;
thread_local bool allowed_now = false;

}  // namespace

HeldWrites::HeldWrites() { of_thread = this; }

HeldWrites::~HeldWrites() {
  Release();
  of_thread = nullptr;
}

HeldWrites::Allowed::Allowed(bool allowed) {
  allowed_now = allowed && of_thread != nullptr;
}

HeldWrites::Allowed::~Allowed() { allowed_now = false; }

HeldWrites* HeldWrites::ForNext() {
  if (!std::exchange(allowed_now, false)) return nullptr;
  return std::exchange(of_thread->begun_, true) ? of_thread : nullptr;
}

// gRPC's functions expect its own context around them, which destroying a
// buffer makes; it ends when all that follows has been done.
void HeldWrites::Release() {
  begun_ = false;
  if (held_.empty()) return;
  static char nothing = 0;
  grpc_slice slice = grpc_slice_new_with_user_data(
      &nothing, sizeof(nothing),
      [](void* held) {
        for (const auto& write :
             *static_cast<std::vector<std::function<void()>>*>(held)) {
          write();
        }
      },
      &held_);
  grpc_byte_buffer* const buffer = grpc_raw_byte_buffer_create(&slice, 1);
  grpc_slice_unref(slice);
  grpc_byte_buffer_destroy(buffer);
  held_.clear();
}

}  // namespace posenc::server
