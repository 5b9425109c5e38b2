// What moves on a terminal: a progress bar and a spinner. Nothing moves when the output is no
// terminal; then a bar leaves one line at its end and a spinner none.
#ifndef TOOLS_COMMON_TERMINAL_H_
#define TOOLS_COMMON_TERMINAL_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <ostream>
#include <string>
#include <thread>

namespace millrace {

bool IsTerminal(int file_descriptor);

// "Loading weights:  37% |########            | 100.0/269.0 MB [00:01<00:02, 120.4 MB/s]". Any
// thread.
class ProgressBar final {
 public:
  // `out` outlives the bar. `moving`: whether it is a terminal. `things`: what is counted; empty:
  // bytes.
  ProgressBar(std::string title, std::ostream& out, bool moving, std::string things = "");
  void Update(int64_t done, int64_t total);
  // Leaves the last state on a line of its own. Idempotent; does nothing when nothing was shown.
  void Finish();

 private:
  std::string Line(double seconds) const;

  const std::string title_;
  std::ostream& out_;
  const bool moving_;
  const std::string things_;
  std::mutex mu_;
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point drawn_;
  int64_t done_ = 0;
  int64_t total_ = 0;
  bool started_ = false;
  bool finished_ = false;
};

// Turns until stopped, then wipes itself away.
class Spinner final {
 public:
  Spinner(std::string text, std::ostream& out, bool moving);
  ~Spinner();
  Spinner(const Spinner&) = delete;
  Spinner& operator=(const Spinner&) = delete;
  // Idempotent.
  void Stop();

 private:
  void Turn();

  const std::string text_;
  std::ostream& out_;
  std::mutex mu_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::thread thread_;
};

// "00:41", "1:02:03".
std::string ClockText(double seconds);
// "269.0 MB" with the unit that fits.
std::string BytesText(double bytes);

}  // namespace millrace

#endif  // TOOLS_COMMON_TERMINAL_H_
