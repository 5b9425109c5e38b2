// Writes down what a WorkerHub tells, with the time.
#ifndef TESTS_STRESS_LISTENER_H_
#define TESTS_STRESS_LISTENER_H_

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "distributed/controller/cluster/worker_hub.h"

namespace millrace {

class RecordingListener final : public WorkerHubListener {
 public:
  void OnWaitingForWorkers(int32_t present, int32_t world) override;
  void OnLoading(int64_t bytes_done, int64_t bytes_total) override;
  void OnCapturing(int32_t graphs_done, int32_t graphs_total) override;
  void OnReady(const GroupInfo& info) override;
  void OnLost(int32_t rank, const absl::Status& reason) override;
  void OnNotice(const std::string& line) override;

  // Waits until a line contains `text`; when that was, or InfiniteFuture.
  absl::Time WaitFor(const std::string& text, absl::Duration timeout);
  int Count(const std::string& text) const;
  std::string All() const;
  void Clear();

 private:
  struct Line {
    absl::Time time;
    std::string text;
  };
  void Add(std::string text);

  mutable std::mutex mu_;
  std::condition_variable changed_;
  std::vector<Line> lines_;
};

}  // namespace millrace

#endif  // TESTS_STRESS_LISTENER_H_
