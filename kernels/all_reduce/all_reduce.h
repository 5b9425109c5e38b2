// The sum of a tensor over the ranks of a group, fused with the residual addition and the
// normalisation that follow it: for the small messages of decoding, where a library's all-reduce
// and a second launch cost more than the data.
#ifndef KERNELS_ALL_REDUCE_ALL_REDUCE_H_
#define KERNELS_ALL_REDUCE_ALL_REDUCE_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "kernels/core/op_context.h"
#include "kernels/core/tensor_view.h"

namespace millrace {

inline constexpr int kAllReduceMaxRanks = 8;
// Of one rank's AllReducePeers::state.
inline constexpr int64_t kAllReduceStateBytes = 256;
// The word of `state` that ends the waiting of running and later calls once it is not 0, with sums
// of no meaning: an i32 at this offset, in bytes.
inline constexpr int64_t kAllReduceStopOffset = 8;

// Where the ranks of a group write for each other, and which of them this is. The memory is zero
// before the first call of any rank; distributed/comm makes it.
struct AllReducePeers {
  int32_t rank = 0;
  int32_t size = 1;       // 1 to kAllReduceMaxRanks
  int64_t max_bytes = 0;  // of the largest message; the same on all ranks
  // Of every rank, AllReduceInboxBytes() each, 16-byte aligned, at addresses that this device may
  // write.
  std::array<void*, kAllReduceMaxRanks> inboxes = {};
  void* state = nullptr;  // this rank's, kAllReduceStateBytes on its device
};

// Twice a packet of 16 bytes for every 8 bytes of each rank's message.
int64_t AllReduceInboxBytes(int32_t size, int64_t max_bytes);

struct AllReduceRmsNormArgs {
  AllReducePeers peers;
  TensorView x;         // [T, H] bf16; this rank's part of the sum; rows may be padded
  TensorView residual;  // [T, H] bf16, in and out; rows may be padded
  TensorView weight;    // [H] bf16
  TensorView y;         // [T, H] bf16; may be x; rows may be padded
  float eps = 0;        // > 0
};

// Largest H.
inline constexpr int64_t kAllReduceMaxHidden = 16384;

// Whether a message of [tokens, hidden] is within the limits below.
bool AllReduceRmsNormCovers(const AllReducePeers& peers, int64_t tokens, int64_t hidden);

// With h = round(residual + sum over ranks, in rank order, of x), summed in f32:
//   residual[t, i] = h[t, i]
//   y[t, i] = h[t, i] / sqrt(mean_i(h[t, i]^2) + eps) * weight[i]        in f32, rounded once.
// Every rank gets the same bits if it brings the same residual and weight.
//
// A collective: all ranks call it in the same order with the same shapes, on one stream each. Waits
// on the device, for ever if a rank does not come (kAllReduceStopOffset ends that). Can be captured
// in graphs, several on the same peers as well, as long as no two run at once.
//
// InvalidArgument for operands that do not fit together, a message of more than peers.max_bytes,
// H % 4 != 0 or H > kAllReduceMaxHidden, and rows that do not start on 8 bytes; Unimplemented where
// the device has no kernel (the CPU). Worker thread.
absl::Status AllReduceRmsNorm(const OpContext& ctx, const AllReduceRmsNormArgs& args);

}  // namespace millrace

#endif  // KERNELS_ALL_REDUCE_ALL_REDUCE_H_
