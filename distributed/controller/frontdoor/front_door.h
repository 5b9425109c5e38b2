// What the calls of one server share.
#ifndef DISTRIBUTED_CONTROLLER_FRONTDOOR_FRONT_DOOR_H_
#define DISTRIBUTED_CONTROLLER_FRONTDOOR_FRONT_DOOR_H_

#include <atomic>
#include <chrono>
#include <cstdint>

#include "distributed/controller/frontdoor/live_calls.h"
#include "distributed/controller/frontdoor/metrics.h"
#include "distributed/controller/frontdoor/monotonic_time.h"
#include "distributed/controller/frontdoor/readiness.h"
#include "distributed/controller/frontdoor/served_model.h"
#include "distributed/controller/frontdoor/task_pool.h"
#include "distributed/wire/request_limits.h"
#include "engine/runtime/engine.h"

namespace millrace {

struct FrontDoorLimits {
  // Of events that wait for one client to read.
  int64_t max_queued_bytes = 1 << 20;
  // A client that reads nothing for so long is given up.
  std::chrono::milliseconds slow_reader_timeout{30000};
  // Prompts up to this size are tokenized on the thread the request came on.
  int64_t inline_text_bytes = 4096;
};

// All pointers outlive every call.
struct FrontDoor {
  // Replaced when its max_model_len changes. Never null once there are calls.
  std::atomic<const ServedModel*> served = nullptr;
  Engine* engine = nullptr;
  Metrics* metrics = nullptr;
  Readiness* readiness = nullptr;
  LiveCalls* calls = nullptr;
  TaskPool* stream_pool = nullptr;     // detokenizes and writes
  TaskPool* admission_pool = nullptr;  // tokenizes, and other work that may take a while
  FrontDoorLimits limits;
  uint64_t seed = 0;  // of requests without one
  std::atomic<uint64_t> next_request{1};
  std::atomic<double> last_receive_unix{0};

  const ServedModel& model() const { return *served.load(); }
  RequestLimits request_limits() const {
    const ServedModel& now = model();
    return {.vocab_size = now.config.vocab_size, .max_model_len = now.max_model_len};
  }
};

}  // namespace millrace

#endif  // DISTRIBUTED_CONTROLLER_FRONTDOOR_FRONT_DOOR_H_
