#include <algorithm>

#include "kernels/add/add_impl.h"
#include "kernels/cpu/thread_pool.h"

namespace millrace {
namespace {

// Elements that are worth another thread: a few microseconds of work.
constexpr int64_t kElementsPerTask = 16384;

float Load(float x) { return x; }
float Load(BFloat16 x) { return ToFloat(x); }
void Store(float value, float& out) { out = value; }
void Store(float value, BFloat16& out) { out = ToBFloat16(value); }

template <typename A, typename B, typename Y>
void AddTokens(const AddArgs& args, int64_t begin, int64_t end) {
  const int64_t width = args.y.dim(1);
  for (int64_t t = begin; t < end; ++t) {
    const A* a = args.a.as<A>() + t * args.a.stride(0);
    const B* b = args.b.as<B>() + t * args.b.stride(0);
    Y* y = args.y.as<Y>() + t * args.y.stride(0);
    for (int64_t i = 0; i < width; ++i) Store(Load(a[i]) + Load(b[i]), y[i]);
  }
}

using Body = void (*)(const AddArgs&, int64_t, int64_t);

// By whether a, b and y are bf16.
constexpr Body kBodies[2][2][2] = {
    {{AddTokens<float, float, float>, AddTokens<float, float, BFloat16>},
     {AddTokens<float, BFloat16, float>, AddTokens<float, BFloat16, BFloat16>}},
    {{AddTokens<BFloat16, float, float>, AddTokens<BFloat16, float, BFloat16>},
     {AddTokens<BFloat16, BFloat16, float>, AddTokens<BFloat16, BFloat16, BFloat16>}},
};

}  // namespace

absl::Status AddCpu(const OpContext& ctx, const AddArgs& args) {
  const auto is_bf16 = [](const TensorView& t) { return t.dtype == DType::kBF16 ? 1 : 0; };
  const Body body = kBodies[is_bf16(args.a)][is_bf16(args.b)][is_bf16(args.y)];
  ctx.device.thread_pool()->ParallelFor(
      args.y.dim(0), std::max<int64_t>(1, kElementsPerTask / args.y.dim(1)),
      [&](int64_t begin, int64_t end, int) { body(args, begin, end); });
  return absl::OkStatus();
}

}  // namespace millrace
