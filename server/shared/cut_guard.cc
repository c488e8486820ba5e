#include "server/shared/cut_guard.h"

#include <signal.h>
#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <mutex>

namespace posenc::server {
namespace {

// The process has one handler for a signal, which may take no lock: so the
// table is the process's too, and its fields are atomic. A slot is free if
// `end` is 0.
struct Slot {
  std::atomic<std::uintptr_t> begin{0}, end{0}, page_bytes{0};
  std::atomic<bool> cut{false};
};
Slot slots[CutGuard::kMost];
std::mutex slots_mutex;  // of those who fill and free slots

static_assert(std::atomic<std::uintptr_t>::is_always_lock_free);

// Puts zeros from the page of `address` to the end of its mapping. False if it
// is in no mapping that is guarded.
bool PutZeros(std::uintptr_t address) {
  for (Slot& slot : slots) {
    const std::uintptr_t end = slot.end.load();
    const std::uintptr_t begin = slot.begin.load();
    const std::uintptr_t page_bytes = slot.page_bytes.load();
    // A slot that changes meanwhile is not the one in use here.
    if (end == 0 || slot.end.load() != end) continue;
    if (address < begin || address >= end) continue;
    slot.cut.store(true);
    const std::uintptr_t page = address & ~(page_bytes - 1);
    // Another thread may have done the same a moment ago, which does no harm.
    return mmap(reinterpret_cast<void*>(page), end - page,
                PROT_READ | PROT_WRITE,
                MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                0) != MAP_FAILED;
  }
  return false;
}

void Handle(int /*signal*/, siginfo_t* info, void* /*context*/) {
  const int error = errno;
  // A signal that somebody sent has no address.
  const bool is_fault = info->si_code > 0;
  if (!is_fault || !PutZeros(reinterpret_cast<std::uintptr_t>(info->si_addr))) {
    // What raised it is tried again, and then ends the process.
    signal(SIGBUS, SIG_DFL);
    if (!is_fault) raise(SIGBUS);
  }
  errno = error;
}

void Install() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action = {};
    action.sa_sigaction = Handle;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, nullptr);
  });
}

}  // namespace

CutGuard::CutGuard(void* begin, std::size_t bytes, std::size_t page_bytes) {
  Install();
  const auto first = reinterpret_cast<std::uintptr_t>(begin);
  const std::uintptr_t whole = (bytes + page_bytes - 1) & ~(page_bytes - 1);
  const std::lock_guard<std::mutex> lock(slots_mutex);
  for (std::size_t i = 0; i < kMost; ++i) {
    Slot& slot = slots[i];
    if (slot.end.load() != 0) continue;
    slot.cut.store(false);
    slot.page_bytes.store(page_bytes);
    slot.begin.store(first);
    slot.end.store(first + whole);
    slot_ = i;
    return;
  }
}

CutGuard::~CutGuard() {
  if (!guards()) return;
  const std::lock_guard<std::mutex> lock(slots_mutex);
  slots[slot_].end.store(0);
}

bool CutGuard::cut() const { return guards() && slots[slot_].cut.load(); }

}  // namespace posenc::server
