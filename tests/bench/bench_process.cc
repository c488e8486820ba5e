#include "tests/bench/bench_process.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

namespace posenc::bench {
namespace {

constexpr std::chrono::milliseconds kPoll(5);
constexpr std::chrono::seconds kStartTimeout(30), kStopTimeout(5);

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

int next_stem() {
  static int number = 0;
  return number++;
}

}  // namespace

ServerProcess::ServerProcess(std::vector<std::string> command,
                             const std::string& directory, int core)
    : stem_(directory + "/" + std::to_string(next_stem())) {
  std::vector<char*> arguments;
  for (std::string& argument : command) {
    const auto substitute = [&](const std::string& name,
                                const std::string& path) {
      const std::size_t at = argument.find(name);
      if (at != std::string::npos) argument.replace(at, name.size(), path);
    };
    substitute("UNIX_PATH", stem_ + ".sock");
    substitute("READY_FILE", stem_ + ".ready");
    arguments.push_back(argument.data());
  }
  arguments.push_back(nullptr);
  const int log = open((stem_ + ".log").c_str(),
                       O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ != 0) {
    close(log);
    return;
  }
  // If the driver is killed, the server ends, too.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (core >= 0) {
    CPU_SET(core, &cores);
    sched_setaffinity(0, sizeof(cores), &cores);
  }
  dup2(log, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  execvp(arguments[0], arguments.data());
  _exit(127);
}

ServerProcess::~ServerProcess() {
  if (pid_ <= 0 || Exited()) return;
  kill(pid_, SIGTERM);
  const auto deadline = std::chrono::steady_clock::now() + kStopTimeout;
  while (!Exited()) {
    if (std::chrono::steady_clock::now() > deadline) kill(pid_, SIGKILL);
    std::this_thread::sleep_for(kPoll);
  }
}

bool ServerProcess::Exited() {
  if (pid_ > 0 && waitpid(pid_, nullptr, WNOHANG) == pid_) pid_ = -1;
  return pid_ <= 0;
}

bool ServerProcess::WaitReady() {
  const auto deadline = std::chrono::steady_clock::now() + kStartTimeout;
  while (!Exited() && std::chrono::steady_clock::now() < deadline) {
    std::istringstream lines(ReadFile(stem_ + ".ready"));
    for (std::string line; std::getline(lines, line);) {
      (line.rfind("unix:", 0) == 0 ? unix_ : tcp_) = line;
    }
    if (!tcp_.empty() && !unix_.empty()) return true;
    std::this_thread::sleep_for(kPoll);
  }
  return false;
}

Usage ServerProcess::usage() const {
  const std::string stat = ReadFile("/proc/" + std::to_string(pid_) + "/stat");
  // Counts the fields after the process's name, because the name may hold any
  // characters.
  std::istringstream fields(stat.substr(stat.rfind(')') + 1));
  std::string skipped;
  for (int field = 3; field < 10; ++field) fields >> skipped;
  double minor = 0, user = 0, system = 0;
  fields >> minor >> skipped >> skipped >> skipped >> user >> system;
  const double ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  return {(user + system) / ticks, minor};
}

double ServerProcess::peak_resident_bytes() const {
  std::istringstream lines(
      ReadFile("/proc/" + std::to_string(pid_) + "/status"));
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("VmHWM:", 0) == 0) {
      return std::atof(line.c_str() + 6) * 1024;
    }
  }
  return 0;
}

std::string ServerProcess::log() const { return ReadFile(stem_ + ".log"); }

}  // namespace posenc::bench
