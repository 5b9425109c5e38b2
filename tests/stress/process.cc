#include "tests/stress/process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "absl/time/clock.h"
#include "kernels/core/check.h"

namespace millrace {

Process::Process(const std::string& binary, std::vector<std::string> arguments) {
  const char* folder = std::getenv("TEST_TMPDIR");
  log_ = std::string(folder != nullptr ? folder : "/tmp") + "/processXXXXXX";
  const int fd = mkstemp(log_.data());
  MR_CHECK_GE(fd, 0);
  std::vector<char*> argv = {const_cast<char*>(binary.c_str())};
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) {
    // Only calls that are safe after a fork.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(126);
    dup2(fd, STDOUT_FILENO);
    dup2(fd, STDERR_FILENO);
    execv(argv[0], argv.data());
    _exit(127);
  }
  close(fd);
  MR_CHECK_GT(pid_, 0);
}

Process::~Process() {
  if (status_.has_value()) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void Process::Signal(int number) const {
  if (!status_.has_value()) kill(pid_, number);
}

std::optional<int> Process::Wait(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  while (!status_.has_value()) {
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) == pid_) {
      status_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    } else if (absl::Now() > deadline) {
      break;
    } else {
      absl::SleepFor(absl::Milliseconds(5));
    }
  }
  return status_;
}

std::string Process::Output() const {
  std::ifstream file(log_);
  return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

bool Process::WaitForOutput(const std::string& text, absl::Duration timeout) const {
  const absl::Time deadline = absl::Now() + timeout;
  while (Output().find(text) == std::string::npos) {
    if (absl::Now() > deadline) return false;
    absl::SleepFor(absl::Milliseconds(5));
  }
  return true;
}

}  // namespace millrace
