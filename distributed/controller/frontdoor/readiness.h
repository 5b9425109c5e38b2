// Whether the server can answer Generate, and why not. Any thread.
#ifndef DISTRIBUTED_CONTROLLER_FRONTDOOR_READINESS_H_
#define DISTRIBUTED_CONTROLLER_FRONTDOOR_READINESS_H_

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

#include "absl/status/status.h"

namespace millrace {

enum class ServerState : uint8_t { kLoading, kServing, kWorkerLost, kDraining };

class Readiness final {
 public:
  // `on_change` is called with the new value of serving() at each change, one call at a time; it
  // must not block and must not call back.
  explicit Readiness(std::function<void(bool serving)> on_change)
      : on_change_(std::move(on_change)) {}

  // Draining is final: later states are ignored.
  void Set(ServerState state, std::string detail = "");
  ServerState state() const;
  bool serving() const { return state() == ServerState::kServing; }
  // OK when serving, else UNAVAILABLE with reason LOADING, WORKER_LOST or DRAINING.
  absl::Status status() const;

 private:
  const std::function<void(bool)> on_change_;
  mutable std::mutex mu_;
  ServerState state_ = ServerState::kLoading;
  std::string detail_;
};

}  // namespace millrace

#endif  // DISTRIBUTED_CONTROLLER_FRONTDOOR_READINESS_H_
