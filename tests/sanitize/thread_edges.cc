// Tells ThreadSanitizer what it cannot see: how gRPC hands work from thread to
// thread.
//
// Debian's gRPC and abseil are built without the sanitizer. It sees none of
// their locks and atomics, so all that passes through them looks like a race.
// This file stands before their functions (and is linked into every test if
// the sanitizer is on) and adds the orders that those functions do establish:
//   absl::Mutex, absl::CondVar   who unlocks is before who locks next
//   batches of operations        who starts one, asks for a call, or shuts a
//                                queue down is before who comes back from the
//                                kernel, or from a queue, later
//   sockets                      who sends is before who receives later
//   slices                       who lets go of one, or has it sent, is before
//                                its memory is given back
// The last three are one point for the whole process: orders that there are not
// may be added (and races between such threads missed), none is left out.

#ifdef __SANITIZE_THREAD__

#include <dlfcn.h>
#include <sanitizer/tsan_interface.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <memory>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "grpc/grpc.h"
#include "grpc/slice.h"

namespace {

char wire;  // its address stands for all sockets, queues and slices

// The library's own function of that (mangled) name.
template <typename Function>
Function Real(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

// Who gives a slice's memory back.
struct SliceOwner {
  void (*destroy)(void*);
  void* user_data;

  static void Destroy(void* pointer) {
    const std::unique_ptr<SliceOwner> owner(static_cast<SliceOwner*>(pointer));
    __tsan_acquire(&wire);
    owner->destroy(owner->user_data);
  }
};

}  // namespace

namespace absl {
ABSL_NAMESPACE_BEGIN

void Mutex::Lock() {
  static const auto real =
      Real<void (*)(Mutex*)>("_ZN4absl7debian35Mutex4LockEv");
  real(this);
  __tsan_acquire(this);
}

bool Mutex::TryLock() {
  static const auto real =
      Real<bool (*)(Mutex*)>("_ZN4absl7debian35Mutex7TryLockEv");
  const bool locked = real(this);
  if (locked) __tsan_acquire(this);
  return locked;
}

void Mutex::Unlock() {
  static const auto real =
      Real<void (*)(Mutex*)>("_ZN4absl7debian35Mutex6UnlockEv");
  __tsan_release(this);
  real(this);
}

void CondVar::Wait(Mutex* mutex) {
  static const auto real = Real<void (*)(CondVar*, Mutex*)>(
      "_ZN4absl7debian37CondVar4WaitEPNS0_5MutexE");
  __tsan_release(mutex);
  real(this, mutex);
  __tsan_acquire(mutex);
}

bool CondVar::WaitWithTimeout(Mutex* mutex, Duration timeout) {
  static const auto real = Real<bool (*)(CondVar*, Mutex*, Duration)>(
      "_ZN4absl7debian37CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE");
  __tsan_release(mutex);
  const bool timed_out = real(this, mutex, timeout);
  __tsan_acquire(mutex);
  return timed_out;
}

ABSL_NAMESPACE_END
}  // namespace absl

extern "C" {

grpc_call_error grpc_call_start_batch(grpc_call* call, const grpc_op* ops,
                                      size_t count, void* tag, void* reserved) {
  static const auto real =
      Real<decltype(&grpc_call_start_batch)>("grpc_call_start_batch");
  __tsan_release(&wire);
  return real(call, ops, count, tag, reserved);
}

grpc_call_error grpc_server_request_call(grpc_server* server, grpc_call** call,
                                         grpc_call_details* details,
                                         grpc_metadata_array* metadata,
                                         grpc_completion_queue* bound,
                                         grpc_completion_queue* notified,
                                         void* tag) {
  static const auto real =
      Real<decltype(&grpc_server_request_call)>("grpc_server_request_call");
  __tsan_release(&wire);
  return real(server, call, details, metadata, bound, notified, tag);
}

grpc_event grpc_completion_queue_next(grpc_completion_queue* queue,
                                      gpr_timespec deadline, void* reserved) {
  static const auto real =
      Real<decltype(&grpc_completion_queue_next)>("grpc_completion_queue_next");
  const grpc_event event = real(queue, deadline, reserved);
  __tsan_acquire(&wire);
  return event;
}

grpc_event grpc_completion_queue_pluck(grpc_completion_queue* queue, void* tag,
                                       gpr_timespec deadline, void* reserved) {
  static const auto real = Real<decltype(&grpc_completion_queue_pluck)>(
      "grpc_completion_queue_pluck");
  const grpc_event event = real(queue, tag, deadline, reserved);
  __tsan_acquire(&wire);
  return event;
}

void grpc_completion_queue_shutdown(grpc_completion_queue* queue) {
  static const auto real = Real<decltype(&grpc_completion_queue_shutdown)>(
      "grpc_completion_queue_shutdown");
  __tsan_release(&wire);
  real(queue);
}

int grpc_completion_queue_thread_local_cache_flush(grpc_completion_queue* queue,
                                                   void** tag, int* ok) {
  static const auto real =
      Real<decltype(&grpc_completion_queue_thread_local_cache_flush)>(
          "grpc_completion_queue_thread_local_cache_flush");
  const int any = real(queue, tag, ok);
  __tsan_acquire(&wire);
  return any;
}

grpc_slice grpc_slice_new_with_user_data(void* data, size_t bytes,
                                         void (*destroy)(void*),
                                         void* user_data) {
  static const auto real = Real<decltype(&grpc_slice_new_with_user_data)>(
      "grpc_slice_new_with_user_data");
  return real(data, bytes, &SliceOwner::Destroy,
              new SliceOwner{destroy, user_data});
}

void grpc_slice_unref(grpc_slice slice) {
  static const auto real =
      Real<decltype(&grpc_slice_unref)>("grpc_slice_unref");
  __tsan_release(&wire);
  real(slice);
}

int epoll_wait(int poller, epoll_event* events, int most, int timeout) {
  static const auto real = Real<decltype(&epoll_wait)>("epoll_wait");
  const int count = real(poller, events, most, timeout);
  __tsan_acquire(&wire);
  return count;
}

ssize_t sendmsg(int socket, const msghdr* message, int flags) {
  static const auto real = Real<decltype(&sendmsg)>("sendmsg");
  __tsan_release(&wire);
  return real(socket, message, flags);
}

ssize_t recvmsg(int socket, msghdr* message, int flags) {
  static const auto real = Real<decltype(&recvmsg)>("recvmsg");
  const ssize_t bytes = real(socket, message, flags);
  __tsan_acquire(&wire);
  return bytes;
}

}  // extern "C"

#endif
