// LLaMA from FP8 weights on a GPU: against the formulas with activations rounded, graphs against
// eager steps.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/runtime/engine.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_device.h"
#include "tests/parity/cache_codes.h"
#include "tests/parity/checkpoint_writer.h"
#include "tests/parity/dequantised_checkpoint.h"
#include "tests/parity/engine_runs.h"
#include "tests/parity/fp8_llama.h"
#include "tests/parity/nearness.h"
#include "tests/parity/tiny_llama.h"

namespace millrace {
namespace {

std::unique_ptr<Engine> StartOnGpu(const std::string& dir, bool eager, bool quantize = false,
                                   DType cache = DType::kBF16) {
  return Start(dir, {.pages = 400,
                     .max_num_seqs = 64,
                     .dtype = DType::kBF16,
                     .page_tokens = 16,
                     .device = DeviceType::kCuda,
                     .enforce_eager = eager,
                     .max_model_len = 160,
                     .max_batch_tokens = 192,
                     .kv_dtype = cache,
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
    .hidden = 256, .intermediate = 8704, .layers = 1, .heads = 4, .kv_heads = 2, .head_dim = 64};

Fp8Llama Llama(QuantTarget format, const TinyLlamaShape& shape = kUneven) {
  return MakeFp8Llama(shape, format, "gpu_fp8");
}

class GpuFp8Parity : public testing::TestWithParam<QuantTarget> {
 protected:
  void SetUp() override {
    if (CudaDeviceCount() == 0) GTEST_SKIP() << "no GPU on this machine";
  }
};

TEST_P(GpuFp8Parity, LogitsAreTheFormulasOnAGpu) {
  for (const TinyLlamaShape& shape : {kUneven, kWhole, kWide}) {
    const Fp8Llama llama = Llama(GetParam(), shape);
    const std::unique_ptr<Engine> engine = StartOnGpu(llama.dir, /*eager=*/true);
    ASSERT_NE(engine, nullptr);
    ExpectNear(llama.twin, *engine, {1, 5, 33, 70, 150});
  }
}

// Each head has a scale of its own in a cache of codes.
TEST_P(GpuFp8Parity, AnFp8CacheWithScalesOnAGpu) {
  Fp8Llama llama = Llama(GetParam());
  const HeadScales scales = UnlikeScales(kUneven, 0.075f);
  std::map<std::string, WrittenTensor> tensors = StoredTensors(llama.dir);
  for (const auto& [name, tensor] : ScaleTensors(scales)) tensors[name] = tensor;
  const std::string dir = MakeFolder("gpu_fp8_cache");
  WriteCheckpoint(dir, ConfigOf(llama.dir), tensors);
  const std::unique_ptr<Engine> engine = StartOnGpu(dir, /*eager=*/true, false, DType::kU8);
  ASSERT_NE(engine, nullptr);
  llama.twin.round_cache = InCodes(scales);
  ExpectNear(llama.twin, *engine, {1, 5, 33, 70});
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
                                         QuantTarget::kFp8CtTensor, QuantTarget::kFp8ModelOpt),
                         [](const auto& info) { return Fp8FormatName(info.param); });

}  // namespace
}  // namespace millrace
