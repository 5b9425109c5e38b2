// Swiglu on the CPU, for one token and for a prefill.
//
//   bazel run -c opt //kernels/swiglu:swiglu_bench -- [threads]
#include <cstdlib>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/bench/bench.h"
#include "kernels/core/check.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/swiglu/swiglu.h"

namespace millrace {
namespace {

Buffer Take(Device& device, int64_t bytes) {
  auto buffer = device.Allocate(bytes);
  MR_CHECK(buffer.ok());
  return std::move(buffer).value();
}

void Bench(int threads) {
  auto device = CpuDevice::Create(threads);
  MR_CHECK(device.ok());
  BenchTable table(MeasureCpuCeiling(*(*device)->thread_pool(), **device));
  Workspace workspace;
  const OpContext ctx = {**device, Stream{}, workspace};
  for (int64_t size : {1536, 14336}) {
    for (int64_t tokens : {1, 16, 512}) {
      const double count = static_cast<double>(tokens * size);
      const Buffer x = Take(**device, tokens * size * 8), y = Take(**device, tokens * size * 4);
      const BenchTime time = MeasureRuns(0.5, [&](int64_t) {
        MR_CHECK(Swiglu(ctx, {.x = TensorView::Of(x.data(), DType::kF32, {tokens, 2 * size}),
                              .y = TensorView::Of(y.data(), DType::kF32, {tokens, size})})
                     .ok());
      });
      // By the formula, an exponential counted as one operation.
      table.Row(absl::StrCat("f32 ", tokens, " x ", size),
                {.bytes = 12 * count, .flops = 5 * count}, time);
    }
  }
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  millrace::Bench(argc > 1 ? std::atoi(argv[1]) : cores);
}
