// One group of workers from the moment all are there to its readiness: rendezvous and self-test,
// load, cache. Each stage begins when every rank has ended the one before.
#ifndef DISTRIBUTED_CONTROLLER_CLUSTER_GROUP_ASSEMBLY_H_
#define DISTRIBUTED_CONTROLLER_CLUSTER_GROUP_ASSEMBLY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "distributed/controller/cluster/cluster_types.h"
#include "distributed/controller/cluster/hub_session.h"
#include "distributed/controller/cluster/rendezvous_store.h"
#include "distributed/controller/cluster/worker_group.h"
#include "proto/worker.pb.h"

namespace millrace {

// A worker that has proved itself and fits.
struct Member {
  std::shared_ptr<HubSession> session;
  worker::Hello hello;

  std::string Name() const;  // "host:pid"
};

// Not thread-safe, but for steps().
class GroupAssembly final {
 public:
  enum class Stage { kSelfTest, kLoading, kCache, kReady };

  // Tells every member its rank: ranks of one host side by side, else in the order given.
  // REQUIRES: members.size() == options.world. `options` outlives the group.
  GroupAssembly(const WorkerHubOptions& options, std::string id, std::vector<Member> members);

  const std::vector<Member>& members() const { return members_; }
  int32_t RankOf(const HubSession& session) const;  // -1: not of this group
  std::string NameOf(int32_t rank) const;           // "rank 1 (host:pid)"

  // All kinds but Failed, Leaving and Heartbeat. InvalidArgument: the rank does not follow the
  // protocol. ResourceExhausted: the cache does not fit.
  absl::Status OnMessage(int32_t rank, const worker::WorkerMessage& message);
  void OnHeartbeat(int32_t rank, const worker::Heartbeat& heartbeat);

  Stage stage() const { return stage_; }
  int64_t loaded_bytes() const;  // sum over ranks
  int64_t total_bytes() const;
  // Of the rank that is least far, for all wait for it; 0 of 0 while none has told of a graph.
  int32_t captured_graphs() const;
  int32_t total_graphs() const;
  const GroupInfo& info() const { return info_; }
  const std::shared_ptr<GroupSteps>& steps() const { return steps_; }

  // Why the group cannot go on: a stage or a step that takes too long. `rank` is who is to blame.
  absl::Status CheckTime(absl::Time now, int32_t* rank) const;

 private:
  struct RankState {
    Stage done = Stage::kSelfTest;  // the first stage that is not done yet
    int64_t loaded_bytes = 0;
    int64_t total_bytes = 0;
    int32_t captured_graphs = 0;
    int32_t total_graphs = 0;
    worker::Heartbeat heartbeat;
  };

  void Assign();
  absl::Status OnStoreSet(const worker::StoreSet& message);
  absl::Status OnStoreGet(int32_t rank, const worker::StoreGet& message);
  absl::Status OnLoaded(int32_t rank, const worker::Loaded& message);
  // A rank is through with `stage`; when all are, the next one begins.
  absl::Status Advance(int32_t rank, Stage stage);
  absl::Status BeginStage();
  absl::Status ConfigureCache();
  void SendToAll(const worker::ControllerMessage& message);
  RankState& state(int32_t rank) { return states_[static_cast<size_t>(rank)]; }

  const WorkerHubOptions& options_;
  std::vector<Member> members_;  // by rank
  std::vector<RankState> states_;
  RendezvousStore store_;
  Stage stage_ = Stage::kSelfTest;
  absl::Time stage_begin_;
  GroupInfo info_;
  std::shared_ptr<GroupSteps> steps_;
};

}  // namespace millrace

#endif  // DISTRIBUTED_CONTROLLER_CLUSTER_GROUP_ASSEMBLY_H_
