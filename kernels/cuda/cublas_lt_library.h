// cuBLASLt's functions, found when a GPU is first used (dynamic_library.h says why).
#ifndef KERNELS_CUDA_CUBLAS_LT_LIBRARY_H_
#define KERNELS_CUDA_CUBLAS_LT_LIBRARY_H_

#include <cublasLt.h>

#include "absl/status/statusor.h"

namespace millrace {

struct CublasLtLibrary {
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtGetStatusName) status_name = nullptr;
  decltype(&cublasLtMatmulDescCreate) desc_create = nullptr;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) layout_create = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;

  // Stays loaded for the life of the process. NotFound naming the library or the function.
  static absl::StatusOr<CublasLtLibrary> Load();
};

}  // namespace millrace

#endif  // KERNELS_CUDA_CUBLAS_LT_LIBRARY_H_
