// RmsNorm on the CPU, with the residual addition, for one token and for a prefill.
//
//   bazel run -c opt //kernels/rms_norm:rms_norm_bench -- [threads]
#include <cstdlib>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/bench/bench.h"
#include "kernels/core/check.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/rms_norm/rms_norm.h"

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
  for (int64_t size : {576, 4096}) {
    for (int64_t tokens : {1, 16, 512}) {
      const int64_t count = tokens * size;
      const Buffer x = Take(**device, count * 4), residual = Take(**device, count * 4);
      const Buffer y = Take(**device, count * 4), weight = Take(**device, size * 4);
      const auto rows = [&](const Buffer& b) {
        return TensorView::Of(b.data(), DType::kF32, {tokens, size});
      };
      const BenchTime time = MeasureRuns(0.5, [&](int64_t) {
        MR_CHECK(RmsNorm(ctx, {.x = rows(x),
                               .residual = rows(residual),
                               .weight = TensorView::Of(weight.data(), DType::kF32, {size}),
                               .y = rows(y),
                               .eps = 1e-5f})
                     .ok());
      });
      table.Row(
          absl::StrCat("f32 ", tokens, " x ", size, " with residual"),
          {.bytes = 16.0 * static_cast<double>(count), .flops = 5.0 * static_cast<double>(count)},
          time);
    }
  }
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  millrace::Bench(argc > 1 ? std::atoi(argv[1]) : cores);
}
