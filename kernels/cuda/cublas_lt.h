// cuBLASLt for one device: its handle, and the algorithm of each shape met so far. Only code built
// with CUDA includes this.
#ifndef KERNELS_CUDA_CUBLAS_LT_H_
#define KERNELS_CUDA_CUBLAS_LT_H_

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <mutex>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/core/dtype.h"
#include "kernels/cuda/cublas_lt_library.h"

namespace millrace {

// y = x w^T + bias, all row-major: x [tokens, inputs], w [outputs, inputs], y [tokens, outputs].
// Strides are elements between rows. x and w have one dtype, f32 or bf16; sums are f32 (no TF32).
struct CublasGemm {
  const void* x = nullptr;
  const void* w = nullptr;
  const void* bias = nullptr;  // [outputs] in the dtype of y, or null
  void* y = nullptr;
  int64_t tokens = 0, inputs = 0, outputs = 0;
  int64_t x_stride = 0, w_stride = 0, y_stride = 0;
  DType in_dtype = DType::kBF16;
  DType out_dtype = DType::kBF16;
};

class CublasLt final {
 public:
  static constexpr int64_t kWorkspaceBytes = int64_t{32} << 20;

  static absl::StatusOr<std::unique_ptr<CublasLt>> Create();
  ~CublasLt();

  // Enqueues on `stream`. `workspace`: kWorkspaceBytes of device memory. Unimplemented when the
  // library has no algorithm for the shape. Any thread.
  absl::Status Run(const CublasGemm& gemm, void* workspace, cudaStream_t stream);

 private:
  struct Key {
    int64_t numbers[6];
    int8_t kinds[3];
    template <typename H>
    friend H AbslHashValue(H h, const Key& k) {
      for (int64_t n : k.numbers) h = H::combine(std::move(h), n);
      for (int8_t n : k.kinds) h = H::combine(std::move(h), n);
      return h;
    }
    friend bool operator==(const Key& a, const Key& b) = default;
  };

  CublasLt(const CublasLtLibrary& library, cublasLtHandle_t handle)
      : library_(library), handle_(handle) {}

  const CublasLtLibrary library_;
  cublasLtHandle_t handle_;
  std::mutex mu_;
  absl::flat_hash_map<Key, cublasLtMatmulAlgo_t> algorithms_;  // guarded by mu_
};

}  // namespace millrace

#endif  // KERNELS_CUDA_CUBLAS_LT_H_
