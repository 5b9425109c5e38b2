#include <algorithm>

#include "kernels/cpu/thread_pool.h"
#include "kernels/merge_columns/merge_columns_impl.h"

namespace millrace {
namespace {

// Elements that are worth another thread: a few microseconds of work.
constexpr int64_t kElementsPerTask = 32768;

}  // namespace

absl::Status MergeColumnsCpu(const OpContext& ctx, const MergeColumnsArgs& args) {
  const int64_t rows = args.y.dim(0);
  ctx.device.thread_pool()->ParallelFor(rows,
                                        std::max<int64_t>(1, kElementsPerTask / args.y.dim(1)),
                                        [&](int64_t begin, int64_t end, int) {
                                          for (int64_t r = begin; r < end; ++r) {
                                            const float* part = args.parts.as<const float>();
                                            float* to = args.y.as<float>() + r * args.y.stride(0);
                                            for (const int64_t columns : args.columns) {
                                              to = std::copy_n(part + r * columns, columns, to);
                                              part += rows * columns;
                                            }
                                          }
                                        });
  return absl::OkStatus();
}

}  // namespace millrace
