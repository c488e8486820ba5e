#include "posenc/shared_region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/connection/error_fields.h"

namespace posenc {
namespace {

std::string PathOf(const std::string& directory, const std::string& name) {
  return absl::StrCat(directory, "/", name);
}

// Accepts the names that the server accepts, which cannot lead out of the
// server's directory.
absl::Status CheckName(const std::string& name) {
  const bool letters = std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' ||
           c == '_' || c == '-';
  });
  if (letters && !name.empty() && name.size() <= 255 && name != "." &&
      name != "..") {
    return absl::OkStatus();
  }
  return WrongArgument(
      "name", absl::StrCat("is \"", absl::CHexEscape(name),
                           "\"; must be 1 to 255 letters, digits, '.', '_' and "
                           "'-', and not '.' or '..'"));
}

// Returns true if new files in the directory get the directory's group, as in a
// Kubernetes volume with an fsGroup.
bool IsGroupsOwn(const std::string& directory) {
  struct stat found = {};
  return stat(directory.c_str(), &found) == 0 && (found.st_mode & S_ISGID) != 0;
}

}  // namespace

absl::StatusOr<std::shared_ptr<SharedRegion>> SharedRegion::Create(
    const std::string& directory, const std::string& name, std::size_t bytes) {
  const absl::Status named = CheckName(name);
  if (!named.ok()) return named;
  const std::string path = PathOf(directory, name);
  const auto failed = [&path](int error, absl::string_view what) {
    return absl::Status(
        absl::ErrnoToStatusCode(error),
        absl::ErrnoToStatus(error, absl::StrCat(what, " ", path)).message());
  };
  const int file =
      open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return failed(errno, "cannot make");
  // From here on the region's destructor removes the file.
  const std::shared_ptr<SharedRegion> region(new SharedRegion(directory, name));
  // Allocates now, because client and server would get SIGBUS if the file
  // system were full later. An empty file cannot be allocated or mapped.
  int error =
      bytes == 0 ? 0 : posix_fallocate(file, 0, static_cast<off_t>(bytes));
  // Lets the group read and write. open() would apply the umask to the mode;
  // fchmod() does not.
  if (error == 0 && IsGroupsOwn(directory) && fchmod(file, 0660) != 0) {
    error = errno;
  }
  void* data = nullptr;
  int map_error = 0;
  if (error == 0 && bytes > 0) {
    data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    map_error = data == MAP_FAILED ? errno : 0;
  }
  close(file);
  if (error == ENOSPC || error == EFBIG) {
    return absl::ResourceExhaustedError(
        absl::StrCat(path, ": the file system has no ", bytes, " bytes left"));
  }
  if (error != 0) return failed(error, "cannot allocate");
  if (map_error != 0) return failed(map_error, "cannot map");
  region->bytes_ = absl::MakeSpan(static_cast<char*>(data), bytes);
  return region;
}

absl::StatusOr<std::shared_ptr<SharedRegion>> SharedRegion::CreatePrivate(
    std::size_t bytes) {
  const std::shared_ptr<SharedRegion> region(new SharedRegion("", ""));
  if (bytes == 0) return region;
  void* const data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for a region of ", bytes, " bytes"));
  }
  region->bytes_ = absl::MakeSpan(static_cast<char*>(data), bytes);
  return region;
}

SharedRegion::~SharedRegion() {
  if (!bytes_.empty()) munmap(bytes_.data(), bytes_.size());
  if (!name_.empty()) unlink(PathOf(directory_, name_).c_str());
}

}  // namespace posenc
