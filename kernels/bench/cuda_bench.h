// Times ops on a GPU as they are served: many calls captured in one CUDA graph, each with other
// operands, so that they find the caches cold and no launch latency is counted that a graph does
// not have. Built without CUDA, Create() answers Unimplemented.
#ifndef KERNELS_BENCH_CUDA_BENCH_H_
#define KERNELS_BENCH_CUDA_BENCH_H_

#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "kernels/bench/bench.h"
#include "kernels/core/device.h"

namespace millrace {

// One thread. Aborts on CUDA errors: a benchmark has no use for going on.
class CudaBench {
 public:
  // Measures the ceiling of `device`, which must outlive this; takes 2 GiB of it for that.
  static absl::StatusOr<std::unique_ptr<CudaBench>> Create(Device& device);
  virtual ~CudaBench() = default;

  virtual Stream stream() const = 0;
  virtual const CudaCeiling& ceiling() const = 0;

  // Seconds per call of run(i), i = 0, 1, ..., which enqueues one op on stream() and reads operands
  // that differ from those of the calls just before. The calls are captured in one graph (launches
  // with PDL overlap as they do in a served step) and replayed with a cold L2, several times.
  virtual BenchTime Measure(absl::FunctionRef<void(int64_t)> run) = 0;
};

}  // namespace millrace

#endif  // KERNELS_BENCH_CUDA_BENCH_H_
