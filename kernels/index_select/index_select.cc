#include "kernels/index_select/index_select.h"

#include "kernels/core/op_table.h"
#include "kernels/core/shape_checker.h"
#include "kernels/core/status.h"
#include "kernels/index_select/index_select_impl.h"
#include "kernels/latent_cache/hadamard_fp4.h"

namespace millrace {
namespace {

constexpr OpTable<IndexSelectArgs> kIndexSelect = {
    .op = "IndexSelect", .cpu = IndexSelectCpu, .cuda = IndexSelectCuda};

}  // namespace

absl::Status IndexSelect(const OpContext& ctx, const IndexSelectArgs& args) {
  int64_t tokens = kUnbound, heads = kUnbound, dim = kUnbound, chosen = kUnbound;
  int64_t pages = kUnbound, one = 1, page_entries = kUnbound;
  ShapeChecker checker("IndexSelect", ctx.device.type());
  checker.Bind("q", args.q, {&tokens, &heads, &dim}, {DType::kF32, DType::kBF16})
      .Bind("weights", args.weights, {&tokens, &heads}, {DType::kF32, DType::kBF16})
      .Bind("keys", args.keys, {&pages, &one, &page_entries, &dim}, {DType::kF32, DType::kBF16})
      .Bind("selected", args.selected, {&tokens, &chosen}, {DType::kI32})
      .Require(heads >= 1 && dim >= 1, "q must have heads and channels")
      .Require(chosen >= 1, "selected must have room for an entry")
      .Require(args.ratio >= 1, "ratio must be at least 1")
      .Require(!args.hadamard_fp4 || HadamardFp4Covers(dim),
               "hadamard_fp4 needs heads of a power of two of channels, from 32 to 1024");
  CheckPagedBatch(checker, args.batch);
  RETURN_IF_ERROR(checker.status());
  if (args.selected.empty()) return absl::OkStatus();
  return RunOnDevice(kIndexSelect, ctx, args);
}

int64_t IndexSelectWorkspaceBytes(Device& device, int64_t heads, int64_t dim, int64_t max_entries) {
  return device.type() == DeviceType::kCpu
             ? IndexSelectCpuWorkspaceBytes(device, heads, dim, max_entries)
             : IndexSelectCudaWorkspaceBytes(heads, dim, max_entries);
}

}  // namespace millrace
