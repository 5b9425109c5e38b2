// One rank of one group, from its assignment to its end: what the controller orders, in order, on a
// thread of its own.
#ifndef DISTRIBUTED_WORKER_RANK_H_
#define DISTRIBUTED_WORKER_RANK_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "distributed/comm/connect.h"
#include "distributed/comm/peer_communicator.h"
#include "distributed/step_wire/step_wire.h"
#include "distributed/worker/rank_model.h"
#include "distributed/worker/session_store.h"
#include "distributed/worker/watched_communicator.h"
#include "engine/parallel/communicator.h"
#include "kernels/core/device.h"
#include "proto/worker.pb.h"

namespace millrace {

class Rank;

struct RankOptions {
  Device* device = nullptr;             // outlives the rank
  RankModelFactory* factory = nullptr;  // outlives the rank
  std::string model_dir;                // "": the controller's
  CollectiveTransport transport = CollectiveTransport::kAuto;
  std::string address;  // of this host, seen by the other ranks
  // The rank of the group before: nothing begins until it has let go of device and memory.
  std::shared_ptr<Rank> previous;
};

class Rank final {
 public:
  using Send = std::function<void(const worker::WorkerMessage&)>;  // any thread, never blocks

  Rank(RankOptions options, Send send);
  ~Rank();  // Stop(), then waits for the thread

  // Any thread. Assign, Load, Configure and StepPlan are queued; StoreValue is taken at once.
  void Push(worker::ControllerMessage message);
  // Any thread. Ends the thread as soon as what runs now lets go: collectives are aborted, loading
  // and computing are not.
  void Stop();
  // Waits for the thread to end; false when it has not within `timeout`.
  bool WaitUntilDone(absl::Duration timeout);

  // Any thread. What the rank failed with; OK while it has not.
  absl::Status error() const;
  // Not because of another rank, and not in a step unless the device went with it.
  bool failed_for_good() const;
  // Any thread. "rank 1 of 2"; "no rank yet".
  std::string Describe() const;
  worker::Heartbeat Heartbeat() const;

 private:
  void Loop();
  absl::Status Handle(const worker::ControllerMessage& message);
  // A communicator on the device's memory. `store` is its own.
  absl::StatusOr<JoinedGroup> Join(const ConnectOptions& options, KeyValueStore& store,
                                   bool peer_memory);
  // Makes that of all ranks and, where there are several groups, that of this rank's own; how the
  // former is carried, for people.
  absl::StatusOr<std::string> JoinGroups(const worker::Assign& assign);
  absl::Status OnAssign(const worker::Assign& assign);
  absl::Status CheckFingerprint(const std::string& want);
  absl::Status OnLoad();
  absl::Status OnConfigure(const worker::Configure& configure);
  absl::Status OnStep(const worker::StepPlan& plan);
  // Sends the oldest step's result if it is ready; whether it was.
  absl::StatusOr<bool> SendReady();
  bool StepIsOut() const { return model_ != nullptr && model_->InFlight() > 0; }
  std::shared_ptr<WatchedCommunicator> communicator() const;
  std::shared_ptr<WatchedCommunicator> tensor_communicator() const;

  RankOptions options_;  // the rank's thread, once it runs
  const Send send_;
  SessionStore store_;

  // The rank's thread.
  RunnerConfig config_;
  std::unique_ptr<RankModel> model_;
  StepLimits limits_;
  std::string phase_;

  std::atomic<int32_t> rank_ = -1;
  std::atomic<int32_t> world_ = 0;
  int32_t group_size_ = 1;         // ranks of a group; the rank's thread
  std::atomic<int64_t> step_ = 0;  // running now

  mutable std::mutex mu_;
  std::condition_variable changed_;
  std::deque<worker::ControllerMessage> queue_;        // guarded by mu_
  bool stopped_ = false;                               // guarded by mu_
  bool done_ = false;                                  // guarded by mu_
  absl::Status error_;                                 // guarded by mu_
  bool failed_for_good_ = false;                       // guarded by mu_
  std::shared_ptr<WatchedCommunicator> communicator_;  // of all ranks; guarded by mu_
  std::shared_ptr<WatchedCommunicator> tensor_;  // of its own group, null where that is all of
                                                 // them; guarded by mu_
  std::thread thread_;
};

}  // namespace millrace

#endif  // DISTRIBUTED_WORKER_RANK_H_
