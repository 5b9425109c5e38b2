#include "tests/stress/listener.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace millrace {

void RecordingListener::Add(std::string text) {
  const std::lock_guard<std::mutex> lock(mu_);
  lines_.push_back({absl::Now(), std::move(text)});
  changed_.notify_all();
}

void RecordingListener::OnWaitingForWorkers(int32_t present, int32_t world) {
  Add(absl::StrCat("waiting ", present, "/", world));
}

void RecordingListener::OnLoading(int64_t bytes_done, int64_t bytes_total) {
  Add(absl::StrCat("loading ", bytes_done, "/", bytes_total));
}

void RecordingListener::OnCapturing(int32_t graphs_done, int32_t graphs_total) {
  Add(absl::StrCat("capturing ", graphs_done, "/", graphs_total));
}

void RecordingListener::OnReady(const GroupInfo& info) {
  Add(absl::StrCat("ready ", info.ranks.size(), " ranks, ", info.num_pages, " pages, ",
                   info.ranks[0].transport));
}

void RecordingListener::OnLost(int32_t rank, const absl::Status& reason) {
  Add(absl::StrCat("lost ", rank, ": ", reason.ToString()));
}

void RecordingListener::OnNotice(const std::string& line) { Add("notice " + line); }

absl::Time RecordingListener::WaitFor(const std::string& text, absl::Duration timeout) {
  const auto find = [&]() -> absl::Time {
    for (const Line& line : lines_) {
      if (line.text.find(text) != std::string::npos) return line.time;
    }
    return absl::InfiniteFuture();
  };
  std::unique_lock<std::mutex> lock(mu_);
  changed_.wait_for(lock, absl::ToChronoMilliseconds(timeout),
                    [&] { return find() != absl::InfiniteFuture(); });
  return find();
}

int RecordingListener::Count(const std::string& text) const {
  const std::lock_guard<std::mutex> lock(mu_);
  int count = 0;
  for (const Line& line : lines_) count += line.text.find(text) != std::string::npos ? 1 : 0;
  return count;
}

std::string RecordingListener::All() const {
  const std::lock_guard<std::mutex> lock(mu_);
  std::string all;
  for (const Line& line : lines_) absl::StrAppend(&all, line.text, "\n");
  return all;
}

void RecordingListener::Clear() {
  const std::lock_guard<std::mutex> lock(mu_);
  lines_.clear();
}

}  // namespace millrace
