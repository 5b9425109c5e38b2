// Embedding on the CPU: bf16 rows of SmolLM2's table to f32 activations.
//
//   bazel run -c opt //kernels/embedding:embedding_bench -- [threads]
#include <cstdlib>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/bench/bench.h"
#include "kernels/core/check.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/embedding/embedding.h"

namespace millrace {
namespace {

constexpr int64_t kRows = 49152;
constexpr int64_t kWidth = 576;

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
  const Buffer rows = Take(**device, kRows * kWidth * 2);
  for (int64_t tokens : {1, 64, 512}) {
    const Buffer ids = Take(**device, tokens * 4), y = Take(**device, tokens * kWidth * 4);
    const BenchTime time = MeasureRuns(0.5, [&](int64_t run) {
      for (int64_t t = 0; t < tokens; ++t) {  // scattered, and others in every run
        static_cast<int32_t*>(ids.data())[t] =
            static_cast<int32_t>((run * tokens + t) * 40503 % kRows);
      }
      MR_CHECK(Embedding(ctx, {.ids = TensorView::Of(ids.data(), DType::kI32, {tokens}),
                               .table = TensorView::Of(rows.data(), DType::kBF16, {kRows, kWidth}),
                               .y = TensorView::Of(y.data(), DType::kF32, {tokens, kWidth})})
                   .ok());
    });
    table.Row(absl::StrCat("bf16 to f32, ", tokens, " tokens"),
              {.bytes = 6.0 * static_cast<double>(tokens * kWidth)}, time);
  }
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  millrace::Bench(argc > 1 ? std::atoi(argv[1]) : cores);
}
