#include "kernels/cuda/cublas_lt_library.h"

#include <dlfcn.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

template <typename Function>
absl::Status Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  if (*function != nullptr) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("cuBLASLt has no ", name));
}

}  // namespace

absl::StatusOr<CublasLtLibrary> CublasLtLibrary::Load() {
  const std::string name = absl::StrCat("libcublasLt.so.", CUBLAS_VER_MAJOR);
  void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::NotFoundError(absl::StrCat("cannot load ", name, ": ", dlerror(),
                                            "; add CUDA's lib64 to LD_LIBRARY_PATH"));
  }
  CublasLtLibrary f;
  RETURN_IF_ERROR(Find(library, "cublasLtCreate", &f.create));
  RETURN_IF_ERROR(Find(library, "cublasLtDestroy", &f.destroy));
  RETURN_IF_ERROR(Find(library, "cublasLtGetStatusName", &f.status_name));
  RETURN_IF_ERROR(Find(library, "cublasLtMatmulDescCreate", &f.desc_create));
  RETURN_IF_ERROR(Find(library, "cublasLtMatmulDescDestroy", &f.desc_destroy));
  RETURN_IF_ERROR(Find(library, "cublasLtMatmulDescSetAttribute", &f.desc_set));
  RETURN_IF_ERROR(Find(library, "cublasLtMatrixLayoutCreate", &f.layout_create));
  RETURN_IF_ERROR(Find(library, "cublasLtMatrixLayoutDestroy", &f.layout_destroy));
  RETURN_IF_ERROR(Find(library, "cublasLtMatmulPreferenceCreate", &f.preference_create));
  RETURN_IF_ERROR(Find(library, "cublasLtMatmulPreferenceDestroy", &f.preference_destroy));
  RETURN_IF_ERROR(Find(library, "cublasLtMatmulPreferenceSetAttribute", &f.preference_set));
  RETURN_IF_ERROR(Find(library, "cublasLtMatmulAlgoGetHeuristic", &f.heuristic));
  RETURN_IF_ERROR(Find(library, "cublasLtMatmul", &f.matmul));
  return f;
}

}  // namespace millrace
