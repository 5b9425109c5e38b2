#include <algorithm>

#include "kernels/cpu/thread_pool.h"
#include "kernels/embedding/embedding_impl.h"

namespace millrace {
namespace {

// Elements that are worth another thread: a few microseconds of work.
constexpr int64_t kElementsPerTask = 32768;

// T to T is a copy, f32 to bf16 rounds to nearest even, bf16 to f32 is exact.
void CopyRow(const float* from, int64_t width, float* to) { std::copy_n(from, width, to); }
void CopyRow(const BFloat16* from, int64_t width, BFloat16* to) { std::copy_n(from, width, to); }
void CopyRow(const BFloat16* from, int64_t width, float* to) {
  for (int64_t i = 0; i < width; ++i) to[i] = ToFloat(from[i]);
}
void CopyRow(const float* from, int64_t width, BFloat16* to) {
  for (int64_t i = 0; i < width; ++i) to[i] = ToBFloat16(from[i]);
}

// Of token t, in 64 bits, so that none can wrap into the range; negative for none.
int64_t IdOf(const EmbeddingArgs& args, int64_t t) {
  const int64_t id = args.ids.as<int32_t>()[t];
  if (id >= 0) return id;
  const int64_t slot = -1 - id;
  if (!args.last_tokens || slot >= args.last_tokens->dim(0)) return -1;
  return args.last_tokens->as<int32_t>()[slot];
}

template <typename W, typename T>
void Lookup(const EmbeddingArgs& args, int64_t begin, int64_t end) {
  const int64_t width = args.y.dim(1);
  for (int64_t t = begin; t < end; ++t) {
    const int64_t id = IdOf(args, t);
    const int64_t row = id - args.first_id;
    T* out = args.y.as<T>() + t * args.y.stride(0);
    if (id < 0 || row < 0 || row >= args.table.dim(0)) {
      std::fill_n(out, width, T{});
    } else {
      CopyRow(args.table.as<W>() + row * args.table.stride(0), width, out);
    }
  }
}

using LookupFn = void (*)(const EmbeddingArgs&, int64_t, int64_t);
// [table is bf16][y is bf16]
constexpr LookupFn kLookups[2][2] = {{Lookup<float, float>, Lookup<float, BFloat16>},
                                     {Lookup<BFloat16, float>, Lookup<BFloat16, BFloat16>}};

}  // namespace

absl::Status EmbeddingCpu(const OpContext& ctx, const EmbeddingArgs& args) {
  const LookupFn lookup = kLookups[args.table.dtype == DType::kBF16][args.y.dtype == DType::kBF16];
  ctx.device.thread_pool()->ParallelFor(
      args.y.dim(0), std::max<int64_t>(1, kElementsPerTask / args.y.dim(1)),
      [&](int64_t begin, int64_t end, int) { lookup(args, begin, end); });
  return absl::OkStatus();
}

}  // namespace millrace
