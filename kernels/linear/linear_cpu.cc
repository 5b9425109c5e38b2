#include <algorithm>

#include "kernels/core/status.h"
#include "kernels/cpu/isa_choice.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/linear/linear_impl.h"

namespace millrace {
namespace {

// Tokens that are prepared at once. Bounds the workspace; more would not be faster.
constexpr int64_t kMaxTokens = 512;
// Weights that are worth another thread: about 2 us of streaming.
constexpr int64_t kWeightsPerTask = 8192;
// Inputs that are worth another thread when preparing.
constexpr int64_t kPreparedPerTask = 16384;
// Widest vector, in floats.
constexpr int64_t kMaxLanes = 16;

// Inputs of a token block: 320 KiB of a 512 KiB L2.
constexpr int64_t kTokenBlockFloats = 80 * 1024;
// Fewer tokens would not pay for widening the weights once more.
constexpr int64_t kFewestTokens = 48;
// Widened weights (8 rows) and the tile's tokens share L1. One thread, 512 tokens, 400 / 640 / 800
// / 1100: K = 576 82 / 90 / 89 / 89, K = 1536 78 / 83 / 81 / 81, K = 2048 79 / 82 / 84 / 74
// GFLOP/s; two per cent is noise (AMD EPYC 7003, AVX2, 2026-11-29).
constexpr int64_t kMostInputs = 640;
// A multiple of every tile's tokens.
constexpr int64_t kTileTokens = 6;

int64_t DivideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t RoundUp(int64_t a, int64_t b) { return DivideUp(a, b) * b; }

int64_t MostTokensOfBlock(int64_t padded_inputs) {
  return std::max(kFewestTokens, kTokenBlockFloats / padded_inputs);
}

const LinearKernels& KernelsFor(CpuIsa isa, bool bf16) {
  return ForIsa(isa, kLinearScalar, kLinearAvx2, kLinearAvx512)[bf16];
}

absl::StatusOr<float*> TakeFloats(WorkspaceScope& scope, int64_t count) {
  ASSIGN_OR_RETURN(void* memory, scope.Take(count * static_cast<int64_t>(sizeof(float))));
  return static_cast<float*>(memory);
}

// The bias as f32, copied when it is not.
absl::StatusOr<const float*> WidenBias(const LinearArgs& args, WorkspaceScope& scope) {
  if (!args.bias) return nullptr;
  if (args.bias->dtype == DType::kF32) return args.bias->as<float>();
  const int64_t outputs = args.bias->dim(0);
  ASSIGN_OR_RETURN(float* bias, TakeFloats(scope, outputs));
  std::transform(args.bias->as<BFloat16>(), args.bias->as<BFloat16>() + outputs, bias, ToFloat);
  return bias;
}

struct TokenSpan {
  int64_t begin, end;
};

// Fills prepared[input_blocks][tokens][inputs of the block] for some tokens of x.
void PrepareTokens(const TensorView& x, const LinearKernels& kernels, int64_t block_inputs,
                   TokenSpan span, float* prepared) {
  const int64_t tokens = x.dim(0), inputs = x.dim(1);
  const int64_t padded = LinearPaddedInputs(inputs);
  for (int64_t i = 0; i < padded; i += block_inputs) {
    const int64_t width = std::min(block_inputs, padded - i);
    const int64_t have = std::min(width, inputs - i);
    for (int64_t t = span.begin; t < span.end; ++t) {
      const int64_t from = t * x.stride(0) + i;
      float* to = prepared + i * tokens + t * width;
      if (x.dtype == DType::kF32) {
        kernels.prepare_f32(x.as<float>() + from, have, width, to);
      } else {
        kernels.prepare_bf16(x.as<BFloat16>() + from, have, width, to);
      }
    }
  }
}

void RunStreamed(ThreadPool& pool, const LinearKernels& kernels, const LinearOperands& a) {
  const int64_t grain = RoundUp(DivideUp(kWeightsPerTask, a.inputs + 1), 4);
  pool.ParallelFor(a.outputs, grain,
                   [&](int64_t begin, int64_t end, int) { kernels.stream(a, begin, end); });
}

void RunBlocked(ThreadPool& pool, const LinearKernels& kernels, const LinearOperands& a,
                const LinearBlocks& blocks, float* scratch) {
  const int64_t row_blocks = DivideUp(a.outputs, kLinearBlockRows);
  const int64_t floats = LinearScratchFloats(LinearPaddedInputs(a.inputs));
  pool.ParallelFor(
      blocks.token_blocks * row_blocks, 1, [&](int64_t begin, int64_t end, int thread) {
        for (int64_t i = begin; i < end; ++i) {
          kernels.block(a, blocks, i / row_blocks, i % row_blocks, scratch + thread * floats);
        }
      });
}

}  // namespace

LinearBlocks PlanLinearBlocks(int64_t tokens, int64_t padded_inputs) {
  LinearBlocks blocks;
  blocks.token_blocks = DivideUp(tokens, MostTokensOfBlock(padded_inputs));
  blocks.tokens = RoundUp(DivideUp(tokens, blocks.token_blocks), kTileTokens);
  blocks.token_blocks = DivideUp(tokens, blocks.tokens);
  blocks.input_blocks = DivideUp(padded_inputs, kMostInputs);
  blocks.inputs = RoundUp(DivideUp(padded_inputs, blocks.input_blocks), kLinearPadding);
  return blocks;
}

int64_t LinearScratchFloats(int64_t padded_inputs) {
  const int64_t tokens = RoundUp(MostTokensOfBlock(padded_inputs), kTileTokens);
  const int64_t inputs = std::min(RoundUp(kMostInputs, kLinearPadding), padded_inputs);
  return kLinearBlockRows * (inputs + kLinearRowGap + tokens * kMaxLanes);
}

// The blocked kernel passes the streaming one between 32 and 48 tokens. 16 / 32 / 48 tokens of
// 3072 x 576 bf16, one thread: streamed 75 / 77 / 76, blocked 65 / 76 / 81 GFLOP/s (AMD EPYC 7003,
// AVX2, 2026-11-29). Other instruction sets have not been measured.
int64_t LinearMaxStreamedTokens(CpuIsa isa) { return 32; }

int64_t LinearCpuWorkspaceBytes(int threads, int64_t max_inputs, int64_t max_outputs) {
  const int64_t most = LinearPaddedInputs(max_inputs);
  int64_t scratch = 0;
  for (int64_t padded = kLinearPadding; padded <= most; padded += kLinearPadding) {
    scratch = std::max(scratch, LinearScratchFloats(padded));
  }
  const auto bytes = [](int64_t floats) { return RoundUp(floats * 4, 256); };
  return bytes(kMaxTokens * most) + bytes(threads * scratch) + bytes(max_outputs);
}

absl::Status LinearCpu(const OpContext& ctx, const LinearArgs& args) {
  ThreadPool& pool = *ctx.device.thread_pool();
  const LinearKernels& kernels = KernelsFor(pool.isa(), args.weight.dtype == DType::kBF16);
  WorkspaceScope scope(ctx.workspace);
  const int64_t tokens = std::min(args.x.dim(0), kMaxTokens);
  const int64_t inputs = args.x.dim(1);
  const int64_t padded = LinearPaddedInputs(inputs);
  ASSIGN_OR_RETURN(float* prepared, TakeFloats(scope, tokens * padded));
  ASSIGN_OR_RETURN(const float* bias, WidenBias(args, scope));
  const bool streamed = tokens <= LinearMaxStreamedTokens(pool.isa());
  float* scratch = nullptr;
  if (!streamed) {
    ASSIGN_OR_RETURN(scratch, TakeFloats(scope, pool.threads() * LinearScratchFloats(padded)));
  }
  for (int64_t first = 0; first < args.x.dim(0); first += tokens) {
    const int64_t end = std::min(first + tokens, args.x.dim(0));
    const TensorView x = args.x.Rows(first, end);
    const TensorView y = args.y.Rows(first, end);
    const LinearBlocks blocks = PlanLinearBlocks(end - first, padded);
    const int64_t block_inputs = streamed ? padded : blocks.inputs;
    pool.ParallelFor(end - first, std::max<int64_t>(1, kPreparedPerTask / (padded + 1)),
                     [&](int64_t a, int64_t b, int) {
                       PrepareTokens(x, kernels, block_inputs, {a, b}, prepared);
                     });
    const LinearOperands operands = {.x = prepared,
                                     .tokens = end - first,
                                     .inputs = inputs,
                                     .weight = args.weight.data,
                                     .weight_stride = args.weight.stride(0),
                                     .outputs = args.weight.dim(0),
                                     .bias = bias,
                                     .y = y.data,
                                     .y_stride = y.stride(0),
                                     .y_bf16 = y.dtype == DType::kBF16};
    if (streamed) {
      RunStreamed(pool, kernels, operands);
    } else {
      RunBlocked(pool, kernels, operands, blocks, scratch);
    }
  }
  return absl::OkStatus();
}

}  // namespace millrace
