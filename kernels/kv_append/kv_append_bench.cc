// KvAppend on the CPU, against the memory's read bandwidth (it reads k and v and writes the rows).
//
//   bazel run -c opt //kernels/kv_append:kv_append_bench -- [threads]
#include <algorithm>
#include <cstdlib>
#include <thread>
#include <utility>

#include "kernels/bench/bench.h"
#include "kernels/core/check.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/kv_append/kv_append.h"
#include "kernels/kv_append/kv_append_cases.h"

namespace millrace {
namespace {

constexpr double kSeconds = 0.5;

Buffer Take(CpuDevice& device, int64_t bytes) {
  auto buffer = device.Allocate(bytes);
  MR_CHECK(buffer.ok());
  return std::move(buffer).value();
}

BenchTime Run(CpuDevice& device, const KvAppendCase& c) {
  const int64_t elements = c.tokens * c.heads * c.dim;
  const int64_t cache = c.pages * c.heads * c.page_tokens * c.dim;
  const Buffer k = Take(device, elements * DTypeBytes(c.from));
  const Buffer v = Take(device, elements * DTypeBytes(c.from));
  const Buffer k_cache = Take(device, cache * DTypeBytes(c.cache));
  const Buffer v_cache = Take(device, cache * DTypeBytes(c.cache));
  const Buffer slots = Take(device, c.tokens * 8);
  for (int64_t t = 0; t < c.tokens; ++t) static_cast<int64_t*>(slots.data())[t] = t;
  Workspace workspace;
  const OpContext ctx = {device, Stream{}, workspace};
  const auto rows = [&](const Buffer& b) {
    return TensorView::Of(b.data(), c.from, {c.tokens, c.heads, c.dim});
  };
  const auto pages = [&](const Buffer& b) {
    return TensorView::Of(b.data(), c.cache, {c.pages, c.heads, c.page_tokens, c.dim});
  };
  const KvAppendArgs args = {.k = rows(k),
                             .v = rows(v),
                             .slots = TensorView::Of(slots.data(), DType::kI64, {c.tokens}),
                             .k_cache = pages(k_cache),
                             .v_cache = pages(v_cache)};
  return MeasureRuns(kSeconds, [&](int64_t) { MR_CHECK(KvAppend(ctx, args).ok()); });
}

void Bench(int threads) {
  auto device = CpuDevice::Create(threads);
  MR_CHECK(device.ok());
  BenchTable table(MeasureCpuCeiling(*(*device)->thread_pool(), **device));
  table.Note((*device)->Properties()->name);
  for (const KvAppendCase& c : kKvAppendServed) {
    const double elements = static_cast<double>(2 * c.tokens * c.heads * c.dim);
    const double width = static_cast<double>(DTypeBytes(c.from) + DTypeBytes(c.cache));
    table.Row(c.name, {.bytes = elements * width}, Run(**device, c));
  }
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  millrace::Bench(argc > 1 ? std::atoi(argv[1]) : std::max(1, cores));
  return 0;
}
