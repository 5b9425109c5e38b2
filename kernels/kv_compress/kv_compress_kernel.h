// What the .cu files and kv_compress_cuda.cc both see.
#ifndef KERNELS_KV_COMPRESS_KV_COMPRESS_KERNEL_H_
#define KERNELS_KV_COMPRESS_KV_COMPRESS_KERNEL_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <type_traits>

#include "kernels/kv_compress/kv_compress_kernel_plan.h"
#include "kernels/latent_cache/latent_store_args.h"

namespace millrace {

// Strides in elements. Lengths, pages and slots that are out of range count as none.
struct KvCompressKernelArgs {
  const float* kv = nullptr;
  const float* score = nullptr;
  const float* ape = nullptr;
  const void* norm_weight = nullptr;
  const float* inv_freq = nullptr;
  const int32_t* q_start = nullptr;
  const int32_t* kv_len = nullptr;
  const int32_t* page_table = nullptr;
  const int32_t* state_slots = nullptr;
  float* state = nullptr;
  float* carry = nullptr;  // null: windows do not overlap
  LatentStoreArgs store;
  KvCompressPlan plan;
  int32_t kv_stride = 0;
  int32_t score_stride = 0;
  int32_t ape_stride = 0;
  int32_t table_stride = 0;
  int64_t carry_page_stride = 0;
  int32_t carry_block_stride = 0;
  CompressDivisor ratio;
  CompressDivisor run;  // inner entries of a unit
  CompressDivisor page_rows;
  CompressDivisor block_windows;  // windows of a block of tokens
  int32_t units = 0;
  int32_t tokens = 0;
  int32_t sequences = 0;
  int32_t max_pages = 0;
  int32_t slots = 0;
  int32_t dim = 0;
  int32_t pairs = 0;
  float norm_eps = 0;
  bool weight_bf16 = false;
  bool hadamard_fp4 = false;
  bool aligned = false;  // every row of floats that is read starts on 16 bytes
};
static_assert(std::is_trivially_copyable_v<KvCompressKernelArgs>);

cudaError_t LaunchKvCompress(const KvCompressKernelArgs& args, cudaStream_t stream);

}  // namespace millrace

#endif  // KERNELS_KV_COMPRESS_KV_COMPRESS_KERNEL_H_
