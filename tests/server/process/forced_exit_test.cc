// The end of a process whose drain does not finish.

#include "server/process/forced_exit.h"

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/process/serve.h"

namespace posenc::server {
namespace {

class ForcedExitTest : public testing::Test {
 protected:
  void SetUp() override {
    // A child that starts the program again, with its own threads.
    testing::GTEST_FLAG(death_test_style) = "threadsafe";
    path_ = absl::StrCat(testing::TempDir(), "posenc-forced-exit-ready");
    std::ofstream(path_) << "unix:/socket";
  }
  void TearDown() override { unlink(path_.c_str()); }

  // Never returns, so only a signal ends the process.
  [[noreturn]] static void Hang() {
    while (true) pause();
  }

  std::string path_;
};

TEST_F(ForcedExitTest, ATimeThatIsOverEndsTheProcess) {
  EXPECT_EXIT(
      {
        ExitAfter(absl::Milliseconds(1), path_,
                  [] { std::fputs("said", stderr); });
        Hang();
      },
      testing::ExitedWithCode(0), "said");
  EXPECT_NE(access(path_.c_str(), F_OK), 0);
}

TEST_F(ForcedExitTest, ASecondSignalEndsTheProcessAsSignalsDo) {
  EXPECT_EXIT(
      {
        const sigset_t signals = ServeSignals();
        pthread_sigmask(SIG_BLOCK, &signals, nullptr);
        ExitAtSignal(path_);
        kill(getpid(), SIGHUP);  // which only reloads
        kill(getpid(), SIGTERM);
        Hang();
      },
      testing::ExitedWithCode(128 + SIGTERM), "");
  EXPECT_NE(access(path_.c_str(), F_OK), 0);
}

}  // namespace
}  // namespace posenc::server
