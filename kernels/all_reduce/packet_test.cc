// The protocol of the device's all-reduce, played by threads on the host.
#include "kernels/all_reduce/packet.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace millrace {
namespace {

TEST(PacketTest, FlagsAlternateAndAreNeverZero) {
  uint32_t flag = 0;
  for (int i = 0; i < 10; ++i) {
    const uint32_t next = NextFlag(flag);
    EXPECT_NE(next & 1, flag & 1);
    flag = next;
  }
  flag = 0xfffffffdu;
  for (int i = 0; i < 5; ++i) {
    const uint32_t next = NextFlag(flag);
    EXPECT_NE(next, 0u);
    EXPECT_NE(next & 1, flag & 1) << flag;
    flag = next;
  }
}

TEST(PacketTest, AHalfKeepsDataAndFlag) {
  const AllReducePacket packet = {PacketHalf(0xdeadbeef, 7), PacketHalf(0x01020304, 7)};
  EXPECT_EQ(PacketData(packet.halves[0]), 0xdeadbeef);
  EXPECT_EQ(PacketData(packet.halves[1]), 0x01020304u);
  EXPECT_TRUE(HasFlag(packet, 7));
  EXPECT_FALSE(HasFlag(packet, 8));
  EXPECT_FALSE(HasFlag({PacketHalf(1, 7), PacketHalf(2, 6)}, 7));
  EXPECT_FALSE(HasFlag({PacketHalf(1, 6), PacketHalf(2, 7)}, 7));
}

TEST(PacketTest, MessagesDoNotOverlap) {
  constexpr int kRanks = 3;
  constexpr int64_t kMax = 5;
  std::set<int64_t> seen;
  for (const uint32_t flag : {1u, 2u}) {
    for (int from = 0; from < kRanks; ++from) {
      for (int64_t i = 0; i < kMax; ++i) {
        const int64_t at = PacketIndex(flag, kRanks, from, kMax) + i;
        EXPECT_TRUE(seen.insert(at).second);
        EXPECT_LT(at, InboxPackets(kRanks, kMax));
      }
    }
  }
  EXPECT_EQ(static_cast<int64_t>(seen.size()), InboxPackets(kRanks, kMax));
}

// What a rank sends in a call, from a number that says all of it.
uint32_t Data(int rank, int64_t call, int64_t i, int half) {
  return static_cast<uint32_t>(call * 2654435761u + static_cast<uint64_t>(rank) * 97003u +
                               static_cast<uint64_t>(2 * i + half));
}

class Play final {
 public:
  Play(int ranks, int64_t max_packets) : ranks_(ranks), max_packets_(max_packets) {
    const size_t halves = static_cast<size_t>(2 * InboxPackets(ranks, max_packets));
    for (int r = 0; r < ranks; ++r) {
      inboxes_.push_back(std::make_unique<std::atomic<uint64_t>[]>(halves));
      for (size_t i = 0; i < halves; ++i) inboxes_.back()[i] = 0;
    }
  }

  // What one rank does; the number of wrong sums. The flags start shortly before they wrap.
  int64_t Rank(int rank, int64_t calls) {
    int64_t wrong = 0;
    uint32_t flag = 0xffffffff - 100;
    for (int64_t call = 0; call < calls; ++call) {
      flag = NextFlag(flag);
      const int64_t packets = 1 + (call * 7) % max_packets_;  // long and short messages mixed
      for (int to = 0; to < ranks_; ++to) {
        for (int64_t i = 0; to != rank && i < packets; ++i) {
          for (int half = 0; half < 2; ++half) {
            At(to, flag, rank, i, half)
                .store(PacketHalf(Data(rank, call, i, half), flag), std::memory_order_relaxed);
          }
        }
      }
      for (int64_t i = 0; i < packets; ++i) wrong += Receive(rank, call, flag, i);
      if ((call + rank) % 5 == 0) std::this_thread::yield();
    }
    return wrong;
  }

 private:
  std::atomic<uint64_t>& At(int inbox, uint32_t flag, int from, int64_t i, int half) {
    const int64_t packet = PacketIndex(flag, ranks_, from, max_packets_) + i;
    return inboxes_[static_cast<size_t>(inbox)][static_cast<size_t>(2 * packet + half)];
  }

  int64_t Receive(int rank, int64_t call, uint32_t flag, int64_t i) {
    int64_t wrong = 0;
    for (int from = 0; from < ranks_; ++from) {
      if (from == rank) continue;
      AllReducePacket packet = {};
      while (!HasFlag(packet, flag)) {
        for (int half = 0; half < 2; ++half) {
          packet.halves[half] = At(rank, flag, from, i, half).load(std::memory_order_relaxed);
        }
        if (!HasFlag(packet, flag)) std::this_thread::yield();
      }
      for (int half = 0; half < 2; ++half) {
        if (PacketData(packet.halves[half]) != Data(from, call, i, half)) ++wrong;
      }
    }
    return wrong;
  }

  const int ranks_;
  const int64_t max_packets_;
  std::vector<std::unique_ptr<std::atomic<uint64_t>[]>> inboxes_;
};

TEST(PacketTest, NoRankEverTakesAnotherCallsData) {
  for (const int ranks : {2, 3}) {
    Play play(ranks, 13);
    std::vector<int64_t> wrong(static_cast<size_t>(ranks));
    std::vector<std::thread> threads;
    for (int r = 0; r < ranks; ++r) {
      threads.emplace_back([&, r] { wrong[static_cast<size_t>(r)] = play.Rank(r, 300); });
    }
    for (std::thread& thread : threads) thread.join();
    for (const int64_t n : wrong) EXPECT_EQ(n, 0);
  }
}

}  // namespace
}  // namespace millrace
