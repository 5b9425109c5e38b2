// LLaMA from FP8 weights on a GPU: against the formulas with activations rounded, graphs against
// eager steps.
#include <memory>
#include <string>
#include <vector>

#include "engine/runtime/engine.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_device.h"
#include "tests/parity/engine_runs.h"
#include "tests/parity/fp8_llama.h"
#include "tests/parity/tiny_llama.h"

namespace millrace {
namespace {

std::unique_ptr<Engine> StartOnGpu(const std::string& dir, bool eager, bool quantize = false) {
  return Start(dir, {.pages = 400,
                     .max_num_seqs = 64,
                     .dtype = DType::kBF16,
                     .page_tokens = 16,
                     .device = DeviceType::kCuda,
                     .enforce_eager = eager,
                     .max_model_len = 160,
                     .max_batch_tokens = 192,
                     .numerics = Numerics::kServing,
                     .quantize = quantize});
}

// Widths that end within blocks of 128; whole blocks, which Fp8Gated wants; and an MLP as wide as
// Fp8GateUp wants it for 150 tokens.
constexpr TinyLlamaShape kUneven = {
    .hidden = 160, .intermediate = 272, .heads = 4, .kv_heads = 2, .head_dim = 64};
constexpr TinyLlamaShape kWhole = {
    .hidden = 256, .intermediate = 384, .heads = 4, .kv_heads = 2, .head_dim = 64};
constexpr TinyLlamaShape kWide = {
    .hidden = 256, .intermediate = 8704, .heads = 4, .kv_heads = 2, .head_dim = 64};

Fp8Llama Llama(QuantTarget format, const TinyLlamaShape& shape = kUneven) {
  return MakeFp8Llama(shape, format, "gpu_fp8");
}

class GpuFp8Parity : public testing::TestWithParam<QuantTarget> {
 protected:
  void SetUp() override {
    if (CudaDeviceCount() == 0) GTEST_SKIP() << "no GPU on this machine";
  }
};

// bf16 activations put one element of many on the other side of a rounding to FP8, and weights are
// large and random here, so this is about what rounding to FP8 costs at all (fp8_llama_test: 0.16
// to 0.2 of the logits); a wrong scale or cut costs more than the logits themselves.
TEST_P(GpuFp8Parity, LogitsAreTheFormulasOnAGpu) {
  for (const TinyLlamaShape& shape : {kUneven, kWhole, kWide}) {
    const Fp8Llama llama = Llama(GetParam(), shape);
    const std::unique_ptr<Engine> engine = StartOnGpu(llama.dir, /*eager=*/true);
    ASSERT_NE(engine, nullptr);
    for (const int32_t length : {1, 5, 33, 70, 150}) {
      const Request request = Greedy(Prompt(length, length), 1, true);
      const Output output = RunAll(*engine, {request})[0];
      ASSERT_TRUE(output.status.ok()) << output.status;
      const std::vector<std::vector<double>> want = llama.twin.Logits(request.prompt);
      EXPECT_LT(Rms(Difference(want, output.logits)), 0.25 * Rms(want))
          << length << " tokens, hidden size " << shape.hidden;
    }
  }
}

TEST_P(GpuFp8Parity, AGraphIsTheEagerStepBitForBitOnAGpu) {
  const Fp8Llama llama = Llama(GetParam());
  const std::unique_ptr<Engine> eager = StartOnGpu(llama.dir, true);
  const std::unique_ptr<Engine> graph = StartOnGpu(llama.dir, false);
  ASSERT_TRUE(eager != nullptr && graph != nullptr);
  for (int32_t i = 0; i < 5; ++i) {
    const Request request = Greedy(Prompt(1 + 13 * i, i), 12, false);
    const Output a = RunAll(*eager, {request})[0], b = RunAll(*graph, {request})[0];
    ASSERT_TRUE(a.status.ok() && b.status.ok()) << a.status << b.status;
    EXPECT_EQ(a.tokens, b.tokens) << i;
    ASSERT_EQ(a.scored.size(), b.scored.size());
    for (size_t t = 0; t < a.scored.size(); ++t) {
      EXPECT_EQ(a.scored[t].token.logprob, b.scored[t].token.logprob) << i << " at " << t;
    }
  }
}

// Weights that are quantised at load are those of the checkpoint.
TEST(GpuFp8Llama, AtLoadIsTheCheckpointOfChannelsOnAGpu) {
  if (CudaDeviceCount() == 0) GTEST_SKIP() << "no GPU on this machine";
  const Fp8Llama llama = Llama(QuantTarget::kFp8Ct);
  const std::unique_ptr<Engine> stored = StartOnGpu(llama.dir, false);
  const std::unique_ptr<Engine> made = StartOnGpu(llama.plain, false, /*quantize=*/true);
  ASSERT_TRUE(stored != nullptr && made != nullptr);
  const Request request = Greedy(Prompt(30, 3), 6, true);
  EXPECT_EQ(RunAll(*stored, {request})[0].logits, RunAll(*made, {request})[0].logits);
}

INSTANTIATE_TEST_SUITE_P(Formats, GpuFp8Parity,
                         testing::Values(QuantTarget::kFp8, QuantTarget::kFp8Ct,
                                         QuantTarget::kFp8ModelOpt),
                         [](const auto& info) { return Fp8FormatName(info.param); });

}  // namespace
}  // namespace millrace
