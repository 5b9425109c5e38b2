// Captured decode steps, one per padded batch size.
#ifndef ENGINE_RUNTIME_DECODE_GRAPHS_H_
#define ENGINE_RUNTIME_DECODE_GRAPHS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/scheduler/step_plan.h"
#include "kernels/core/device.h"

namespace millrace {

// Worker thread. The device must outlive it.
class DecodeGraphs final {
 public:
  using Enqueue = std::function<absl::Status()>;
  // Told after each graph.
  using Progress = std::function<void(int32_t done, int32_t total)>;

  // Captures the decode step of `size` padded sequences that `enqueue` puts into the stream. It
  // runs once for real before it is captured: libraries load their kernels then.
  absl::Status Add(int32_t size, Device& device, Stream stream, const Enqueue& enqueue);

  // The smallest captured size for a step that a graph can do, which is one token a sequence, each
  // sampled from and nothing else asked for; 0 where there is none.
  int32_t SizeFor(const StepPlan& plan) const;

  // REQUIRES: `size` was captured.
  absl::Status Launch(int32_t size, Device& device, Stream stream) const;

 private:
  std::map<int32_t, Graph> graphs_;
};

}  // namespace millrace

#endif  // ENGINE_RUNTIME_DECODE_GRAPHS_H_
