#include <algorithm>
#include <atomic>

#include "kernels/core/status.h"
#include "kernels/cpu/isa_choice.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/latent_attention/latent_attention_cpu_tile.h"
#include "kernels/latent_attention/latent_attention_impl.h"
#include "kernels/latent_cache/paged_batch_cpu.h"

namespace millrace {
namespace {

// Heads of a token that are worth another thread: below, reading its keys costs more than their
// use.
constexpr int64_t kMinTileHeads = 16;

const LatentKernels& KernelsFor(CpuIsa isa) {
  return ForIsa(isa, kLatentScalar, kLatentAvx2, kLatentAvx512);
}

char* Element(const TensorView& t, int64_t i, int64_t j) {
  return t.as<char>() + (i * t.stride(0) + j * t.stride(1)) * DTypeBytes(t.dtype);
}

// One call, cut into tiles: tile w is heads of token w / tiles per token.
class LatentRun final {
 public:
  LatentRun(const LatentAttentionArgs& args, int64_t threads, float* scratch)
      : args_(args), batch_(args.batch), scratch_(scratch) {
    const int64_t heads = args.q.dim(1);
    const int64_t wanted = batch_.tokens() >= 2 * threads ? 1 : threads;
    tile_heads_ = std::min(heads, std::max(kMinTileHeads, (heads + wanted - 1) / wanted));
    token_tiles_ = (heads + tile_heads_ - 1) / tile_heads_;
  }

  int64_t tiles() const { return batch_.tokens() * token_tiles_; }

  LatentTile Tile(int64_t w, int thread) const {
    const int64_t t = w / token_tiles_;
    const int64_t head = w % token_tiles_ * tile_heads_;
    const int64_t b = batch_.SequenceOf(t);
    const int64_t position = batch_.PositionOf(t, b);
    const int64_t dim = args_.q.dim(2);
    LatentTile tile = {
        .q = Element(args_.q, t, head),
        .out = Element(args_.out, t, head),
        .q_head_stride = args_.q.stride(1),
        .out_head_stride = args_.out.stride(1),
        .sinks = args_.sinks.as<float>() + head,
        .heads = static_cast<int32_t>(std::min(tile_heads_, args_.q.dim(1) - head)),
        .dim = static_cast<int32_t>(dim),
        .scale = args_.scale,
        .pages = batch_.Pages(b),
        .window = LatentRowsOf(args_.window_rows),
        .first = std::max<int64_t>(0, position - args_.window + 1),
        .last = position,
        .scratch = scratch_ + thread * LatentScratchFloats(args_.q.dim(1), dim),
    };
    if (args_.compressed_rows) {
      tile.compressed = LatentRowsOf(*args_.compressed_rows);
      tile.visible = (position + 1) / (args_.window_rows.dim(2) / args_.compressed_rows->dim(2));
    }
    if (args_.selected) {
      tile.selected = args_.selected->as<int32_t>() + t * args_.selected->stride(0);
      tile.num_selected = args_.selected->dim(1);
    }
    return tile;
  }

 private:
  const LatentAttentionArgs& args_;
  const PagedBatchCpu batch_;
  float* const scratch_;
  int64_t tile_heads_ = 0;
  int64_t token_tiles_ = 0;
};

int64_t ScratchBytes(int64_t threads, int64_t heads, int64_t dim) {
  return threads * LatentScratchFloats(heads, dim) * static_cast<int64_t>(sizeof(float));
}

}  // namespace

absl::Status LatentAttentionCpu(const OpContext& ctx, const LatentAttentionArgs& args) {
  RETURN_IF_ERROR(CheckPagedBatchValues("LatentAttention", args.batch,
                                        {.tokens = args.q.dim(0),
                                         .pages = args.window_rows.dim(0),
                                         .page_tokens = args.window_rows.dim(2)}));
  ThreadPool& pool = *ctx.device.thread_pool();
  WorkspaceScope workspace(ctx.workspace);
  ASSIGN_OR_RETURN(void* scratch,
                   workspace.Take(ScratchBytes(pool.threads(), args.q.dim(1), args.q.dim(2))));
  const LatentRun run(args, pool.threads(), static_cast<float*>(scratch));
  const LatentAttendFn attend = KernelsFor(pool.isa()).attend[args.q.dtype == DType::kBF16];
  // Tiles differ in cost, so threads take them one by one. Which thread does which changes nothing.
  std::atomic<int64_t> next{0};
  pool.ParallelFor(std::min<int64_t>(pool.threads(), run.tiles()), 1,
                   [&](int64_t, int64_t, int thread) {
                     for (int64_t w = next.fetch_add(1); w < run.tiles(); w = next.fetch_add(1)) {
                       attend(run.Tile(w, thread));
                     }
                   });
  return absl::OkStatus();
}

int64_t LatentAttentionWorkspaceBytes(Device& device, int64_t heads, int64_t dim) {
  if (device.type() != DeviceType::kCpu) return 0;
  return ScratchBytes(device.thread_pool()->threads(), heads, dim) + 256;  // which Take rounds up
}

}  // namespace millrace
