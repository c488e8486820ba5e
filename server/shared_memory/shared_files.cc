#include "server/shared_memory/shared_files.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "server/base/errors.h"
#include "server/base/machine.h"

namespace posenc::server {
namespace {

constexpr char kPrefixFlag[] = "--shared-memory-prefix";

// Longest name of a file, in bytes (NAME_MAX).
constexpr std::size_t kLongestName = 255;

// Limit for the files in the cache: half of CutGuard's slots. Files that the
// cache has dropped also need slots while calls use them.
constexpr std::size_t kMostFiles = CutGuard::kMost / 2;

constexpr absl::Duration kUnused = absl::Minutes(1);

// All unusable files have the same error, so that callers cannot find out which
// other files exist.
absl::Status NoSuchFile() {
  return core::MakeError(
      absl::StatusCode::kNotFound, core::ErrorReason::kSharedMemoryUnavailable,
      "name",
      "no such file in shared memory, or none that this server may use");
}

absl::Status Full() {
  return core::Prefixed(
      "name", OverBudget("other files take all of the shared memory that this "
                         "server may map (--shared-memory-bytes)"));
}

bool IsName(absl::string_view name) {
  return !name.empty() && name.size() <= kLongestName && name != "." &&
         name != ".." &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-';
         });
}

bool HasDots(absl::string_view directory) {
  return absl::StrContains(directory, "/../") ||
         absl::StrContains(directory, "/./");
}

bool IsSame(const struct stat& one, const struct stat& other) {
  return one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

bool IsUnchanged(const struct stat& one, const struct stat& other) {
  return IsSame(one, other) && one.st_size == other.st_size &&
         one.st_uid == other.st_uid && one.st_nlink == other.st_nlink;
}

// Parses a user ID. (uid_t)-1 is not a user.
bool ParseUid(absl::string_view text, uid_t* uid) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), absl::ascii_isdigit) &&
         absl::SimpleAtoi(text, uid) &&
         *uid != std::numeric_limits<uid_t>::max();
}

// Refuses other flags for shared memory without kPrefixFlag.
absl::Status CheckOff(const SharedMemoryOptions& options) {
  const auto useless = [](absl::string_view flag) {
    return core::FieldInvalid(flag, "is of no use without ", kPrefixFlag);
  };
  if (options.from != SharedMemoryOptions().from) {
    return useless("--shared-memory-from");
  }
  if (!options.uids.empty()) return useless("--shared-memory-uid");
  if (options.bytes != 0) return useless("--shared-memory-bytes");
  return absl::OkStatus();
}

}  // namespace

SharedFile::~SharedFile() {
  guard_.reset();
  if (data_ == nullptr) return;
  munmap(data_, bytes_);
  mapped_->fetch_sub(static_cast<std::int64_t>(bytes_));
}

absl::StatusOr<std::unique_ptr<SharedFiles>> SharedFiles::Open(
    const SharedMemoryOptions& options) {
  if (options.prefix.empty()) {
    RETURN_IF_ERROR(CheckOff(options));
    return nullptr;
  }
  const auto wrong = [&options](absl::string_view fact) {
    return core::FieldInvalid(kPrefixFlag, "'", options.prefix, "' ", fact);
  };
  if (!absl::StartsWith(options.prefix, "/")) {
    return wrong(
        "is not absolute; give a path prefix such as /dev/shm/posenc_");
  }
  const std::size_t slash = options.prefix.rfind('/');
  const std::string directory = options.prefix.substr(0, slash + 1);
  if (HasDots(directory)) return wrong("has '.' or '..' in its directory");
  std::unique_ptr<SharedFiles> files(new SharedFiles());
  files->directory_name_ = slash == 0 ? directory : directory.substr(0, slash);
  files->prefix_ = options.prefix.substr(slash + 1);
  if (!files->prefix_.empty() && !IsName(files->prefix_ + "x")) {
    return wrong(
        "is no prefix of a file name; use letters, digits, '.', '_' and '-', "
        "or end it with '/' for all names");
  }
  files->directory_ =
      Descriptor(open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  struct statfs kind = {};
  if (!files->directory_.valid() ||
      fstatfs(files->directory_.get(), &kind) != 0) {
    return wrong(absl::StrCat("has a directory that cannot be used, ",
                              directory, ": ", std::strerror(errno)));
  }
  // Files on a disk would stall compute threads, and a disk may contain files
  // that must not be read.
  const bool huge = kind.f_type == HUGETLBFS_MAGIC;
  if (kind.f_type != TMPFS_MAGIC && !huge) {
    return wrong(absl::StrCat(
        "has a directory that is not on tmpfs or hugetlbfs, ", directory));
  }
  files->page_bytes_ =
      static_cast<std::size_t>(huge ? kind.f_bsize : sysconf(_SC_PAGESIZE));
  files->loopback_ = options.from == "loopback";
  files->uids_.push_back(geteuid());
  for (const std::string& text : options.uids) {
    uid_t uid = 0;
    if (!ParseUid(text, &uid)) {
      return core::FieldInvalid("--shared-memory-uid", "'", text,
                                "' is no user id such as 1000");
    }
    files->uids_.push_back(uid);
  }
  files->limit_ = options.bytes > 0 ? options.bytes : UsableMemory() / 4;
  return files;
}

absl::Status SharedFiles::NotAllowed() const {
  return core::MakeError(
      absl::StatusCode::kPermissionDenied,
      core::ErrorReason::kSharedMemoryUnavailable, "",
      loopback_ ? "shared memory is for callers on this host"
                : "shared memory is for callers over unix sockets");
}

absl::StatusOr<SharedPlace> SharedFiles::Map(absl::string_view name,
                                             absl::int128 offset,
                                             absl::uint128 bytes) {
  ASSIGN_OR_RETURN(std::shared_ptr<SharedFile> file, Find(name));
  const std::size_t size = file->bytes();
  if (offset < 0) {
    return core::FieldInvalid("offset", "is negative; a file begins at 0");
  }
  const absl::uint128 first = static_cast<absl::uint128>(offset);
  if (first > size || bytes > size - first) {
    return core::FieldInvalid("offset", ToString(bytes), " bytes from ",
                              ToString(first), " on are not within the file's ",
                              size);
  }
  SharedPlace place;
  place.file = std::move(file);
  place.offset = static_cast<std::size_t>(first);
  place.bytes = static_cast<std::size_t>(bytes);
  return place;
}

absl::StatusOr<std::shared_ptr<SharedFile>> SharedFiles::Find(
    absl::string_view name) {
  if (!IsName(name)) {
    return core::FieldInvalid(
        "name",
        "is no name of a file; use 1 to 255 letters, digits, '.', '_' and '-'");
  }
  if (!absl::StartsWith(name, prefix_)) return NoSuchFile();
  const Descriptor file(
      openat(directory_.get(), std::string(name).c_str(),
             O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  struct stat stat = {};
  if (!file.valid() || fstat(file.get(), &stat) != 0 ||
      !S_ISREG(stat.st_mode) || stat.st_nlink != 1 ||
      std::find(uids_.begin(), uids_.end(), stat.st_uid) == uids_.end()) {
    return NoSuchFile();
  }
  return MapFile(name, file, stat);
}

absl::StatusOr<std::shared_ptr<SharedFile>> SharedFiles::MapFile(
    absl::string_view name, const Descriptor& file, const struct stat& stat) {
  Files dropped;  // unmapped without the lock, because that takes time
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto known = std::find_if(
      files_.begin(), files_.end(),
      [&stat](const auto& mapped) { return IsSame(mapped->stat_, stat); });
  if (known != files_.end()) {
    if (!(*known)->cut() && IsUnchanged((*known)->stat_, stat)) {
      (*known)->used_ = absl::Now();
      (*known)->name_ = std::string(name);
      return *known;
    }
    dropped.push_back(std::move(*known));
    files_.erase(known);
  }
  RETURN_IF_ERROR(
      CheckSize("name", "file", static_cast<std::uint64_t>(stat.st_size),
                limit_, "share smaller files, or raise --shared-memory-bytes"));
  if (!MakeRoom(stat.st_size, &dropped)) return Full();
  std::shared_ptr<SharedFile> mapped(new SharedFile());
  mapped->name_ = std::string(name);
  mapped->stat_ = stat;
  mapped->used_ = absl::Now();
  if (stat.st_size > 0) {
    const auto bytes = static_cast<std::size_t>(stat.st_size);
    void* const data =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    if (data == MAP_FAILED) return Full();
    mapped->data_ = data;
    mapped->bytes_ = bytes;
    mapped->mapped_ = mapped_;
    mapped_->fetch_add(stat.st_size);
    mapped->guard_ = std::make_unique<CutGuard>(data, bytes, page_bytes_);
    if (!mapped->guard_->guards()) return Full();
  }
  files_.push_back(mapped);
  return mapped;
}

bool SharedFiles::MakeRoom(std::int64_t bytes, Files* out) {
  // Files in `out` are still mapped, but are unmapped soon if no call uses
  // them.
  std::int64_t mapped = mapped_->load();
  for (const std::shared_ptr<SharedFile>& dropped : *out) {
    if (dropped.use_count() == 1) {
      mapped -= static_cast<std::int64_t>(dropped->bytes());
    }
  }
  while (mapped > limit_ - bytes || files_.size() >= kMostFiles) {
    auto oldest = files_.end();
    for (auto at = files_.begin(); at != files_.end(); ++at) {
      // A count of 1 means that no call uses the file, because calls get
      // references only under the lock.
      if (at->use_count() > 1) continue;
      if (oldest == files_.end() || (*at)->used_ < (*oldest)->used_) {
        oldest = at;
      }
    }
    if (oldest == files_.end()) return false;
    mapped -= static_cast<std::int64_t>((*oldest)->bytes());
    out->push_back(std::move(*oldest));
    files_.erase(oldest);
  }
  return true;
}

bool SharedFiles::WasCut(const SharedFile& file) const {
  if (file.data_ == nullptr) return false;
  if (file.cut()) return true;
  struct stat stat = {};
  std::string name;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    name = file.name_;
  }
  return fstatat(directory_.get(), name.c_str(), &stat, AT_SYMLINK_NOFOLLOW) ==
             0 &&
         IsSame(stat, file.stat_) && stat.st_size < file.stat_.st_size;
}

void SharedFiles::Sweep(absl::Time now) {
  Files dropped;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto at = files_.begin(); at != files_.end();) {
    SharedFile& file = **at;
    struct stat stat = {};
    const bool stays = fstatat(directory_.get(), file.name_.c_str(), &stat,
                               AT_SYMLINK_NOFOLLOW) == 0 &&
                       IsUnchanged(stat, file.stat_) && !file.cut() &&
                       (at->use_count() > 1 || now - file.used_ <= kUnused);
    if (stays) {
      ++at;
      continue;
    }
    dropped.push_back(std::move(*at));
    at = files_.erase(at);
  }
}

}  // namespace posenc::server
