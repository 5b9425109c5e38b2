#include "tools/common/terminal.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kFrame{100};
constexpr int kBarWidth = 24;
constexpr char kWipe[] = "\r\x1b[K";

struct Unit {
  double bytes;
  const char* name;
};

Unit UnitFor(double bytes) {
  constexpr std::array<Unit, 4> kUnits = {{{1e12, "TB"}, {1e9, "GB"}, {1e6, "MB"}, {1e3, "kB"}}};
  for (const Unit& unit : kUnits) {
    if (bytes >= unit.bytes) return unit;
  }
  return {1, "B"};
}

}  // namespace

bool IsTerminal(int file_descriptor) { return isatty(file_descriptor) == 1; }

std::string ClockText(double seconds) {
  const auto s = static_cast<int64_t>(std::clamp(seconds, 0.0, 359999.0));
  if (s >= 3600) return absl::StrFormat("%d:%02d:%02d", s / 3600, s / 60 % 60, s % 60);
  return absl::StrFormat("%02d:%02d", s / 60, s % 60);
}

std::string BytesText(double bytes) {
  const Unit unit = UnitFor(bytes);
  if (unit.bytes == 1) return absl::StrFormat("%.0f B", bytes);
  return absl::StrFormat("%.1f %s", bytes / unit.bytes, unit.name);
}

ProgressBar::ProgressBar(std::string title, std::ostream& out, bool moving, std::string things)
    : title_(std::move(title)), out_(out), moving_(moving), things_(std::move(things)) {}

void ProgressBar::Update(int64_t done, int64_t total) {
  std::lock_guard lock(mu_);
  const Clock::time_point now = Clock::now();
  if (!started_) start_ = now;
  done_ = std::min(done, total);
  total_ = total;
  const bool due = !started_ || now - drawn_ >= kFrame;
  started_ = true;
  if (!moving_ || finished_ || !due) return;
  drawn_ = now;
  out_ << kWipe << Line(std::chrono::duration<double>(now - start_).count()) << std::flush;
}

void ProgressBar::Finish() {
  std::lock_guard lock(mu_);
  if (finished_ || !started_) return;
  finished_ = true;
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  out_ << (moving_ ? kWipe : "") << Line(seconds) << std::endl;
}

std::string ProgressBar::Line(double seconds) const {
  const double share = total_ > 0 ? static_cast<double>(done_) / static_cast<double>(total_) : 1;
  const int filled = static_cast<int>(share * kBarWidth);
  const double rate = seconds > 0 ? static_cast<double>(done_) / seconds : 0;
  const double left = rate > 0 ? static_cast<double>(total_ - done_) / rate : 0;
  if (!things_.empty()) {
    return absl::StrFormat("%s: %3.0f%% |%s%s| %d/%d %s [%s<%s]", title_, 100 * share,
                           std::string(filled, '#'), std::string(kBarWidth - filled, ' '), done_,
                           total_, things_, ClockText(seconds), ClockText(left));
  }
  const Unit unit = UnitFor(static_cast<double>(total_));
  return absl::StrFormat("%s: %3.0f%% |%s%s| %.1f/%.1f %s [%s<%s, %s/s]", title_, 100 * share,
                         std::string(filled, '#'), std::string(kBarWidth - filled, ' '),
                         static_cast<double>(done_) / unit.bytes,
                         static_cast<double>(total_) / unit.bytes, unit.name, ClockText(seconds),
                         ClockText(left), BytesText(rate));
}

Spinner::Spinner(std::string text, std::ostream& out, bool moving)
    : text_(std::move(text)), out_(out) {
  if (moving) thread_ = std::thread([this] { Turn(); });
}

Spinner::~Spinner() { Stop(); }

void Spinner::Stop() {
  {
    std::lock_guard lock(mu_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Spinner::Turn() {
  constexpr std::array<const char*, 4> kFaces = {"|", "/", "-", "\\"};
  std::unique_lock lock(mu_);
  for (size_t i = 0; !stopping_; ++i) {
    out_ << kWipe << kFaces[i % kFaces.size()] << ' ' << text_ << std::flush;
    changed_.wait_for(lock, kFrame, [this] { return stopping_; });
  }
  out_ << kWipe << std::flush;
}

}  // namespace millrace
