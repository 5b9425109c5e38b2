#include "kernels/cuda/cublas_lt.h"

#include "absl/strings/str_cat.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

absl::Status LtStatus(const CublasLtLibrary& lt, cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  const std::string text = absl::StrCat(what, ": ", lt.status_name(status));
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return absl::UnimplementedError(text);
  if (status == CUBLAS_STATUS_ALLOC_FAILED) return absl::ResourceExhaustedError(text);
  return absl::InternalError(text);
}

cudaDataType_t TypeOf(DType dtype) { return dtype == DType::kF32 ? CUDA_R_32F : CUDA_R_16BF; }

// Owns the descriptors of one product. cuBLAS is column-major: it computes y^T = w x^T.
class Product final {
 public:
  explicit Product(const CublasLtLibrary& lt) : lt_(lt) {}
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;
  ~Product() {
    if (preference_ != nullptr) lt_.preference_destroy(preference_);
    for (cublasLtMatrixLayout_t layout : {w_, x_, y_}) {
      if (layout != nullptr) lt_.layout_destroy(layout);
    }
    if (desc_ != nullptr) lt_.desc_destroy(desc_);
  }

  absl::Status Describe(const CublasGemm& g) {
    RETURN_IF_ERROR(LtStatus(lt_, lt_.desc_create(&desc_, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                             "cublasLtMatmulDescCreate"));
    const cublasOperation_t transposed = CUBLAS_OP_T;
    RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_TRANSA, transposed));
    if (g.bias != nullptr) {
      RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS));
      RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, TypeOf(g.out_dtype)));
      RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, g.bias));
    }
    RETURN_IF_ERROR(Layout(&w_, g.in_dtype, g.inputs, g.outputs, g.w_stride));
    RETURN_IF_ERROR(Layout(&x_, g.in_dtype, g.inputs, g.tokens, g.x_stride));
    return Layout(&y_, g.out_dtype, g.outputs, g.tokens, g.y_stride);
  }

  absl::StatusOr<cublasLtMatmulAlgo_t> Choose(cublasLtHandle_t handle) {
    RETURN_IF_ERROR(
        LtStatus(lt_, lt_.preference_create(&preference_), "cublasLtMatmulPreferenceCreate"));
    const size_t bytes = CublasLt::kWorkspaceBytes;
    RETURN_IF_ERROR(
        LtStatus(lt_,
                 lt_.preference_set(preference_, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes,
                                    sizeof(bytes)),
                 "cublasLtMatmulPreferenceSetAttribute"));
    cublasLtMatmulHeuristicResult_t result = {};
    int found = 0;
    RETURN_IF_ERROR(
        LtStatus(lt_, lt_.heuristic(handle, desc_, w_, x_, y_, y_, preference_, 1, &result, &found),
                 "cublasLtMatmulAlgoGetHeuristic"));
    if (found == 0) return absl::UnimplementedError("cuBLASLt has no algorithm for this product");
    return result.algo;
  }

  absl::Status Run(cublasLtHandle_t handle, const CublasGemm& g, const cublasLtMatmulAlgo_t& algo,
                   void* workspace, cudaStream_t stream) {
    const float one = 1;
    const float zero = 0;
    return LtStatus(lt_,
                    lt_.matmul(handle, desc_, &one, g.w, w_, g.x, x_, &zero, g.y, y_, g.y, y_,
                               &algo, workspace, CublasLt::kWorkspaceBytes, stream),
                    "cublasLtMatmul");
  }

 private:
  template <typename T>
  absl::Status Set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    return LtStatus(lt_, lt_.desc_set(desc_, attribute, &value, sizeof(value)),
                    "cublasLtMatmulDescSetAttribute");
  }
  absl::Status Layout(cublasLtMatrixLayout_t* layout, DType dtype, int64_t rows, int64_t columns,
                      int64_t stride) {
    return LtStatus(lt_,
                    lt_.layout_create(layout, TypeOf(dtype), static_cast<uint64_t>(rows),
                                      static_cast<uint64_t>(columns), stride),
                    "cublasLtMatrixLayoutCreate");
  }

  const CublasLtLibrary& lt_;
  cublasLtMatmulDesc_t desc_ = nullptr;
  cublasLtMatrixLayout_t w_ = nullptr, x_ = nullptr, y_ = nullptr;
  cublasLtMatmulPreference_t preference_ = nullptr;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CublasLt>> CublasLt::Create() {
  ASSIGN_OR_RETURN(const CublasLtLibrary library, CublasLtLibrary::Load());
  cublasLtHandle_t handle = nullptr;
  RETURN_IF_ERROR(LtStatus(library, library.create(&handle), "cublasLtCreate"));
  return std::unique_ptr<CublasLt>(new CublasLt(library, handle));
}

CublasLt::~CublasLt() { (void)library_.destroy(handle_); }

absl::Status CublasLt::Run(const CublasGemm& g, void* workspace, cudaStream_t stream) {
  Product product(library_);
  RETURN_IF_ERROR(product.Describe(g));
  const Key key = {{g.tokens, g.inputs, g.outputs, g.x_stride, g.w_stride, g.y_stride},
                   {static_cast<int8_t>(g.in_dtype), static_cast<int8_t>(g.out_dtype),
                    static_cast<int8_t>(g.bias != nullptr)}};
  cublasLtMatmulAlgo_t algorithm;
  {
    const std::lock_guard<std::mutex> lock(mu_);
    const auto known = algorithms_.find(key);
    if (known != algorithms_.end()) {
      algorithm = known->second;
    } else {
      ASSIGN_OR_RETURN(algorithm, product.Choose(handle_));
      algorithms_.emplace(key, algorithm);
    }
  }
  return product.Run(handle_, g, algorithm, workspace, stream);
}

}  // namespace millrace
