// Grid: one block a token. Thread (x, y) copies the words x, x + blockDim.x, ... of the rows y,
// y + blockDim.y, ... of keys and then values. The slot is read before the wait for the kernel
// ahead. Bound by memory.
#include <algorithm>

#include "kernels/kv_append/kv_append_kernel.h"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/pdl.cuh"
#include "kernels/ptx/vector.cuh"

namespace millrace {
namespace {

constexpr int kThreads = 128;
constexpr int kWarp = 32;

template <typename From, typename To, int kWidth>
__global__ void __launch_bounds__(kThreads)
    AppendToken(const __grid_constant__ KvAppendKernelArgs args) {
  const int t = static_cast<int>(blockIdx.x);
  const int64_t slot = args.slots[t];
  WaitForPriorGrid();
  StartNextGrid();
  if (slot < 0 || slot >= args.slot_limit) return;
  const uint32_t page = static_cast<uint32_t>(slot) / static_cast<uint32_t>(args.page_tokens);
  const uint32_t offset = static_cast<uint32_t>(slot) - page * args.page_tokens;
  for (int row = static_cast<int>(threadIdx.y); row < 2 * args.heads; row += blockDim.y) {
    const KvAppendRows& rows = row < args.heads ? args.k : args.v;
    const int h = row < args.heads ? row : row - args.heads;
    const From* from =
        static_cast<const From*>(rows.from) + t * rows.token_stride + h * rows.head_stride;
    To* to = static_cast<To*>(rows.cache) + page * rows.page_stride + h * rows.cache_head_stride +
             offset * rows.slot_stride;
    [[maybe_unused]] float inverse = 1;
    if constexpr (sizeof(To) == 1) inverse = __frcp_rn(__ldg(rows.scale + h));
    for (int i = static_cast<int>(threadIdx.x) * kWidth; i < args.dim; i += blockDim.x * kWidth) {
      const Vec<From, kWidth> x = LoadVec<kWidth>(from + i);
      if constexpr (sizeof(To) == 1) {
        StoreVec(to + i, Encoded(Widened(x), inverse));
      } else {
        StoreVec(to + i, Converted<To>(x));
      }
    }
  }
}

struct Choice {
  void (*kernel)(KvAppendKernelArgs);
  int width;  // elements a word
};

using Bf16 = __nv_bfloat16;
constexpr Choice kChoices[] = {
    {AppendToken<float, float, 1>, 1}, {AppendToken<float, Bf16, 1>, 1},
    {AppendToken<Bf16, float, 1>, 1},  {AppendToken<Bf16, Bf16, 1>, 1},
    {AppendToken<Bf16, Bf16, 8>, 8},   {AppendToken<float, E4M3, 1>, 1},
    {AppendToken<Bf16, E4M3, 1>, 1},   {AppendToken<Bf16, E4M3, 8>, 8},
};

}  // namespace

cudaError_t LaunchKvAppend(KvAppendVariant variant, const KvAppendKernelArgs& args,
                           cudaStream_t stream) {
  const Choice choice = kChoices[static_cast<int>(variant)];
  const int words = std::min(kWarp, (args.dim + choice.width - 1) / choice.width);
  const int rows = std::min(2 * args.heads, kThreads / words);
  return Launch(choice.kernel,
                {.grid = dim3(static_cast<unsigned>(args.tokens)),
                 .block = dim3(static_cast<unsigned>(words), static_cast<unsigned>(rows))},
                stream, args);
}

}  // namespace millrace
