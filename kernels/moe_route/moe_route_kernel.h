// What moe_route_kernel.cu and moe_route_cuda.cc both see.
#ifndef KERNELS_MOE_ROUTE_MOE_ROUTE_KERNEL_H_
#define KERNELS_MOE_ROUTE_MOE_ROUTE_KERNEL_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <type_traits>

namespace millrace {

// What both routers read and write. Strides in elements.
struct RouteKernelTokens {
  const float* logits = nullptr;
  int32_t* experts = nullptr;
  float* weights = nullptr;
  int64_t logits_stride = 0;
  int64_t experts_stride = 0;
  int64_t weights_stride = 0;
  int32_t tokens = 0;
  int32_t num_experts = 0;
  int32_t chosen = 0;
  float scaling = 0;
};

struct RouteByScoreKernelArgs {
  RouteKernelTokens tokens;
  const float* bias = nullptr;
  // Rows of logits and the bias are aligned to 16 bytes, and num_experts % 4 == 0.
  bool aligned = false;
};

struct RouteByHashKernelArgs {
  RouteKernelTokens tokens;
  const int32_t* ids = nullptr;
  const int32_t* last_tokens = nullptr;
  const int32_t* table = nullptr;
  int64_t table_stride = 0;
  int32_t slots = 0;
  int32_t table_rows = 0;
};
static_assert(std::is_trivially_copyable_v<RouteByScoreKernelArgs> &&
              std::is_trivially_copyable_v<RouteByHashKernelArgs>);

// Largest num_experts of LaunchRouteByScore.
inline constexpr int kMaxRoutedExperts = 1024;

// REQUIRES: at least one token.
cudaError_t LaunchRouteByScore(const RouteByScoreKernelArgs& args, cudaStream_t stream);
cudaError_t LaunchRouteByHash(const RouteByHashKernelArgs& args, cudaStream_t stream);

}  // namespace millrace

#endif  // KERNELS_MOE_ROUTE_MOE_ROUTE_KERNEL_H_
