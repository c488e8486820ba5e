// Allowed files, their mappings, and truncated files.

#include "server/shared_memory/shared_files.h"

#include <grp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "core/base/error.h"
#include "gmock/gmock.h"
#include "tests/fixtures/shared_memory.h"

namespace posenc::server {
namespace {

using test::kSharedDirectory;
using test::SharedMemoryFile;
using testing::HasSubstr;

constexpr std::size_t kPage = 4096;

SharedMemoryOptions Options() {
  SharedMemoryOptions options;
  options.prefix = kSharedDirectory + test::SharedPrefix();
  return options;
}

std::unique_ptr<SharedFiles> Files(
    const SharedMemoryOptions& options = Options()) {
  auto files = SharedFiles::Open(options);
  EXPECT_TRUE(files.ok()) << files.status();
  return files.ok() ? *std::move(files) : nullptr;
}

std::string PathOf(const std::string& name) { return kSharedDirectory + name; }

TEST(SharedFilesTest, NoPrefixIsOff) {
  const auto files = SharedFiles::Open({});
  ASSERT_TRUE(files.ok());
  EXPECT_EQ(*files, nullptr);
}

TEST(SharedFilesTest, RefusesOptionsThatAreWrong) {
  struct Case {
    SharedMemoryOptions options;
    const char* flag;
    const char* says;
  };
  const std::string good = Options().prefix;
  const Case cases[] = {
      {{.prefix = "dev/shm/x"}, "--shared-memory-prefix", "not absolute"},
      {{.prefix = "x"}, "--shared-memory-prefix", "not absolute"},
      {{.prefix = "/dev/shm/../shm/x"}, "--shared-memory-prefix", "'..'"},
      {{.prefix = "/dev/shm/./x"}, "--shared-memory-prefix", "'..'"},
      {{.prefix = "/dev/shm/x y"}, "--shared-memory-prefix", "letters"},
      {{.prefix = "/dev/shm/" + std::string(255, 'x')},
       "--shared-memory-prefix",
       "letters"},
      {{.prefix = "/dev/nosuch/x"}, "--shared-memory-prefix", "No such file"},
      {{.prefix = "/dev/null/x"}, "--shared-memory-prefix", "Not a directory"},
      {{.prefix = "/proc/x"}, "--shared-memory-prefix", "tmpfs"},
      {{.prefix = good, .uids = {"me"}}, "--shared-memory-uid", "'me'"},
      {{.prefix = good, .uids = {"-1"}}, "--shared-memory-uid", "'-1'"},
      {{.prefix = good, .uids = {"4294967295"}}, "--shared-memory-uid", "429"},
      {{.prefix = good, .uids = {" 1"}}, "--shared-memory-uid", "' 1'"},
      {{.from = "loopback"}, "--shared-memory-from", "no use"},
      {{.uids = {"1"}}, "--shared-memory-uid", "no use"},
      {{.bytes = 1}, "--shared-memory-bytes", "no use"},
  };
  for (const Case& each : cases) {
    const absl::Status status = SharedFiles::Open(each.options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                testing::StartsWith(std::string(each.flag) + ": "));
    EXPECT_THAT(std::string(status.message()), HasSubstr(each.says));
  }
}

TEST(SharedFilesTest, PeersOnUnixSocketsMayAlwaysAndOthersIfAskedFor) {
  const auto unix_only = Files();
  SharedMemoryOptions options = Options();
  options.from = "loopback";
  const auto loopback = Files(options);
  for (const char* peer : {"unix:", "unix:/run/x", "unix-abstract:x"}) {
    EXPECT_TRUE(unix_only->Allows(PeerKindOf(peer))) << peer;
    EXPECT_TRUE(loopback->Allows(PeerKindOf(peer))) << peer;
  }
  for (const char* peer :
       {"ipv4:127.0.0.1:1", "ipv4:127.9.9.9:1", "ipv6:[::1]:1",
        "ipv6:%5B::1%5D:1", "ipv6:%5B::ffff:127.0.0.1%5D:1"}) {
    EXPECT_FALSE(unix_only->Allows(PeerKindOf(peer))) << peer;
    EXPECT_TRUE(loopback->Allows(PeerKindOf(peer))) << peer;
  }
  for (const char* peer : {"ipv4:10.0.0.1:1", "ipv4:12.7.0.1:1",
                           "ipv6:[::11]:1", "inproc", "unknown", ""}) {
    EXPECT_FALSE(loopback->Allows(PeerKindOf(peer))) << peer;
  }
  EXPECT_EQ(loopback->NotAllowed().code(), absl::StatusCode::kPermissionDenied);
}

TEST(SharedFilesTest, RefusesInvalidNames) {
  const auto files = Files();
  for (const std::string& name :
       {std::string(), std::string("."), std::string(".."),
        std::string("../etc"), std::string("a/b"), std::string("/a"),
        std::string("a b"), std::string("a\0b", 3), std::string("\xc3\xa4"),
        std::string(256, 'a')}) {
    const auto place = files->Map(name, 0, 0);
    EXPECT_EQ(place.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(core::GetErrorDetails(place.status())->field, "name");
  }
}

// An existing file that may not be used gives the same error as a missing file.
TEST(SharedFilesTest, UnusableFilesAreTheSameNotFound) {
  const auto files = Files();
  const std::string prefix = test::SharedPrefix();
  SharedMemoryFile outside(kPage, "posenc_outside_" + std::to_string(getpid()));
  SharedMemoryFile target(kPage);
  const std::string link = test::SharedName(), directory = test::SharedName(),
                    fifo = test::SharedName(), socket_name = test::SharedName();
  ASSERT_EQ(symlink(target.path().c_str(), PathOf(link).c_str()), 0);
  ASSERT_EQ(mkdir(PathOf(directory).c_str(), 0700), 0);
  ASSERT_EQ(mkfifo(PathOf(fifo).c_str(), 0600), 0);
  const int bound = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof(address.sun_path), "%s",
                PathOf(socket_name).c_str());
  ASSERT_EQ(bind(bound, reinterpret_cast<sockaddr*>(&address), sizeof(address)),
            0);
  SharedMemoryFile twice(kPage);
  const std::string second = test::SharedName();
  ASSERT_EQ(::link(twice.path().c_str(), PathOf(second).c_str()), 0);

  std::set<std::string> texts;
  for (const std::string& name :
       {outside.name(), prefix + "nothing", link, directory, fifo, socket_name,
        twice.name(), second}) {
    const auto place = files->Map(name, 0, 1);
    EXPECT_EQ(place.status().code(), absl::StatusCode::kNotFound) << name;
    EXPECT_EQ(core::GetErrorDetails(place.status())->reason,
              core::ErrorReason::kSharedMemoryUnavailable);
    EXPECT_THAT(std::string(place.status().message()),
                testing::Not(HasSubstr(prefix)));
    texts.insert(std::string(place.status().message()));
  }
  EXPECT_EQ(texts.size(), 1u);
  EXPECT_TRUE(files->Map(target.name(), 0, 1).ok());

  close(bound);
  for (const std::string& name : {link, fifo, socket_name, second}) {
    unlink(PathOf(name).c_str());
  }
  rmdir(PathOf(directory).c_str());
}

// Only root can change a file's owner.
TEST(SharedFilesTest, FilesOfOthersAreUsedIfTheirOwnerIsTrusted) {
  if (geteuid() != 0) {
    SharedMemoryFile mine(kPage);
    EXPECT_TRUE(Files()->Map(mine.name(), 0, 1).ok());
    return;
  }
  SharedMemoryFile file(kPage);
  ASSERT_EQ(fchown(file.fd(), 4711, 4711), 0);
  EXPECT_EQ(Files()->Map(file.name(), 0, 1).status().code(),
            absl::StatusCode::kNotFound);
  SharedMemoryOptions options = Options();
  options.uids = {"4711"};
  EXPECT_TRUE(Files(options)->Map(file.name(), 0, 1).ok());
}

// Returns the result of `function`, 0 to 255, in a process of another user with
// these groups.
template <typename Function>
int AsUser(uid_t user, const std::vector<gid_t>& groups, Function function) {
  const pid_t child = fork();
  if (child == 0) {
    const bool changed = setgroups(groups.size(), groups.data()) == 0 &&
                         setresgid(user, user, user) == 0 &&
                         setresuid(user, user, user) == 0;
    _exit(changed ? function() : 255);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

// Two containers of different users share a volume that has an fsGroup: new
// files get the directory's group. A file's owner must be trusted by number,
// and its mode must let the server's group read and write.
TEST(SharedFilesTest, FilesOfAGroupAreUsedIfOwnerAndModeAllowIt) {
  if (geteuid() != 0) {  // only root can become two users
    SharedMemoryFile mine(kPage);
    EXPECT_TRUE(Files()->Map(mine.name(), 0, 1).ok());
    return;
  }
  constexpr uid_t kApplication = 4711, kServer = 4712;
  constexpr gid_t kGroup = 4713;
  const std::string directory = kSharedDirectory + test::SharedName();
  const std::string path = directory + "/x";
  ASSERT_EQ(mkdir(directory.c_str(), 0777), 0);
  ASSERT_EQ(chown(directory.c_str(), 0, kGroup), 0);
  ASSERT_EQ(chmod(directory.c_str(), 02777), 0);  // as in kubelet
  struct Case {
    mode_t mode;
    std::vector<std::string> trusted;
    std::vector<gid_t> groups;  // the server's
    bool good;
  };
  const std::string owner = std::to_string(kApplication);
  const Case cases[] = {
      {0660, {owner}, {kGroup}, true},   {0660, {}, {kGroup}, false},
      {0660, {"4714"}, {kGroup}, false}, {0660, {owner}, {}, false},
      {0640, {owner}, {kGroup}, false},  {0600, {owner}, {kGroup}, false},
  };
  for (const Case& each : cases) {
    ASSERT_EQ(AsUser(kApplication, {kGroup},
                     [&] {
                       const int file =
                           open(path.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
                       return file >= 0 && ftruncate(file, kPage) == 0 &&
                                      fchmod(file, each.mode) == 0
                                  ? 0
                                  : 1;
                     }),
              0);
    const int code = AsUser(kServer, each.groups, [&] {
      SharedMemoryOptions options;
      options.prefix = directory + "/";
      options.uids = each.trusted;
      const auto files = SharedFiles::Open(options);
      if (!files.ok()) return 254;
      const auto place = (*files)->Map("x", 0, kPage);
      if (place.ok()) place->data()[0] = 'a';
      return static_cast<int>(place.status().code());
    });
    EXPECT_EQ(code, static_cast<int>(each.good ? absl::StatusCode::kOk
                                               : absl::StatusCode::kNotFound))
        << std::oct << each.mode;
    EXPECT_EQ(unlink(path.c_str()), 0);
  }
  EXPECT_EQ(rmdir(directory.c_str()), 0);
}

TEST(SharedFilesTest, RefusesRangesOutsideTheFile) {
  const auto files = Files();
  SharedMemoryFile file(kPage + 1);
  const absl::uint128 huge = absl::MakeUint128(1, 0);
  struct Case {
    absl::int128 offset;
    absl::uint128 bytes;
  };
  for (const Case& each : std::initializer_list<Case>{
           {-1, 1},
           {std::numeric_limits<std::int64_t>::min(), 1},
           {0, kPage + 2},
           {kPage + 1, 1},
           {kPage + 2, 0},
           {1, ~std::uint64_t{0}},
           {std::numeric_limits<std::int64_t>::max(), ~std::uint64_t{0}},
           {0, huge}}) {
    const auto place = files->Map(file.name(), each.offset, each.bytes);
    EXPECT_EQ(place.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(core::GetErrorDetails(place.status())->field, "offset");
  }
  EXPECT_TRUE(files->Map(file.name(), 0, kPage + 1).ok());
  EXPECT_TRUE(files->Map(file.name(), kPage, 1).ok());
  EXPECT_TRUE(files->Map(file.name(), kPage + 1, 0).ok());
}

TEST(SharedFilesTest, AnEmptyFileHoldsEmptyTensors) {
  const auto files = Files();
  SharedMemoryFile file(0);
  EXPECT_TRUE(files->Map(file.name(), 0, 0).ok());
  EXPECT_FALSE(files->Map(file.name(), 0, 1).ok());
}

TEST(SharedFilesTest, MapsAFileOnceAndSeesTheSameBytes) {
  const auto files = Files();
  SharedMemoryFile file(kPage);
  const auto one = files->Map(file.name(), 0, 1);
  const auto other = files->Map(file.name(), 7, 1);
  ASSERT_TRUE(one.ok() && other.ok());
  EXPECT_EQ(one->file, other->file);
  file.data()[7] = 'x';
  EXPECT_EQ(*other->data(), 'x');
  *other->data() = 'y';
  EXPECT_EQ(file.data()[7], 'y');
  EXPECT_EQ(files->mapped_bytes(), static_cast<std::int64_t>(kPage));
}

// The file's current size counts.
TEST(SharedFilesTest, MapsAFileAnewThatHasGrownOrWasReplaced) {
  const auto files = Files();
  auto file = std::make_unique<SharedMemoryFile>(kPage);
  const std::string name = file->name();
  const auto before = files->Map(name, 0, 1);
  ASSERT_EQ(ftruncate(file->fd(), 2 * kPage), 0);
  const auto grown = files->Map(name, kPage, kPage);
  ASSERT_TRUE(before.ok() && grown.ok());
  EXPECT_NE(before->file, grown->file);
  EXPECT_TRUE(before->file->IsSameFile(*grown->file));
  ASSERT_EQ(ftruncate(file->fd(), 10), 0);
  EXPECT_FALSE(files->Map(name, 0, kPage).ok());
  file.reset();
  EXPECT_EQ(files->Map(name, 0, 1).status().code(),
            absl::StatusCode::kNotFound);
  SharedMemoryFile other(kPage, name);
  other.data()[0] = 'n';
  const auto replaced = files->Map(name, 0, 1);
  ASSERT_TRUE(replaced.ok());
  EXPECT_FALSE(before->file->IsSameFile(*replaced->file));
  EXPECT_EQ(*replaced->data(), 'n');
}

TEST(SharedFilesTest, MapsNoMoreThanTheLimitAndDropsTheLeastRecentlyUsed) {
  SharedMemoryOptions options = Options();
  options.bytes = 2 * kPage;
  const auto files = Files(options);
  SharedMemoryFile a(kPage), b(kPage), c(kPage), large(2 * kPage + 1);
  const auto refused = files->Map(large.name(), 0, 1).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(core::GetErrorDetails(refused)->reason,
            core::ErrorReason::kMessageTooLarge);

  auto held = files->Map(a.name(), 0, 1);
  ASSERT_TRUE(held.ok());
  ASSERT_TRUE(files->Map(b.name(), 0, 1).ok());
  auto other = files->Map(c.name(), 0, 1);  // instead of b
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(files->mapped_bytes(), static_cast<std::int64_t>(2 * kPage));
  const auto full = files->Map(b.name(), 0, 1).status();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(core::GetErrorDetails(full)->reason,
            core::ErrorReason::kOverloaded);
  *other->data() = 1;  // still mapped
  other->file.reset();
  EXPECT_TRUE(files->Map(b.name(), 0, 1).ok());
}

TEST(SharedFilesTest, AFileThatIsMappedAgainIsRecentlyUsed) {
  SharedMemoryOptions options = Options();
  options.bytes = 2 * kPage;
  const auto files = Files(options);
  SharedMemoryFile a(kPage), b(kPage), c(kPage);
  const auto map = [&files](const SharedMemoryFile& file) {
    return std::weak_ptr<SharedFile>(files->Map(file.name(), 0, 1)->file);
  };
  const auto of_a = map(a), of_b = map(b);
  map(a);
  map(c);
  EXPECT_FALSE(of_a.expired());
  EXPECT_TRUE(of_b.expired());
}

TEST(SharedFilesTest, KeepsSixtyFourMappings) {
  const auto files = Files();
  std::vector<std::unique_ptr<SharedMemoryFile>> all;
  for (int i = 0; i < 70; ++i) {
    all.push_back(std::make_unique<SharedMemoryFile>(kPage));
    EXPECT_TRUE(files->Map(all.back()->name(), 0, 1).ok());
  }
  EXPECT_EQ(files->mapped_bytes(), static_cast<std::int64_t>(64 * kPage));
}

TEST(SharedFilesTest, SweepsFilesThatAreGoneOrUnused) {
  const auto files = Files();
  auto file = std::make_unique<SharedMemoryFile>(kPage);
  SharedMemoryFile stays(kPage);
  ASSERT_TRUE(files->Map(file->name(), 0, 1).ok());
  ASSERT_TRUE(files->Map(stays.name(), 0, 1).ok());
  files->Sweep(absl::Now());
  EXPECT_EQ(files->mapped_bytes(), static_cast<std::int64_t>(2 * kPage));
  file.reset();
  files->Sweep(absl::Now());
  EXPECT_EQ(files->mapped_bytes(), static_cast<std::int64_t>(kPage));
  auto place = files->Map(stays.name(), 0, 1);
  files->Sweep(absl::Now() + absl::Hours(1));
  EXPECT_EQ(files->mapped_bytes(), static_cast<std::int64_t>(kPage));
  place->file.reset();
  files->Sweep(absl::Now() + absl::Hours(1));
  EXPECT_EQ(files->mapped_bytes(), 0);
}

TEST(SharedFilesTest, AFileThatIsCutReadsAsZerosAndIsMappedAnew) {
  const auto files = Files();
  SharedMemoryFile file(4 * kPage);
  std::fill_n(file.data(), 4 * kPage, 'x');
  const auto place = files->Map(file.name(), 0, 4 * kPage);
  ASSERT_TRUE(place.ok());
  EXPECT_FALSE(files->WasCut(*place->file));
  ASSERT_EQ(ftruncate(file.fd(), kPage), 0);
  const volatile char* const bytes = place->data();
  EXPECT_EQ(bytes[0], 'x');
  EXPECT_EQ(bytes[2 * kPage], 0);
  place->data()[3 * kPage] = 'y';
  EXPECT_TRUE(files->WasCut(*place->file));
  ASSERT_EQ(ftruncate(file.fd(), 4 * kPage), 0);
  const auto again = files->Map(file.name(), 0, 4 * kPage);
  ASSERT_TRUE(again.ok());
  EXPECT_NE(again->file, place->file);
  EXPECT_FALSE(files->WasCut(*again->file));
  EXPECT_EQ(again->data()[3 * kPage], 0);
}

// The cut is noticed even without access to the missing part.
TEST(SharedFilesTest, KnowsThatAFileWasCut) {
  const auto files = Files();
  SharedMemoryFile file(4 * kPage);
  const auto place = files->Map(file.name(), 0, 1);
  ASSERT_EQ(ftruncate(file.fd(), kPage), 0);
  EXPECT_TRUE(files->WasCut(*place->file));
}

TEST(SharedFilesTest, ManyThreadsSurviveCutsOfOneFile) {
  const auto files = Files();
  SharedMemoryFile file(64 * kPage);
  for (int round = 0; round < 50; ++round) {
    ASSERT_EQ(ftruncate(file.fd(), 64 * kPage), 0);
    const auto place = files->Map(file.name(), 0, 64 * kPage);
    ASSERT_TRUE(place.ok());
    std::atomic<bool> go{false};
    std::vector<std::thread> threads;
    threads.reserve(4);
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] {
        while (!go.load()) {
        }
        for (std::size_t page = 0; page < 64; ++page) {
          place->data()[((page * 7 + i) % 64) * kPage + i] = 'x';
        }
      });
    }
    go.store(true);
    EXPECT_EQ(ftruncate(file.fd(), (round % 4) * kPage), 0);
    for (std::thread& thread : threads) thread.join();
    EXPECT_TRUE(files->WasCut(*place->file));
  }
}

TEST(CutGuardDeathTest, OtherBusErrorsEndTheProcess) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto die = [] {
    const auto files = Files();
    SharedMemoryFile guarded(kPage), other(kPage);
    if (!files->Map(guarded.name(), 0, 1).ok()) std::exit(1);
    if (ftruncate(other.fd(), 0) != 0) std::exit(1);
    unlink(guarded.path().c_str());
    unlink(other.path().c_str());
    other.data()[0] = 'x';
  };
  EXPECT_EXIT(die(), testing::KilledBySignal(SIGBUS), "");
  EXPECT_EXIT(
      {
        const auto files = Files();
        SharedMemoryFile guarded(kPage);
        if (!files->Map(guarded.name(), 0, 1).ok()) std::exit(1);
        unlink(guarded.path().c_str());
        kill(getpid(), SIGBUS);
        pause();
      },
      testing::KilledBySignal(SIGBUS), "");
}

}  // namespace
}  // namespace posenc::server
