// What sample_kernel.cu and sample_cuda.cc both see.
#ifndef KERNELS_SAMPLE_SAMPLE_KERNEL_H_
#define KERNELS_SAMPLE_SAMPLE_KERNEL_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <type_traits>

#include "kernels/sample/sample_row.h"

namespace millrace {

// The shape of the blocks, here because the plan depends on it.
inline constexpr int kSampleThreads = 512;
inline constexpr int kSampleTile = 128;  // logits that a warp loads at once, four a lane
inline constexpr int kSampleRoundLogits = kSampleThreads * 4;  // one tile of each warp
inline constexpr int kSampleRegisterTiles = 6;
inline constexpr int kSampleSharedTiles = 26;  // with the lists, 226 KiB of shared memory

// How a row is spread over the chip.
struct SamplePlan {
  int cluster = 1;         // blocks that hold one row together
  int tiles = 0;           // of each warp
  int register_tiles = 0;  // of them, the first so many lie in registers
  bool staged = false;     // the row is kept on the chip; else it is read again from L2
};

struct SampleDevice {
  int compute_capability = 0;
  int multiprocessors = 0;
};

// As many blocks a row as fit half of the multiprocessors: more of them, where clusters must find
// their places together, wait for one another (H200, 2026-11-30, V = 128256, greedy: 32 rows in
// clusters of 2 take 8.7 us, of 4 11.7 us; 16 rows of 4 6.7 us, of 8 7.3 us, of 16 11.1 us). With
// many rows, as few as hold a row.
constexpr SamplePlan PlanSample(int64_t rows, int64_t vocabulary, SampleDevice device) {
  const auto tiles = [vocabulary](int cluster) {
    const int64_t round = int64_t{cluster} * kSampleRoundLogits;
    return static_cast<int>((vocabulary + round - 1) / round);
  };
  SamplePlan plan = {.cluster = 1, .tiles = tiles(1)};
  if (device.compute_capability < 90) return plan;
  for (int cluster = 1; cluster <= 16; cluster *= 2) {
    const int t = tiles(cluster);
    const int in_registers = t > kSampleSharedTiles ? kSampleRegisterTiles : 0;
    if (t - in_registers > kSampleSharedTiles) continue;
    if (plan.staged && 2 * rows * cluster > device.multiprocessors) break;
    plan = {.cluster = cluster, .tiles = t, .register_tiles = in_registers, .staged = true};
    if (t == 1) break;
  }
  return plan;
}

// As SampleArgs. Strides in elements.
struct SampleKernelArgs {
  const float* logits = nullptr;
  int64_t logits_stride = 0;
  const SampleRow* rows = nullptr;
  float* changed = nullptr;  // not staged: [rows, vocabulary] for rows changed by their lists
  int32_t* ids = nullptr;
  int32_t* flags = nullptr;
  float* logprob = nullptr;
  int32_t* top_ids = nullptr;
  int64_t top_ids_stride = 0;
  float* top_logprobs = nullptr;
  int64_t top_logprobs_stride = 0;
  int32_t* last_tokens = nullptr;  // or null
  int64_t slots = 0;
  int32_t num_rows = 0;
  int32_t vocabulary = 0;
  int32_t tiles = 0;
};
static_assert(std::is_trivially_copyable_v<SampleKernelArgs>);

// As TokenLogprobsArgs.
struct TokenLogprobsKernelArgs {
  const float* logits = nullptr;
  int64_t logits_stride = 0;
  const int32_t* targets = nullptr;
  float* logprob = nullptr;
  int32_t* rank = nullptr;
  int32_t* top_ids = nullptr;
  int64_t top_ids_stride = 0;
  float* top_logprobs = nullptr;
  int64_t top_logprobs_stride = 0;
  int32_t top = 0;
  int32_t num_rows = 0;
  int32_t vocabulary = 0;
  int32_t tiles = 0;
};
static_assert(std::is_trivially_copyable_v<TokenLogprobsKernelArgs>);

cudaError_t LaunchSample(const SamplePlan& plan, const SampleKernelArgs& args, cudaStream_t stream);
cudaError_t LaunchTokenLogprobs(const SamplePlan& plan, const TokenLogprobsKernelArgs& args,
                                cudaStream_t stream);

}  // namespace millrace

#endif  // KERNELS_SAMPLE_SAMPLE_KERNEL_H_
