// The error of a server that cannot get its threads.

#include "server/process/threads.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/base/config.h"
#include "gtest/gtest.h"

namespace posenc::server {
namespace {

// Root has no limit of processes, so the test uses another user.
void AllowProcesses(rlim_t count) {
  const rlimit limit = {count, count};
  if (setrlimit(RLIMIT_NPROC, &limit) != 0 ||
      (geteuid() == 0 && setuid(54321) != 0)) {
    _exit(1);
  }
}

// Returns whether the limit has an effect. In some sandboxes it has none, or
// none for users that the sandbox does not know.
bool LimitsHold() {
  const pid_t child = fork();
  if (child == 0) {
    AllowProcesses(1);
    pthread_t thread;
    const auto nothing = [](void*) -> void* { return nullptr; };
    _exit(pthread_create(&thread, nullptr, nothing, nullptr) == EAGAIN ? 0 : 1);
  }
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) &&
         WEXITSTATUS(status) == 0;
}

[[noreturn]] void SayAndExit(const absl::Status& status) {
  std::fputs(std::string(status.message()).c_str(), stderr);
  std::exit(status.ok() ? 0 : 3);
}

using ThreadsDeathTest = testing::Test;

TEST_F(ThreadsDeathTest, TooManyThreadsAreAnErrorWithTheirNumber) {
#ifdef ABSL_HAVE_ADDRESS_SANITIZER
  GTEST_SKIP() << "at the exit its check for leaks needs a thread of its own";
#endif
  if (!LimitsHold()) {
    GTEST_SKIP() << "the number of threads cannot be limited here";
  }
  EXPECT_EXIT(
      {
        AllowProcesses(1);
        SayAndExit(CheckThreads(20));
      },
      testing::ExitedWithCode(3), "could start only 0 of 20 threads");
}

TEST(ThreadsTest, PossibleThreadsAreNoError) {
  EXPECT_TRUE(CheckThreads(ThreadsOf(2)).ok());
}

TEST(ThreadsTest, MoreComputeThreadsAreMoreThreads) {
  EXPECT_GE(ThreadsOf(1), 14);
  EXPECT_GE(ThreadsOf(8), 25);
  EXPECT_LT(ThreadsOf(8), 50);
}

}  // namespace
}  // namespace posenc::server
