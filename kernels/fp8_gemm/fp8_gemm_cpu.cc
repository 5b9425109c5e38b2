// The reference: every weight widened once, one dot product an output.
#include <algorithm>
#include <cstdint>

#include "kernels/core/dtype.h"
#include "kernels/core/status.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/fp8_gemm/fp8_gemm_impl.h"
#include "kernels/lowp/small_float.h"

namespace millrace {
namespace {

class Product {
 public:
  explicit Product(const Fp8GemmArgs& args) : args_(args) {}

  // All tokens of one output. `weight`: K floats of scratch.
  void Output(int64_t n, float* weight) const {
    const uint8_t* const codes = args_.weight.as<uint8_t>() + n * args_.weight.stride(0);
    for (int64_t k = 0; k < inputs_; ++k) weight[k] = kE4M3Values[codes[k]];
    for (int64_t t = 0; t < args_.x.dim(0); ++t) {
      float y =
          args_.scales == Fp8GemmScales::kBlocks ? OfBlocks(t, n, weight) : OfVectors(t, n, weight);
      if (args_.bias) y += At(*args_.bias, n);
      if (args_.residual) y += At(*args_.residual, t * args_.residual->stride(0) + n);
      const int64_t at = t * args_.y.stride(0) + n;
      if (args_.y.dtype == DType::kBF16) {
        args_.y.as<BFloat16>()[at] = ToBFloat16(y);
      } else {
        args_.y.as<float>()[at] = y;
      }
    }
  }

 private:
  static float At(const TensorView& t, int64_t i) {
    return t.dtype == DType::kBF16 ? ToFloat(t.as<BFloat16>()[i]) : t.as<float>()[i];
  }

  // Of inputs [begin, begin + 128), or what there is of them.
  float Block(int64_t t, int64_t begin, const float* weight) const {
    const uint8_t* const x = args_.x.as<uint8_t>() + t * args_.x.stride(0);
    const int64_t end = std::min(begin + kFp8GemmBlock, inputs_);
    constexpr int kChains = 8;  // sums that do not wait for each other
    float sums[kChains] = {};
    int64_t k = begin;
    for (; k + kChains <= end; k += kChains) {
      for (int i = 0; i < kChains; ++i) sums[i] += kE4M3Values[x[k + i]] * weight[k + i];
    }
    for (int i = 0; k < end; ++k, ++i) sums[i] += kE4M3Values[x[k]] * weight[k];
    float sum = 0;
    for (float part : sums) sum += part;
    return sum;
  }

  float OfBlocks(int64_t t, int64_t n, const float* weight) const {
    const float* const x_scale = args_.x_scale.as<float>() + t;
    const float* const weight_scale =
        args_.weight_scale.as<float>() + n / kFp8GemmBlock * args_.weight_scale.stride(0);
    float sum = 0;
    for (int64_t b = 0; b * kFp8GemmBlock < inputs_; ++b) {
      sum += Block(t, b * kFp8GemmBlock, weight) *
             (x_scale[b * args_.x_scale.stride(0)] * weight_scale[b]);
    }
    return sum;
  }

  float OfVectors(int64_t t, int64_t n, const float* weight) const {
    float sum = 0;
    for (int64_t k = 0; k < inputs_; k += kFp8GemmBlock) sum += Block(t, k, weight);
    const float x_scale = args_.x_scale.as<float>()[args_.x_scale.dim(0) == 1 ? 0 : t];
    const float weight_scale =
        args_.weight_scale.as<float>()[args_.weight_scale.dim(0) == 1 ? 0 : n];
    return sum * (x_scale * weight_scale);
  }

  const Fp8GemmArgs& args_;
  const int64_t inputs_ = args_.x.dim(1);
};

}  // namespace

absl::Status Fp8GemmCpu(const OpContext& ctx, const Fp8GemmArgs& args) {
  ThreadPool& pool = *ctx.device.thread_pool();
  const int64_t inputs = args.x.dim(1);
  WorkspaceScope scope(ctx.workspace);
  ASSIGN_OR_RETURN(void* const scratch,
                   scope.Take(pool.threads() * inputs * int64_t{sizeof(float)}));
  const Product product(args);
  pool.ParallelFor(args.weight.dim(0), 1, [&](int64_t begin, int64_t end, int thread) {
    float* const weight = static_cast<float*>(scratch) + thread * inputs;
    for (int64_t n = begin; n < end; ++n) product.Output(n, weight);
  });
  return absl::OkStatus();
}

}  // namespace millrace
