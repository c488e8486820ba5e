#include "server/shared_memory/cut_guard.h"

#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <functional>
#include <mutex>

namespace posenc::server {
namespace {

// The process has one handler for a signal, and the handler must not take a
// lock. So the table is global, and its fields are atomic. A slot is free if
// `end` is null.
struct Slot {
  std::atomic<char*> begin{nullptr}, end{nullptr};
  std::atomic<std::size_t> page_bytes{0};
  std::atomic<bool> cut{false};
};
Slot slots[CutGuard::kMost];
std::mutex slots_mutex;  // held to fill and free slots

static_assert(std::atomic<char*>::is_always_lock_free);

// Maps zeros from the page of `address` to the end of its mapping. Returns
// false if no guarded mapping contains the address.
bool PutZeros(char* address) {
  const std::less<const char*> before;
  for (Slot& slot : slots) {
    char* const end = slot.end.load();
    char* const begin = slot.begin.load();
    const std::size_t page_bytes = slot.page_bytes.load();
    // A slot that changes now does not belong to a mapping in use.
    if (end == nullptr || slot.end.load() != end) continue;
    if (before(address, begin) || !before(address, end)) continue;
    slot.cut.store(true);
    const auto offset = static_cast<std::size_t>(address - begin);
    char* const page = begin + (offset & ~(page_bytes - 1));
    // It is harmless if another thread has just mapped the same zeros.
    return mmap(page, static_cast<std::size_t>(end - page),
                PROT_READ | PROT_WRITE,
                MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                0) != MAP_FAILED;
  }
  return false;
}

void Handle(int /*signal*/, siginfo_t* info, void* /*context*/) {
  const int error = errno;
  // A signal that a process has sent has no address.
  const bool is_fault = info->si_code > 0;
  if (!is_fault || !PutZeros(static_cast<char*>(info->si_addr))) {
    // Restores the default action. The faulting instruction then runs again,
    // and ends the process.
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
  auto* const first = static_cast<char*>(begin);
  const std::size_t whole = (bytes + page_bytes - 1) & ~(page_bytes - 1);
  const std::lock_guard<std::mutex> lock(slots_mutex);
  for (std::size_t i = 0; i < kMost; ++i) {
    Slot& slot = slots[i];
    if (slot.end.load() != nullptr) continue;
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
  slots[slot_].end.store(nullptr);
}

bool CutGuard::cut() const { return guards() && slots[slot_].cut.load(); }

}  // namespace posenc::server
