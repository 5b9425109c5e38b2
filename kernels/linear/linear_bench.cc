// Linear on the CPU: one token against the memory's read bandwidth, many tokens against oneDNN.
//
//   bazel run -c opt //kernels/linear:linear_bench -- [threads]
//
// Weights are rotated past the caches, as the layers of a model are. Compare on a quiet machine
// only, and leave `threads` at its default when comparing with oneDNN, which uses every core.
#include <dnnl.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/bench/bench.h"
#include "kernels/core/check.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/linear/linear.h"

namespace millrace {
namespace {

struct Shape {
  int64_t inputs, outputs;
};
// SmolLM2-135M: qkv, o, gate and up, down, head; then a layer of an 8B model.
constexpr Shape kShapes[] = {{576, 960},  {576, 576},   {576, 3072},
                             {1536, 576}, {576, 49152}, {4096, 4096}};
constexpr int64_t kManyTokens = 512;
constexpr int64_t kPoolBytes = int64_t{256} << 20;
constexpr double kSeconds = 1.0;

class LinearBench final {
 public:
  explicit LinearBench(CpuDevice& device) : device_(device) {
    weights_ = Take(kPoolBytes);
    // Small values of either sign in both dtypes: 0x3c3c as bf16 and twice that as f32.
    for (int64_t i = 0; i < kPoolBytes / 2; ++i) {
      static_cast<uint16_t*>(weights_.data())[i] =
          static_cast<uint16_t>(0x3c3c | ((i * 2654435761u) >> 16 & 0x8003));
    }
    workspace_memory_ = Take(LinearWorkspaceBytes(device, 4096, 49152));
  }

  BenchTime Run(int64_t tokens, Shape s, DType dtype) {
    const Buffer x = Ones(tokens * s.inputs), y = Ones(tokens * s.outputs);
    Workspace workspace(workspace_memory_.data(), workspace_memory_.bytes());
    const OpContext ctx = {device_, Stream{}, workspace};
    return MeasureRuns(kSeconds, [&](int64_t i) {
      MR_CHECK(
          Linear(ctx, {.x = TensorView::Of(x.data(), DType::kF32, {tokens, s.inputs}),
                       .weight = TensorView::Of(Weights(i, s, dtype), dtype, {s.outputs, s.inputs}),
                       .bias = {},
                       .y = TensorView::Of(y.data(), DType::kF32, {tokens, s.outputs})})
              .ok());
    });
  }

  BenchTime RunOneDnn(int64_t tokens, Shape s) {
    const Buffer x = Ones(tokens * s.inputs), y = Ones(tokens * s.outputs);
    return MeasureRuns(kSeconds, [&](int64_t i) {
      MR_CHECK_EQ(dnnl_sgemm('N', 'T', tokens, s.outputs, s.inputs, 1.0f,
                             static_cast<const float*>(x.data()), s.inputs,
                             static_cast<const float*>(Weights(i, s, DType::kF32)), s.inputs, 0.0f,
                             static_cast<float*>(y.data()), s.outputs),
                  dnnl_success);
    });
  }

 private:
  Buffer Take(int64_t bytes) {
    auto buffer = device_.Allocate(bytes);
    MR_CHECK(buffer.ok());
    return std::move(buffer).value();
  }
  Buffer Ones(int64_t count) {
    Buffer buffer = Take(count * 4);
    std::fill_n(static_cast<float*>(buffer.data()), count, 1.0f);
    return buffer;
  }
  void* Weights(int64_t i, Shape s, DType dtype) const {
    const int64_t bytes = s.inputs * s.outputs * DTypeBytes(dtype);
    return static_cast<char*>(weights_.data()) + i % (kPoolBytes / bytes) * bytes;
  }

  CpuDevice& device_;
  Buffer weights_;
  Buffer workspace_memory_;
};

BenchWork WorkOf(int64_t tokens, Shape s, DType dtype) {
  return {.bytes = static_cast<double>(s.inputs * s.outputs * DTypeBytes(dtype) +
                                       tokens * (s.inputs + s.outputs) * 4),
          .flops = 2.0 * static_cast<double>(tokens * s.inputs * s.outputs)};
}

std::string Name(const char* what, int64_t tokens, Shape s) {
  return absl::StrCat(what, " ", tokens, " x ", s.inputs, " -> ", s.outputs);
}

void Bench(int threads) {
  auto device = CpuDevice::Create(threads);
  MR_CHECK(device.ok());
  LinearBench bench(**device);
  BenchTable table(MeasureCpuCeiling(*(*device)->thread_pool(), **device));
  table.Note((*device)->Properties()->name);
  for (int64_t tokens : {1, 4, 16}) {
    for (Shape s : kShapes) {
      table.Row(Name("bf16", tokens, s), WorkOf(tokens, s, DType::kBF16),
                bench.Run(tokens, s, DType::kBF16));
    }
  }
  // oneDNN's threads go on spinning for a while after a call: all of ours first.
  std::vector<std::pair<Shape, BenchTime>> ours;
  for (Shape s : kShapes) {
    if (s.outputs > 10000) continue;  // the head sees only the last token of a sequence
    ours.emplace_back(s, bench.Run(kManyTokens, s, DType::kBF16));
    table.Row(Name("bf16", kManyTokens, s), WorkOf(kManyTokens, s, DType::kBF16),
              ours.back().second);
    table.Row(Name("f32", kManyTokens, s), WorkOf(kManyTokens, s, DType::kF32),
              bench.Run(kManyTokens, s, DType::kF32));
  }
  for (const auto& [s, time] : ours) {
    const BenchTime peer = bench.RunOneDnn(kManyTokens, s);
    table.Row(Name("dnnl_sgemm f32", kManyTokens, s), WorkOf(kManyTokens, s, DType::kF32), peer);
    table.Note(absl::StrCat(
        "bf16 reaches ", static_cast<int>(100 * peer.median_seconds / time.median_seconds),
        " % of it by the median, ", static_cast<int>(100 * peer.min_seconds / time.min_seconds),
        " % by the best run"));
  }
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  millrace::Bench(argc > 1 ? std::atoi(argv[1]) : cores);
}
