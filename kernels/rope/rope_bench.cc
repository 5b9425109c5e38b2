// Rope on the CPU, against the memory's read bandwidth (it reads and writes x once).
//
//   bazel run -c opt //kernels/rope:rope_bench -- [threads]
#include <algorithm>
#include <cstdlib>
#include <thread>
#include <utility>

#include "kernels/bench/bench.h"
#include "kernels/core/check.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/rope/rope.h"
#include "kernels/rope/rope_cases.h"

namespace millrace {
namespace {

constexpr double kSeconds = 0.5;

Buffer Take(CpuDevice& device, int64_t bytes) {
  auto buffer = device.Allocate(bytes);
  MR_CHECK(buffer.ok());
  return std::move(buffer).value();
}

BenchTime Run(CpuDevice& device, const RopeCase& c) {
  const Buffer x = Take(device, c.tokens * c.heads * c.dim * DTypeBytes(c.dtype));
  const Buffer positions = Take(device, c.tokens * 4), frequencies = Take(device, c.dim / 2 * 4);
  std::fill_n(static_cast<float*>(frequencies.data()), c.dim / 2, 0.37f);
  for (int64_t t = 0; t < c.tokens; ++t) {
    static_cast<int32_t*>(positions.data())[t] = static_cast<int32_t>(t);
  }
  Workspace workspace;
  const OpContext ctx = {device, Stream{}, workspace};
  const RopeArgs args = {.x = TensorView::Of(x.data(), c.dtype, {c.tokens, c.heads, c.dim}),
                         .positions = TensorView::Of(positions.data(), DType::kI32, {c.tokens}),
                         .inv_freq = TensorView::Of(frequencies.data(), DType::kF32, {c.dim / 2})};
  return MeasureRuns(kSeconds, [&](int64_t) { MR_CHECK(Rope(ctx, args).ok()); });
}

void Bench(int threads) {
  auto device = CpuDevice::Create(threads);
  MR_CHECK(device.ok());
  BenchTable table(MeasureCpuCeiling(*(*device)->thread_pool(), **device));
  table.Note((*device)->Properties()->name);
  for (const RopeCase& c : kRopeServed) {
    const double elements = static_cast<double>(c.tokens * c.heads * c.dim);
    table.Row(
        c.name,
        {.bytes = 2 * elements * static_cast<double>(DTypeBytes(c.dtype)), .flops = 3 * elements},
        Run(**device, c));
  }
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  millrace::Bench(argc > 1 ? std::atoi(argv[1]) : std::max(1, cores));
  return 0;
}
