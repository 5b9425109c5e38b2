// One output, in the type of y.
#ifndef KERNELS_STORED_LINEAR_STORED_LINEAR_KERNEL_STORE_CUH_
#define KERNELS_STORED_LINEAR_STORED_LINEAR_KERNEL_STORE_CUH_

#include <cuda_bf16.h>

#include "kernels/stored_linear/stored_linear_kernel.h"

namespace millrace {

__device__ __forceinline__ void StoreOutput(const StoredLinearKernelArgs& args, int token, int row,
                                            float value) {
  const int64_t at = token * args.y_stride + row;
  if (args.y_bf16) {
    static_cast<__nv_bfloat16*>(args.y)[at] = __float2bfloat16_rn(value);
  } else {
    static_cast<float*>(args.y)[at] = value;
  }
}

}  // namespace millrace

#endif  // KERNELS_STORED_LINEAR_STORED_LINEAR_KERNEL_STORE_CUH_
