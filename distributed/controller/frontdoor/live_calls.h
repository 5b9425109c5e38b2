// The Generate calls of this moment, by the clients' request ids.
#ifndef DISTRIBUTED_CONTROLLER_FRONTDOOR_LIVE_CALLS_H_
#define DISTRIBUTED_CONTROLLER_FRONTDOOR_LIVE_CALLS_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "distributed/controller/frontdoor/monotonic_time.h"

namespace millrace {

class LiveCall {
 public:
  virtual ~LiveCall() = default;
  // Ends the call with finish_reason "abort". Any thread, never waits.
  virtual void Abort() = 0;
  // Called about every second: notices readers that stopped reading.
  virtual void Tick(MonotonicTime now) = 0;
};

// Every method: any thread.
class LiveCalls final {
 public:
  // ALREADY_EXISTS while a call of this id runs.
  absl::Status Add(const std::string& id, std::shared_ptr<LiveCall> call);
  // The call has its answer: the id is free again.
  void ReleaseId(const std::string& id);
  // gRPC is done with the call.
  void Remove(const LiveCall* call);

  // Aborts those that run, by exact id. Ids that ended a short while ago count as aborted. Returns
  // the ids nobody knows.
  std::vector<std::string> Abort(const std::vector<std::string>& ids);
  void TickAll(MonotonicTime now);
  // Calls without their answer.
  int64_t running() const;

 private:
  static constexpr size_t kRemembered = 4096;

  mutable std::mutex mu_;
  absl::flat_hash_map<std::string, std::shared_ptr<LiveCall>> by_id_;
  absl::flat_hash_map<const LiveCall*, std::shared_ptr<LiveCall>> all_;
  std::deque<std::string> ended_;  // newest last
  absl::flat_hash_map<std::string, int32_t> ended_count_;
};

}  // namespace millrace

#endif  // DISTRIBUTED_CONTROLLER_FRONTDOOR_LIVE_CALLS_H_
