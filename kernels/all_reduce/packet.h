// How the ranks of an all-reduce write into each other's inboxes. Plain functions, the same on host
// and device; no CUDA in here.
#ifndef KERNELS_ALL_REDUCE_PACKET_H_
#define KERNELS_ALL_REDUCE_PACKET_H_

#include <cstdint>

namespace millrace {

// 16 bytes: twice 4 bytes of data and the call's flag. Each half is read and written as one, so a
// half with the right flag has the right data, without a fence or a barrier.
struct alignas(16) AllReducePacket {
  uint64_t halves[2];
};

inline constexpr int64_t kAllReducePacketData = 8;  // bytes of data of one packet

constexpr uint64_t PacketHalf(uint32_t data, uint32_t flag) {
  return static_cast<uint64_t>(flag) << 32 | data;
}
constexpr uint32_t PacketData(uint64_t half) { return static_cast<uint32_t>(half); }
constexpr bool HasFlag(const AllReducePacket& packet, uint32_t flag) {
  return static_cast<uint32_t>(packet.halves[0] >> 32) == flag &&
         static_cast<uint32_t>(packet.halves[1] >> 32) == flag;
}

// The flag of the call after the one with `flag`; the first call's is NextFlag(0). Never 0, which
// an inbox starts with, and odd and even in turn, also where the numbers start again. (A half could
// be taken for this call's if it were last written exactly 2^32 - 2 calls ago.)
constexpr uint32_t NextFlag(uint32_t flag) { return flag == 0xffffffffu ? 2 : flag + 1; }

// An inbox has two sets of a message from each rank. Calls use them in turn: who writes a set again
// has got every rank's packets of the call between, and a rank sends those only after its call
// before, which read the set, has ended.
constexpr int64_t PacketsOf(int64_t bytes) {
  return (bytes + kAllReducePacketData - 1) / kAllReducePacketData;
}
constexpr int64_t PacketIndex(uint32_t flag, int ranks, int from, int64_t max_packets) {
  return (static_cast<int64_t>(flag & 1) * ranks + from) * max_packets;
}
constexpr int64_t InboxPackets(int ranks, int64_t max_packets) { return 2 * ranks * max_packets; }

}  // namespace millrace

#endif  // KERNELS_ALL_REDUCE_PACKET_H_
