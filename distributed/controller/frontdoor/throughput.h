// Tokens per second between two looks at the engine's counters.
#ifndef DISTRIBUTED_CONTROLLER_FRONTDOOR_THROUGHPUT_H_
#define DISTRIBUTED_CONTROLLER_FRONTDOOR_THROUGHPUT_H_

#include <string>

#include "distributed/controller/frontdoor/monotonic_time.h"
#include "engine/runtime/engine.h"

namespace millrace {

struct Throughput {
  double prompt_tokens_per_second = 0;
  double generated_tokens_per_second = 0;
  double prefix_hit_rate = 0;  // of the interval, 0 to 1
  bool busy = false;           // something ran or waits
};

// One caller at a time.
class ThroughputMeter final {
 public:
  // Since the last call; the first one, and those closer than a tenth of a second, repeat the
  // figures before.
  Throughput Update(const EngineStats& stats, MonotonicTime now);

 private:
  bool started_ = false;
  MonotonicTime last_time_;
  SchedulerStats last_;
  Throughput throughput_;
};

// The line that is printed every ten seconds while the server is busy.
std::string ThroughputLine(const Throughput& throughput, const EngineStats& stats);

}  // namespace millrace

#endif  // DISTRIBUTED_CONTROLLER_FRONTDOOR_THROUGHPUT_H_
