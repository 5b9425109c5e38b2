// A worker process's life: dials the controller, serves as one rank of its groups, one after the
// other, and ends when the controller says so or is gone.
#ifndef DISTRIBUTED_WORKER_WORKER_H_
#define DISTRIBUTED_WORKER_WORKER_H_

#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "distributed/worker/controller_session.h"
#include "distributed/worker/rank.h"
#include "distributed/worker/rank_model.h"
#include "kernels/core/device.h"

namespace millrace {

struct WorkerOptions {
  std::string controller;  // host:port
  std::string secret;      // of the cluster
  std::string build_version;
  std::string protocol_revision;
  std::string device_kind = "cpu";
  std::string device_description;
  std::string memory_id;  // the GPU's (CudaBusId); "": the cache lies in the host's memory
  int32_t threads = 1;
  std::string model_dir;  // "": the controller's; else this one, which must be the same model
  int32_t tensor_parallel_size = 0;  // > 0: refuse to be part of another
  CollectiveTransport transport = CollectiveTransport::kAuto;
  absl::Duration connect_timeout = absl::Minutes(1);
  absl::Duration lease = absl::Seconds(4);  // silence after which the controller is given up
};

class Worker final : private ControllerSession::Handler {
 public:
  // `device` and `factory` outlive the worker. `log` gets a line on every change; any thread.
  Worker(WorkerOptions options, Device& device, RankModelFactory& factory,
         std::function<void(const std::string&)> log);
  ~Worker() override;  // waits for what still computes: see Run

  // Serves until Stop, or Shutdown by the controller: OK. Otherwise why it cannot go on:
  // UNAUTHENTICATED, FAILED_PRECONDITION with a diff (refused), UNAVAILABLE (the controller cannot
  // be reached or is gone), or this rank's own failure. On an error a computation may still be
  // running; the process should end without waiting for it.
  absl::Status Run();

  // Any thread, any number of times: leaves the cluster; Run returns OK.
  void Stop();

  // Any thread. "rank 1 of 2", "no rank yet".
  std::string Describe() const;

 private:
  // Why one session ended.
  enum class Outcome { kReform, kNotJoined, kFinished };

  absl::StatusOr<Outcome> Serve(absl::Duration connect_timeout);
  absl::StatusOr<std::shared_ptr<grpc::Channel>> Connect(absl::Duration timeout) const;
  absl::StatusOr<worker::WorkerMessage> MakeHello() const;
  // Until the session is over or has to be; sends heartbeats.
  absl::StatusOr<Outcome> Watch(ControllerSession& session, Rank& rank);
  // Nothing while the session may go on.
  std::optional<absl::StatusOr<Outcome>> Verdict(const ControllerSession& session,
                                                 const Rank& rank) const;
  // Waits for the controller to close the session, then breaks it off.
  void EndSession(ControllerSession& session, absl::Duration patience);

  void OnMessage(worker::ControllerMessage message) override;
  void OnEnd(const absl::Status& status) override;
  bool stopping() const;

  const WorkerOptions options_;
  const std::string instance_;
  Device& device_;
  RankModelFactory& factory_;
  const std::function<void(const std::string&)> log_;

  mutable std::mutex mu_;
  std::condition_variable changed_;
  bool stopping_ = false;                               // guarded by mu_
  std::shared_ptr<Rank> rank_;                          // guarded by mu_
  std::string description_ = "no rank yet";             // guarded by mu_: of a rank that is gone
  bool joined_ = false;                                 // guarded by mu_: this session was accepted
  bool ended_ = false;                                  // guarded by mu_: the session
  absl::Status end_;                                    // guarded by mu_: why
  std::optional<worker::ControllerMessage> last_word_;  // guarded by mu_: Refused, Reform, Shutdown
};

}  // namespace millrace

#endif  // DISTRIBUTED_WORKER_WORKER_H_
