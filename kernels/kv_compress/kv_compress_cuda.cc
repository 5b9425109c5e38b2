#include <algorithm>
#include <cstdint>
#include <limits>

#include "kernels/core/rows_aligned.h"
#include "kernels/core/status.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/kv_compress/kv_compress_impl.h"
#include "kernels/kv_compress/kv_compress_kernel.h"
#include "kernels/latent_cache/latent_store_args_of.h"

namespace millrace {
namespace {

static_assert(kCompressMaxDim == kMaxCompressedDim);

// Flash's compressors on an H200, and without clusters.
constexpr KvCompressPlan kOfRatio4 = PlanKvCompress(4, 2, 512, true);
constexpr KvCompressPlan kOfRatio128 = PlanKvCompress(128, 1, 512, true);
static_assert(kOfRatio4.groups == 1);
static_assert(PlanKvCompress(4, 2, 128, false).threads == 32);
static_assert(kOfRatio128.slices == 8);
static_assert(kOfRatio128.groups == 16);
static_assert(PlanKvCompress(128, 1, 512, false).groups == 2);
static_assert(PlanKvCompress(3, 2, 20, true).threads == 32);

static_assert(CompressDivisor(3).Quotient(0x7fffffff) == 0x7fffffff / 3);
static_assert(CompressDivisor(7).Quotient(7 * 306783378) == 306783378);
static_assert(CompressDivisor(7).Quotient(7 * 306783378 - 1) == 306783377);
static_assert(CompressDivisor(1).Quotient(0x7fffffff) == 0x7fffffff);
static_assert(CompressDivisor(128).Remainder(0x7fffffff) == 127);

static_assert(PlanKvCompressUnits(kOfRatio4, 1, 8192, 4, 132).run == 4);
static_assert(PlanKvCompressUnits(kOfRatio4, 1, 8192, 4, 132).count == 514);
static_assert(PlanKvCompressUnits(kOfRatio4, 64, 64, 4, 132).count == 80);
static_assert(PlanKvCompressUnits(kOfRatio4, 1, 1, 4, 132).count == 1);
static_assert(PlanKvCompressUnits(kOfRatio128, 1, 8192, 128, 132).count == 65);

struct Gpu {
  bool has_clusters = false;
  int multiprocessors = 0;
};

absl::StatusOr<Gpu> CurrentGpu() {
  int device = 0, major = 0;
  Gpu gpu;
  RETURN_IF_ERROR(CudaStatus(cudaGetDevice(&device), "KvCompress: cudaGetDevice"));
  RETURN_IF_ERROR(
      CudaStatus(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
                 "KvCompress: cudaDeviceGetAttribute"));
  RETURN_IF_ERROR(CudaStatus(
      cudaDeviceGetAttribute(&gpu.multiprocessors, cudaDevAttrMultiProcessorCount, device),
      "KvCompress: cudaDeviceGetAttribute"));
  gpu.has_clusters = major >= 9;
  return gpu;
}

absl::Status CheckSizes(const KvCompressArgs& args) {
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max() / 8;
  const int64_t page_tokens = args.store.dim(2) * args.ape.dim(0);
  for (int64_t size :
       {args.kv.dim(0), args.batch.kv_len.dim(0), args.store.dim(0) * args.store.dim(2),
        args.state.dim(0) * args.state.dim(1), args.batch.page_table.dim(1) * page_tokens,
        args.kv.stride(0), args.score.stride(0), args.ape.dim(0) * args.ape.stride(0),
        args.batch.page_table.stride(0), args.carry ? args.carry->stride(2) : 0}) {
    if (size > kMax)
      return absl::UnimplementedError("KvCompress: a size of more than 2^28 on cuda");
  }
  return absl::OkStatus();
}

bool Aligned(const KvCompressArgs& args) {
  return RowsAligned(args.kv) && RowsAligned(args.score) && RowsAligned(args.ape) &&
         RowsAligned(args.state) && (!args.carry || RowsAligned(*args.carry));
}

// A store without rows has no pages for the kernel, whatever their size.
int32_t PositiveInt(int64_t x) { return static_cast<int32_t>(std::max<int64_t>(x, 1)); }

KvCompressKernelArgs KernelArgs(const KvCompressArgs& args, const Gpu& gpu) {
  const KvCompressShape shape = KvCompressShapeOf(args);
  const auto ratio = static_cast<int32_t>(shape.ratio), dim = static_cast<int32_t>(shape.dim);
  // A row that goes through a Hadamard matrix has one block.
  const KvCompressPlan plan =
      PlanKvCompress(ratio, shape.overlap ? 2 : 1, dim, gpu.has_clusters && !args.hadamard_fp4);
  const auto tokens = static_cast<int32_t>(args.kv.dim(0));
  const auto sequences = static_cast<int32_t>(args.batch.kv_len.dim(0));
  const KvCompressUnits units =
      PlanKvCompressUnits(plan, sequences, tokens, ratio, gpu.multiprocessors);
  KvCompressKernelArgs out = {.kv = args.kv.as<const float>(),
                              .score = args.score.as<const float>(),
                              .ape = args.ape.as<const float>(),
                              .norm_weight = args.norm_weight.data,
                              .inv_freq = args.inv_freq.as<const float>(),
                              .q_start = args.batch.q_start.as<const int32_t>(),
                              .kv_len = args.batch.kv_len.as<const int32_t>(),
                              .page_table = args.batch.page_table.as<const int32_t>(),
                              .state_slots = args.state_slots.as<const int32_t>(),
                              .state = args.state.as<float>(),
                              .store = LatentStoreArgsOf(args.store, shape.dim),
                              .plan = plan,
                              .kv_stride = static_cast<int32_t>(args.kv.stride(0)),
                              .score_stride = static_cast<int32_t>(args.score.stride(0)),
                              .ape_stride = static_cast<int32_t>(args.ape.stride(0)),
                              .table_stride = static_cast<int32_t>(args.batch.page_table.stride(0)),
                              .ratio = CompressDivisor(ratio),
                              .run = CompressDivisor(units.run),
                              .page_rows = CompressDivisor(PositiveInt(args.store.dim(2))),
                              .units = units.count,
                              .tokens = tokens,
                              .sequences = sequences,
                              .max_pages = static_cast<int32_t>(args.batch.page_table.dim(1)),
                              .slots = static_cast<int32_t>(args.state.dim(0)),
                              .dim = dim,
                              .pairs = static_cast<int32_t>(args.inv_freq.dim(0)),
                              .norm_eps = args.norm_eps,
                              .weight_bf16 = args.norm_weight.dtype == DType::kBF16,
                              .hadamard_fp4 = args.hadamard_fp4,
                              .aligned = Aligned(args)};
  if (!args.carry) return out;
  out.carry = args.carry->as<float>();
  out.carry_page_stride = args.carry->stride(0);
  out.carry_block_stride = static_cast<int32_t>(args.carry->stride(2));
  out.block_windows = CompressDivisor(PositiveInt(args.store.dim(2) / args.carry->dim(2)));
  return out;
}

}  // namespace

absl::Status KvCompressCuda(const OpContext& ctx, const KvCompressArgs& args) {
  RETURN_IF_ERROR(CheckSizes(args));
  if (args.batch.kv_len.dim(0) == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Gpu gpu, CurrentGpu());
  return CudaStatus(LaunchKvCompress(KernelArgs(args, gpu), ToCuda(ctx.stream)), "KvCompress");
}

}  // namespace millrace
