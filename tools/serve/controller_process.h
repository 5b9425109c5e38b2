// The controller from its first line to its last.
#ifndef TOOLS_SERVE_CONTROLLER_PROCESS_H_
#define TOOLS_SERVE_CONTROLLER_PROCESS_H_

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "distributed/controller/cluster/worker_hub.h"
#include "distributed/controller/frontdoor/server.h"
#include "distributed/controller/frontdoor/throughput.h"
#include "tools/common/device_name.h"
#include "tools/serve/console.h"
#include "tools/serve/controller_config.h"

namespace millrace {

struct ControllerOptions {
  ControllerConfig config;
  ServerOptions server;
  WorkerHubOptions hub;  // of a cluster; model and sizes are filled in from `config`
  bool local = false;    // all ranks in this process
  DeviceChoice device;   // of the local rank
  int32_t threads = 1;   // of all local ranks together
  absl::Duration shutdown_timeout = absl::Seconds(30);
};

class ControllerProcess final : private WorkerHubListener {
 public:
  // `console` outlives the process.
  ControllerProcess(ControllerOptions options, Console& console);
  ~ControllerProcess() override;

  // Serves until Stop(), then drains. OK when all requests came to their end; else the error that
  // ended it. Once.
  absl::Status Run();
  // Any thread.
  void Stop();

 private:
  absl::Status StartServer();
  absl::Status StartHub();
  // Thread of its own: brings executors to the server until there are no more.
  void FeedLocal();
  void FeedCluster();
  absl::Status LoadLocal();
  absl::Status TakeGroup(ReadyGroup group);
  // The executor gets to work.
  absl::Status Serve(std::unique_ptr<StepExecutor> executor, const RankMemory& memory,
                     int32_t num_pages);
  void SayReady();
  void WaitForTheEnd();
  absl::Status Finish();
  void Fail(absl::Status status);
  bool ending();

  // WorkerHubListener
  void OnWaitingForWorkers(int32_t present, int32_t world) override;
  void OnLoading(int64_t bytes_done, int64_t bytes_total) override;
  void OnCapturing(int32_t graphs_done, int32_t graphs_total) override;
  void OnReady(const GroupInfo& info) override;
  void OnLost(int32_t rank, const absl::Status& reason) override;
  void OnNotice(const std::string& line) override;

  const ControllerOptions options_;
  Console& console_;
  const std::chrono::steady_clock::time_point started_;

  std::mutex mu_;  // guards what follows, up to the blank line
  std::condition_variable changed_;
  bool stopping_ = false;
  std::optional<std::chrono::steady_clock::time_point> load_started_;
  bool loading_locally_ = false;  // cannot be interrupted
  bool was_ready_ = false;
  absl::Status failure_;

  std::unique_ptr<Server> server_;
  std::unique_ptr<WorkerHub> hub_;
  ThroughputMeter meter_;
  std::thread feeder_;
};

}  // namespace millrace

#endif  // TOOLS_SERVE_CONTROLLER_PROCESS_H_
