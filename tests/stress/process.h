// A child process of a test.
#ifndef TESTS_STRESS_PROCESS_H_
#define TESTS_STRESS_PROCESS_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace millrace {

class Process final {
 public:
  // Runs `binary` (a path from the workspace root, in the test's runfiles); its output goes to a
  // file of the test's.
  Process(const std::string& binary, std::vector<std::string> arguments);
  ~Process();  // kills it when it has not ended
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  void Signal(int number) const;
  // The exit status, 128 + the signal that ended it, or nothing after `timeout`.
  std::optional<int> Wait(absl::Duration timeout);
  std::string Output() const;
  // Waits until the output contains `text`.
  bool WaitForOutput(const std::string& text, absl::Duration timeout) const;

 private:
  std::string log_;
  pid_t pid_ = -1;
  std::optional<int> status_;
};

}  // namespace millrace

#endif  // TESTS_STRESS_PROCESS_H_
