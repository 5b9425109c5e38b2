#include "tools/serve/console.h"

#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace millrace {

void Console::Say(std::string_view text) {
  const std::string time = absl::FormatTime("%m-%d %H:%M:%S", absl::Now(), absl::LocalTimeZone());
  std::lock_guard lock(mu_);
  if (bar_ != nullptr && moving_) out_ << "\r\x1b[K";  // the bar draws itself again
  for (absl::string_view line : absl::StrSplit(std::string(text), '\n')) {
    out_ << time << ' ' << line << '\n';
  }
  out_ << std::flush;
}

void Console::SayPlain(std::string_view text) {
  std::lock_guard lock(mu_);
  out_ << text << std::endl;
}

void Console::Progress(const std::string& title, int64_t done, int64_t total,
                       const std::string& things) {
  std::lock_guard lock(mu_);
  if (bar_ != nullptr && title != title_) {
    bar_->Finish();
    bar_.reset();
  }
  if (bar_ == nullptr) bar_ = std::make_unique<ProgressBar>(title, out_, moving_, things);
  title_ = title;
  bar_->Update(done, total);
}

void Console::EndProgress() {
  std::lock_guard lock(mu_);
  if (bar_ != nullptr) bar_->Finish();
  bar_.reset();
}

}  // namespace millrace
