#include "kernels/cuda/cublas_lt_library.h"

#include "absl/strings/str_cat.h"
#include "kernels/core/status.h"
#include "kernels/cuda/dynamic_library.h"

namespace millrace {

absl::StatusOr<CublasLtLibrary> CublasLtLibrary::Load() {
  ASSIGN_OR_RETURN(const DynamicLibrary library,
                   DynamicLibrary::Load(absl::StrCat("libcublasLt.so.", CUBLAS_VER_MAJOR),
                                        "add CUDA's lib64 to LD_LIBRARY_PATH"));
  CublasLtLibrary f;
  RETURN_IF_ERROR(library.Find("cublasLtCreate", &f.create));
  RETURN_IF_ERROR(library.Find("cublasLtDestroy", &f.destroy));
  RETURN_IF_ERROR(library.Find("cublasLtGetStatusName", &f.status_name));
  RETURN_IF_ERROR(library.Find("cublasLtMatmulDescCreate", &f.desc_create));
  RETURN_IF_ERROR(library.Find("cublasLtMatmulDescDestroy", &f.desc_destroy));
  RETURN_IF_ERROR(library.Find("cublasLtMatmulDescSetAttribute", &f.desc_set));
  RETURN_IF_ERROR(library.Find("cublasLtMatrixLayoutCreate", &f.layout_create));
  RETURN_IF_ERROR(library.Find("cublasLtMatrixLayoutDestroy", &f.layout_destroy));
  RETURN_IF_ERROR(library.Find("cublasLtMatmulPreferenceCreate", &f.preference_create));
  RETURN_IF_ERROR(library.Find("cublasLtMatmulPreferenceDestroy", &f.preference_destroy));
  RETURN_IF_ERROR(library.Find("cublasLtMatmulPreferenceSetAttribute", &f.preference_set));
  RETURN_IF_ERROR(library.Find("cublasLtMatmulAlgoGetHeuristic", &f.heuristic));
  RETURN_IF_ERROR(library.Find("cublasLtMatmul", &f.matmul));
  return f;
}

}  // namespace millrace
