#include "kernels/all_reduce/all_reduce.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/all_reduce/all_reduce_impl.h"
#include "kernels/all_reduce/packet.h"
#include "kernels/core/op_table.h"
#include "kernels/core/shape_checker.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

// The host's memory has faster ways (distributed/comm).
constexpr OpTable<AllReduceRmsNormArgs> kAllReduceRmsNorm = {
    .op = "AllReduceRmsNorm", .cpu = nullptr, .cuda = AllReduceRmsNormCuda};

bool RowsAligned(const TensorView& t) {
  const bool stride = t.rank != 2 || t.dim(0) <= 1 || t.stride(0) % 4 == 0;
  return reinterpret_cast<uintptr_t>(t.data) % 8 == 0 && stride;
}

bool IsComplete(const AllReducePeers& peers) {
  if (peers.size < 1 || peers.size > kAllReduceMaxRanks) return false;
  const auto end = peers.inboxes.begin() + peers.size;
  return peers.rank >= 0 && peers.rank < peers.size && peers.state != nullptr &&
         std::find(peers.inboxes.begin(), end, nullptr) == end;
}

}  // namespace

int64_t AllReduceInboxBytes(int32_t size, int64_t max_bytes) {
  return InboxPackets(size, PacketsOf(max_bytes)) * static_cast<int64_t>(sizeof(AllReducePacket));
}

bool AllReduceRmsNormCovers(const AllReducePeers& peers, int64_t tokens, int64_t hidden) {
  return hidden % 4 == 0 && hidden <= kAllReduceMaxHidden &&
         tokens * hidden * DTypeBytes(DType::kBF16) <= peers.max_bytes;
}

absl::Status AllReduceRmsNorm(const OpContext& ctx, const AllReduceRmsNormArgs& args) {
  int64_t tokens = kUnbound, size = kUnbound;
  ShapeChecker checker("AllReduceRmsNorm", ctx.device.type());
  checker.Bind("x", args.x, {&tokens, &size}, {DType::kBF16})
      .Bind("residual", args.residual, {&tokens, &size}, {DType::kBF16})
      .Bind("weight", args.weight, {&size}, {DType::kBF16})
      .Bind("y", args.y, {&tokens, &size}, {DType::kBF16})
      .Require(size % 4 == 0 && size <= kAllReduceMaxHidden,
               absl::StrCat("rows of ", size, " elements, want a multiple of 4, at most ",
                            kAllReduceMaxHidden))
      .Require(RowsAligned(args.x) && RowsAligned(args.residual) && RowsAligned(args.weight) &&
                   RowsAligned(args.y),
               "every row must start on 8 bytes")
      .Require(args.eps > 0, "eps must be positive")
      .Require(IsComplete(args.peers), "the peers are not complete");
  RETURN_IF_ERROR(checker.status());
  const int64_t bytes = tokens * size * DTypeBytes(DType::kBF16);
  checker.Require(bytes <= args.peers.max_bytes,
                  absl::StrCat("a message of ", bytes, " bytes, at most ", args.peers.max_bytes));
  RETURN_IF_ERROR(checker.status());
  if (args.x.empty()) return absl::OkStatus();
  return RunOnDevice(kAllReduceRmsNorm, ctx, args);
}

}  // namespace millrace
