#include "kernels/kv_compress/kv_compress.h"

#include "kernels/core/op_table.h"
#include "kernels/core/shape_checker.h"
#include "kernels/core/status.h"
#include "kernels/kv_compress/kv_compress_impl.h"
#include "kernels/latent_cache/hadamard_fp4.h"
#include "kernels/latent_cache/latent_row.h"

namespace millrace {
namespace {

constexpr OpTable<KvCompressArgs> kKvCompress = {
    .op = "KvCompress", .cpu = KvCompressCpu, .cuda = KvCompressCuda};

void CheckState(ShapeChecker& checker, const KvCompressArgs& args, const KvCompressShape& shape) {
  int64_t sequences = args.batch.kv_len.dim(0), slots = kUnbound;
  int64_t rows = shape.state_rows(), width = shape.state_width();
  checker.Bind("state_slots", args.state_slots, {&sequences}, {DType::kI32})
      .Bind("state", args.state, {&slots, &rows, &width}, {DType::kF32})
      .Require(args.state.contiguous(), "state must be dense");
  if (!args.carry) return;
  int64_t pages = args.store.dim(0), heads = 1, blocks = kUnbound;
  int64_t carry_width = shape.carry_width();
  checker.Bind("carry", *args.carry, {&pages, &heads, &blocks, &carry_width}, {DType::kF32});
  const int64_t page_tokens = args.store.dim(2) * shape.ratio;
  checker.Require(blocks > 0 && shape.ratio > 0 && page_tokens % (blocks * shape.ratio) == 0,
                  "carry: a block must be a whole number of windows");
}

void CheckRow(ShapeChecker& checker, const KvCompressArgs& args, const KvCompressShape& shape) {
  int64_t dim = shape.dim, pairs = kUnbound;
  checker.Bind("norm_weight", args.norm_weight, {&dim}, {DType::kF32, DType::kBF16})
      .Bind("inv_freq", args.inv_freq, {&pairs}, {DType::kF32});
  CheckLatentStore(checker, "store", args.store, dim);
  checker.Require(2 * pairs <= dim, "inv_freq must have at most half as many elements as a row")
      .Require(dim % 4 == 0 && dim <= kMaxCompressedDim,
               "a row must have a multiple of 4 channels, at most 1024")
      .Require(args.store.dtype != DType::kU8 || 2 * pairs == kFp8LatentRopeDim,
               "store: FP8 rows have 64 rotated channels")
      .Require(!args.hadamard_fp4 || HadamardFp4Covers(dim),
               "hadamard_fp4 needs rows of a power of two of channels, from 32 to 1024");
}

}  // namespace

absl::Status KvCompress(const OpContext& ctx, const KvCompressArgs& args) {
  int64_t tokens = kUnbound, projected = kUnbound, ratio = kUnbound;
  ShapeChecker checker("KvCompress", ctx.device.type());
  checker.Bind("kv", args.kv, {&tokens, &projected}, {DType::kF32})
      .Bind("score", args.score, {&tokens, &projected}, {DType::kF32})
      .Bind("ape", args.ape, {&ratio, &projected}, {DType::kF32})
      .Require(ratio > 0, "ape must have a row for each token of a window")
      .Require(!args.carry || projected % 2 == 0, "with a carry, kv must have two halves")
      .Require(args.norm_eps > 0, "norm_eps must be positive");
  const KvCompressShape shape = KvCompressShapeOf(args);
  CheckPagedBatch(checker, args.batch);
  CheckRow(checker, args, shape);
  CheckState(checker, args, shape);
  RETURN_IF_ERROR(checker.status());
  if (args.kv.empty()) return absl::OkStatus();
  return RunOnDevice(kKvCompress, ctx, args);
}

}  // namespace millrace
