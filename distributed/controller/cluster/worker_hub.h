// The controller's side of the cluster: waits for workers, checks them, makes a group of them that
// runs a model, watches it, and makes the next one when it is lost.
#ifndef DISTRIBUTED_CONTROLLER_CLUSTER_WORKER_HUB_H_
#define DISTRIBUTED_CONTROLLER_CLUSTER_WORKER_HUB_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "distributed/controller/cluster/cluster_types.h"
#include "engine/runtime/step_executor.h"

namespace millrace {

struct ReadyGroup {
  std::unique_ptr<StepExecutor> executor;  // may outlive the hub: then every call is UNAVAILABLE
  GroupInfo info;
};

// What the hub has to tell; called from several threads, one call at a time. Must not block and
// must not call the hub. Every state below but OnReady means NOT_SERVING.
class WorkerHubListener {
 public:
  virtual ~WorkerHubListener() = default;
  // On every change, and every 10 s while it lasts.
  virtual void OnWaitingForWorkers(int32_t present, int32_t world) = 0;
  // Sum over ranks.
  virtual void OnLoading(int64_t bytes_done, int64_t bytes_total) = 0;
  // Graphs of the rank that is least far. Never where the device has none.
  virtual void OnCapturing(int32_t graphs_done, int32_t graphs_total) = 0;
  virtual void OnReady(const GroupInfo& info) = 0;
  // The group is gone and its executor dead. rank -1: none in particular.
  virtual void OnLost(int32_t rank, const absl::Status& reason) = 0;
  // A line for the log: refused peers, ranks that came and went.
  virtual void OnNotice(const std::string& line) = 0;
};

// Any thread.
class WorkerHub {
 public:
  // Listens. InvalidArgument for options out of range, Unavailable when the port is taken.
  // `listener` must outlive the hub.
  static absl::StatusOr<std::unique_ptr<WorkerHub>> Start(WorkerHubOptions options,
                                                          WorkerHubListener* listener);
  virtual ~WorkerHub() = default;  // Shutdown()

  virtual int32_t port() const = 0;

  // Waits for the next group that became ready; each is handed out once. One caller at a time.
  // An error is final: before the first group the first failing rank's own error, DeadlineExceeded
  // naming who is missing after startup_timeout; Cancelled after Shutdown().
  virtual absl::StatusOr<ReadyGroup> WaitForGroup() = 0;

  // Tells every worker to end (they exit 0) and stops listening. Idempotent.
  virtual void Shutdown(const std::string& reason) = 0;
};

}  // namespace millrace

#endif  // DISTRIBUTED_CONTROLLER_CLUSTER_WORKER_HUB_H_
