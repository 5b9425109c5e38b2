#include <algorithm>

#include "kernels/moe_experts/moe_experts_kernel_fp4.cuh"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/tensor_map.cuh"

namespace millrace {
namespace {

using moe_fp4::Layout;
using moe_fp4::Maps;

constexpr int kSharedBytes = 226 * 1024;  // the barriers beside it

int DivideUp(int a, int b) { return (a + b - 1) / b; }

template <bool kGateUp>
Layout LayoutOf(int cols) {
  const int pieces = cols / kMoeFp4Piece;
  Layout l = {};
  l.pieces = pieces;
  l.groups = 1;
  while (2 * l.groups * pieces <= kMoeFp4Warps) l.groups *= 2;
  l.group_warps = pieces > kMoeFp4Warps ? DivideUp(pieces, 2) : pieces;
  l.rows = 16 * l.groups;
  l.code_bytes = l.rows * pieces * moe_fp4::kPieceBytes;
  l.scale_row = std::min(pieces * moe_fp4::kPieceScales, moe_fp4::kScaleBox);
  l.scale_boxes = DivideUp(pieces * moe_fp4::kPieceScales, moe_fp4::kScaleBox);
  const int matrices = kGateUp ? 2 : 1;
  l.scale_box_bytes = DivideUp(l.rows / matrices * l.scale_row, 1024) * 1024;
  l.slot_bytes = l.code_bytes + matrices * l.scale_boxes * l.scale_box_bytes;
  const int sums = moe_fp4::kFinishers * moe_fp4::kSumFloats * int{sizeof(float)};
  l.slots = std::min(moe_fp4::kMostSlots, (kSharedBytes - sums) / l.slot_bytes);
  l.sums = l.slots * l.slot_bytes;
  return l;
}

struct Box {
  const void* data;
  cuuint64_t size[3];    // the innermost in bytes
  cuuint64_t stride[2];  // bytes
  cuuint32_t box[3];
  cuuint32_t rank;
  CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_128B;
};

cudaError_t MakeMap(EncodeTiled encode, const Box& b, CUtensorMap& map) {
  constexpr cuuint32_t kSteps[3] = {1, 1, 1};
  const CUresult result =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_UINT8, b.rank, const_cast<void*>(b.data), b.size,
             b.stride, b.box, kSteps, CU_TENSOR_MAP_INTERLEAVE_NONE, b.swizzle,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

// Of one matrix an expert; `rows`: of a box.
cudaError_t MakeMaps(EncodeTiled encode, const MoeMatrices& m, const Layout& layout, int rows,
                     Maps& maps, int at) {
  const auto stack = static_cast<cuuint64_t>(int64_t{m.count} * m.rows);
  const auto row = static_cast<cuuint64_t>(m.cols);
  const auto box_rows = static_cast<cuuint32_t>(rows);
  const auto pieces = static_cast<cuuint32_t>(layout.pieces);
  const cudaError_t error = MakeMap(encode,
                                    {.data = m.values,
                                     .size = {moe_fp4::kPieceBytes, stack, pieces},
                                     .stride = {row / 2, moe_fp4::kPieceBytes},
                                     .box = {moe_fp4::kPieceBytes, box_rows, pieces},
                                     .rank = 3},
                                    maps.codes[at]);
  if (error != cudaSuccess) return error;
  return MakeMap(encode,
                 {.data = m.scales,
                  .size = {row / 16, stack},
                  .stride = {row / 16},
                  .box = {static_cast<cuuint32_t>(layout.scale_row), box_rows},
                  .rank = 2,
                  .swizzle = layout.scale_row == moe_fp4::kScaleBox ? CU_TENSOR_MAP_SWIZZLE_128B
                                                                    : CU_TENSOR_MAP_SWIZZLE_NONE},
                 maps.scales[at]);
}

template <bool kGateUp>
cudaError_t LaunchFp4(const MoeKernelArgs& args, int multiprocessors, cudaStream_t stream) {
  EncodeTiled encode = nullptr;
  cudaError_t error = FindEncoder(encode);
  if (error != cudaSuccess) return error;
  const MoeMatrices& first = kGateUp ? args.gate : args.down;
  const Layout layout = LayoutOf<kGateUp>(first.cols);
  const int box_rows = kGateUp ? layout.rows / 2 : layout.rows;
  Maps maps = {};
  error = MakeMaps(encode, first, layout, box_rows, maps, 0);
  if (error == cudaSuccess && kGateUp) error = MakeMaps(encode, args.up, layout, box_rows, maps, 1);
  if (error != cudaSuccess) return error;
  const int bytes = layout.sums + moe_fp4::kFinishers * moe_fp4::kSumFloats * int{sizeof(float)};
  const LaunchShape shape = {.grid = dim3(static_cast<unsigned>(multiprocessors)),
                             .block = dim3(moe_fp4::kThreads),
                             .shared_bytes = static_cast<size_t>(bytes)};
  const auto kernel = layout.pieces > kMoeFp4Warps ? moe_fp4::MoeFp4Kernel<2, kGateUp>
                                                   : moe_fp4::MoeFp4Kernel<1, kGateUp>;
  return Launch(kernel, shape, stream, args, maps, layout);
}

}  // namespace

cudaError_t LaunchMoeFp4GateUp(const MoeKernelArgs& args, int multiprocessors,
                               cudaStream_t stream) {
  return LaunchFp4<true>(args, multiprocessors, stream);
}

cudaError_t LaunchMoeFp4Down(const MoeKernelArgs& args, int multiprocessors, cudaStream_t stream) {
  return LaunchFp4<false>(args, multiprocessors, stream);
}

}  // namespace millrace
