// The group's rendezvous store, reached through the session.
#ifndef DISTRIBUTED_WORKER_SESSION_STORE_H_
#define DISTRIBUTED_WORKER_SESSION_STORE_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "distributed/comm/key_value_store.h"
#include "proto/worker.pb.h"

namespace millrace {

class SessionStore final : public KeyValueStore {
 public:
  explicit SessionStore(std::function<void(const worker::WorkerMessage&)> send)
      : send_(std::move(send)) {}

  absl::Status Set(const std::string& key, const std::string& value) override;
  absl::StatusOr<std::string> Get(const std::string& key, absl::Duration timeout) override;

  void OnValue(const worker::StoreValue& value);
  // Every Get, waiting or coming, ends UNAVAILABLE.
  void Stop();

 private:
  const std::function<void(const worker::WorkerMessage&)> send_;
  std::mutex mu_;
  std::condition_variable changed_;
  bool stopped_ = false;                                    // guarded by mu_
  uint64_t last_id_ = 0;                                    // guarded by mu_
  std::map<uint64_t, std::optional<std::string>> waiting_;  // guarded by mu_
};

}  // namespace millrace

#endif  // DISTRIBUTED_WORKER_SESSION_STORE_H_
