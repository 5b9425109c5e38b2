// Lines and a progress bar on one stream, from any thread, without getting into each other's way.
#ifndef TOOLS_SERVE_CONSOLE_H_
#define TOOLS_SERVE_CONSOLE_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <ostream>
#include <string>
#include <string_view>

#include "tools/common/terminal.h"

namespace millrace {

class Console final {
 public:
  // `moving`: `out` is a terminal.
  Console(std::ostream& out, bool moving) : out_(out), moving_(moving) {}

  // One or more lines, each with the time in front.
  void Say(std::string_view text);
  // The first line of a program, as scripts look for it: without the time.
  void SayPlain(std::string_view text);
  // Bytes, or things that `things` names. Another title ends the bar before.
  void Progress(const std::string& title, int64_t done, int64_t total,
                const std::string& things = "");
  void EndProgress();

 private:
  std::ostream& out_;
  const bool moving_;
  std::mutex mu_;
  std::string title_;
  std::unique_ptr<ProgressBar> bar_;
};

}  // namespace millrace

#endif  // TOOLS_SERVE_CONSOLE_H_
