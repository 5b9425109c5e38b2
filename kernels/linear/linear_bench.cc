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
    const Operands o = Take(tokens, s);
    return MeasureRuns(kSeconds, [&](int64_t i) { CallLinear(o, s, dtype, i); });
  }

  // Beside one read of the same weights.
  BenchRatio CompareWithReading(int64_t tokens, Shape s) {
    const Operands o = Take(tokens, s);
    return CompareRuns([&](int64_t i) { CallLinear(o, s, DType::kBF16, i); },
                       [&](int64_t i) {
                         ReadMemory(*device_.thread_pool(), Weights(i, s, DType::kBF16),
                                    s.inputs * s.outputs * DTypeBytes(DType::kBF16));
                       });
  }

  // Our bf16 weights beside its f32 ones.
  BenchRatio CompareWithOneDnn(int64_t tokens, Shape s) {
    const Operands o = Take(tokens, s);
    return CompareRuns([&](int64_t i) { CallLinear(o, s, DType::kBF16, i); },
                       [&](int64_t i) { CallOneDnn(o, s, i); });
  }

 private:
  struct Operands {
    int64_t tokens;
    Buffer x, y;
  };
  Operands Take(int64_t tokens, Shape s) {
    return {tokens, Ones(tokens * s.inputs), Ones(tokens * s.outputs)};
  }

  void CallLinear(const Operands& o, Shape s, DType dtype, int64_t i) {
    Workspace workspace(workspace_memory_.data(), workspace_memory_.bytes());
    MR_CHECK(Linear({device_, Stream{}, workspace},
                    {.x = TensorView::Of(o.x.data(), DType::kF32, {o.tokens, s.inputs}),
                     .weight = TensorView::Of(Weights(i, s, dtype), dtype, {s.outputs, s.inputs}),
                     .bias = {},
                     .y = TensorView::Of(o.y.data(), DType::kF32, {o.tokens, s.outputs})})
                 .ok());
  }

  void CallOneDnn(const Operands& o, Shape s, int64_t i) {
    MR_CHECK_EQ(dnnl_sgemm('N', 'T', o.tokens, s.outputs, s.inputs, 1.0f,
                           static_cast<const float*>(o.x.data()), s.inputs,
                           static_cast<const float*>(Weights(i, s, DType::kF32)), s.inputs, 0.0f,
                           static_cast<float*>(o.y.data()), s.outputs),
                dnnl_success);
  }

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

std::string Percent(const BenchRatio& r) {
  const auto percent = [](double ratio) { return static_cast<int>(100 * ratio + 0.5); };
  return absl::StrCat(percent(r.median), " % (", percent(r.low), " to ", percent(r.high), ")");
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
  for (Shape s : kShapes) {
    if (s.outputs > 10000) continue;  // the head sees only the last token of a sequence
    for (DType dtype : {DType::kBF16, DType::kF32}) {
      table.Row(Name(dtype == DType::kBF16 ? "bf16" : "f32", kManyTokens, s),
                WorkOf(kManyTokens, s, dtype), bench.Run(kManyTokens, s, dtype));
    }
  }
  for (Shape s : kShapes) {
    table.Note(absl::StrCat(Name("bf16", 1, s), ": ", Percent(bench.CompareWithReading(1, s)),
                            " of reading its weights"));
  }
  for (Shape s : kShapes) {
    if (s.outputs > 10000) continue;
    table.Note(absl::StrCat(Name("bf16", kManyTokens, s), ": ",
                            Percent(bench.CompareWithOneDnn(kManyTokens, s)),
                            " of dnnl_sgemm's f32"));
  }
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  millrace::Bench(argc > 1 ? std::atoi(argv[1]) : cores);
}
