// WorkerHub's implementation: the server, the list of who is there, and the monitor thread.
#ifndef DISTRIBUTED_CONTROLLER_CLUSTER_WORKER_HUB_IMPL_H_
#define DISTRIBUTED_CONTROLLER_CLUSTER_WORKER_HUB_IMPL_H_

#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "distributed/controller/cluster/group_assembly.h"
#include "distributed/controller/cluster/hub_session.h"
#include "distributed/controller/cluster/worker_hub.h"
#include "proto/worker.grpc.pb.h"

namespace millrace {

class WorkerHubImpl final : public WorkerHub,
                            private HubSession::Owner,
                            private worker::WorkerHub::CallbackService {
 public:
  WorkerHubImpl(WorkerHubOptions options, WorkerHubListener* listener);
  ~WorkerHubImpl() override;

  absl::Status Listen();
  int32_t port() const override { return port_; }
  absl::StatusOr<ReadyGroup> WaitForGroup() override;
  void Shutdown(const std::string& reason) override;

 private:
  // A rank that complained of others; the culprit gets a moment to show itself.
  struct Suspicion {
    int32_t rank = 0;
    absl::Status status;
    absl::Time until;
  };

  // gRPC's threads.
  grpc::ServerBidiReactor<worker::Frame, worker::Frame>* Session(
      grpc::CallbackServerContext* context) override;
  void OnHello(const std::shared_ptr<HubSession>& session, worker::Hello hello) override;
  void OnMessage(const std::shared_ptr<HubSession>& session,
                 worker::WorkerMessage message) override;
  void OnClosed(const std::shared_ptr<HubSession>& session, const absl::Status& reason) override;

  // All below: REQUIRES mu_ held.
  absl::Status CheckNewcomer(const worker::Hello& hello) const;
  void FormGroupIfComplete();
  void OnFailed(int32_t rank, const worker::Failed& failed);
  void AfterGroupMessage(GroupAssembly::Stage before);
  // Ends the group: its executor fails with `status`, every rank is told to let go.
  void Lose(int32_t rank, const absl::Status& status);
  void DropWaiting(const HubSession& session, const std::string& why);
  void RefusePeer(const HubSession& session, const absl::Status& why);
  void TellWaiting();
  bool was_ready() const { return groups_ready_ > 0; }

  // The monitor thread.
  void Monitor();
  void CheckSessions(absl::Time now);
  void CheckGroup(absl::Time now);
  void CheckWaiting(absl::Time now);
  void SendHeartbeats(absl::Time now);

  const WorkerHubOptions options_;
  const std::string protocol_revision_;
  WorkerHubListener* const listener_;
  const absl::Time start_;
  int32_t port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  std::thread monitor_;

  mutable std::mutex mu_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<HubSession>> sessions_;  // all that are not over
  std::vector<Member> waiting_;                        // for their group, in order of arrival
  std::unique_ptr<GroupAssembly> group_;
  std::optional<Suspicion> suspicion_;
  std::optional<ReadyGroup> ready_;  // not handed out yet
  int64_t groups_made_ = 0;
  int64_t groups_ready_ = 0;
  absl::Status final_error_;  // WaitForGroup's, for good
  bool shut_down_ = false;
  absl::Time next_heartbeat_;
  absl::Time next_waiting_;
  std::map<std::string, absl::Time> refused_;  // peer address -> when it may be logged again
};

}  // namespace millrace

#endif  // DISTRIBUTED_CONTROLLER_CLUSTER_WORKER_HUB_IMPL_H_
