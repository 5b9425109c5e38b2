#include "distributed/comm/shm_transport.h"

#include <linux/futex.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/core/check.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

// About 50 us of looking: longer than the ranks of a decode step part, shorter than a time slice.
constexpr int kLooks = 1500;
// How long a sleeper takes to notice what wakes no futex: a dead process, the deadline.
constexpr long kNapNanoseconds = 20 * 1000 * 1000;

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void FutexWait(std::atomic<uint32_t>* word, uint32_t seen) {
  const struct timespec nap = {0, kNapNanoseconds};
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAIT, seen, &nap, nullptr, 0);
}

void FutexWakeAll(std::atomic<uint32_t>* word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

ShmTransport::ShmTransport(std::unique_ptr<ShmSegment> segment, int32_t rank, int32_t size,
                           absl::Duration timeout)
    : segment_(std::move(segment)), rank_(rank), size_(size), timeout_(timeout) {
  for (int32_t r = 0; r < size_; ++r) {
    const int32_t pid = segment_->header().ranks[static_cast<size_t>(r)].pid.load();
    // Ranks in this very process need no watching.
    pidfds_.push_back(pid == getpid() ? -1 : static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  }
}

ShmTransport::~ShmTransport() {
  Abort();
  for (const int fd : pidfds_) {
    if (fd >= 0) close(fd);
  }
}

bool ShmTransport::Arrived(int32_t peer) const {
  const uint32_t theirs =
      segment_->header().ranks[static_cast<size_t>(peer)].round.load(std::memory_order_acquire);
  return static_cast<int32_t>(theirs - round_) >= 0;  // right across the wrap
}

bool ShmTransport::ProcessIsGone(int32_t peer) const {
  struct pollfd watch = {pidfds_[static_cast<size_t>(peer)], POLLIN, 0};
  return watch.fd >= 0 && poll(&watch, 1, 0) == 1;
}

int32_t ShmTransport::LeftBy() const {
  return static_cast<int32_t>(segment_->header().left.load(std::memory_order_acquire)) - 1;
}

absl::Status ShmTransport::Gone(int32_t who) const {
  return who == rank_ ? absl::UnavailableError("the group was aborted")
                      : absl::UnavailableError(absl::StrCat("rank ", who, " has left"));
}

absl::Status ShmTransport::Exchange(int64_t bytes) {
  MR_CHECK(bytes >= 0 && bytes <= slot_bytes());
  if (LeftBy() >= 0) return Gone(LeftBy());
  ++round_;
  ShmSegment::RankState& mine = segment_->header().ranks[static_cast<size_t>(rank_)];
  mine.round.store(round_, std::memory_order_seq_cst);
  if (mine.waiters.load(std::memory_order_seq_cst) > 0) FutexWakeAll(&mine.round);
  for (int32_t r = 0; r < size_; ++r) {
    if (r != rank_) RETURN_IF_ERROR(WaitFor(r));
  }
  return absl::OkStatus();
}

absl::Status ShmTransport::WaitFor(int32_t peer) {
  for (int look = 0; look < kLooks; ++look) {
    if (Arrived(peer)) return absl::OkStatus();
    Pause();
  }
  const absl::Time deadline = absl::Now() + timeout_;
  absl::Status status;
  while (!Arrived(peer) && Sleep(peer, deadline, &status)) {
  }
  return status;
}

bool ShmTransport::Sleep(int32_t peer, absl::Time deadline, absl::Status* status) {
  ShmSegment::RankState& theirs = segment_->header().ranks[static_cast<size_t>(peer)];
  const int32_t gone = ProcessIsGone(peer) ? peer : LeftBy();
  if (gone >= 0 || absl::Now() > deadline) {
    // It may have come and then left: what it brought is good.
    if (Arrived(peer)) return true;
    *status = gone >= 0
                  ? Gone(gone)
                  : absl::DeadlineExceededError(absl::StrCat("rank ", peer, " did not come within ",
                                                             absl::FormatDuration(timeout_)));
    return false;
  }
  theirs.waiters.fetch_add(1, std::memory_order_seq_cst);
  const uint32_t seen = theirs.round.load(std::memory_order_seq_cst);
  if (static_cast<int32_t>(seen - round_) < 0) FutexWait(&theirs.round, seen);
  theirs.waiters.fetch_sub(1, std::memory_order_seq_cst);
  return true;
}

void ShmTransport::Abort() {
  ShmSegment::Header& header = segment_->header();
  uint32_t nobody = 0;
  header.left.compare_exchange_strong(nobody, static_cast<uint32_t>(rank_) + 1);
  for (int32_t r = 0; r < size_; ++r) FutexWakeAll(&header.ranks[static_cast<size_t>(r)].round);
}

}  // namespace millrace
