// Sample on the CPU, against one read of the logits at the memory's read bandwidth.
//
//   bazel run -c opt //kernels/sample:sample_bench -- [threads]
#include <algorithm>
#include <cstdlib>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/bench/bench.h"
#include "kernels/core/check.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/sample/sample.h"
#include "kernels/sample/sample_cases.h"

namespace millrace {
namespace {

constexpr double kSeconds = 0.5;

Buffer Take(CpuDevice& device, int64_t bytes) {
  auto buffer = device.Allocate(bytes);
  MR_CHECK(buffer.ok());
  return std::move(buffer).value();
}

BenchTime Run(CpuDevice& device, const SampleCase& c) {
  const Buffer logits = Take(device, c.rows * c.vocabulary * 4);
  std::mt19937 generator(1);
  std::normal_distribution<float> normal(0, 3);
  for (int64_t i = 0; i < c.rows * c.vocabulary; ++i) {
    static_cast<float*>(logits.data())[i] = normal(generator);
  }
  const Buffer row_out = Take(device, c.rows * 4 * 3);
  const Buffer top_out = Take(device, c.rows * kSampleTopLogprobs * 4 * 2);
  const Buffer scratch = Take(device, SampleWorkspaceBytes(device, c.rows, c.vocabulary));
  Workspace workspace(scratch.data(), scratch.bytes());
  std::vector<SampleRow> rows(static_cast<size_t>(c.rows), c.Row());
  const auto per_row = [&](int64_t i, DType dtype) {
    return TensorView::Of(static_cast<char*>(row_out.data()) + i * c.rows * 4, dtype, {c.rows});
  };
  const auto top = [&](int64_t i, DType dtype) {
    return TensorView::Of(static_cast<char*>(top_out.data()) + i * c.rows * kSampleTopLogprobs * 4,
                          dtype, {c.rows, kSampleTopLogprobs});
  };
  const SampleArgs args = {
      .logits = TensorView::Of(logits.data(), DType::kF32, {c.rows, c.vocabulary}),
      .rows = rows.data(),
      .ids = per_row(0, DType::kI32),
      .flags = per_row(1, DType::kI32),
      .logprob = per_row(2, DType::kF32),
      .top_ids = top(0, DType::kI32),
      .top_logprobs = top(1, DType::kF32)};
  return MeasureRuns(kSeconds, [&](int64_t i) {
    for (SampleRow& row : rows) row.position = i;
    MR_CHECK(Sample({device, Stream{}, workspace}, args).ok());
  });
}

void Bench(int threads) {
  auto device = CpuDevice::Create(threads);
  MR_CHECK(device.ok());
  BenchTable table(MeasureCpuCeiling(*(*device)->thread_pool(), **device));
  table.Note((*device)->Properties()->name);
  for (const SampleCase& c : kSampleServed) {
    table.Row(c.name, {.bytes = static_cast<double>(c.rows * c.vocabulary * 4)}, Run(**device, c));
  }
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  millrace::Bench(argc > 1 ? std::atoi(argv[1]) : std::max(1, cores));
  return 0;
}
