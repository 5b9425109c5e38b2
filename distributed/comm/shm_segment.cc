#include "distributed/comm/shm_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "distributed/session/handshake.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

constexpr int64_t kHeaderBytes = 8192;
static_assert(sizeof(ShmSegment::Header) <= kHeaderBytes);
static_assert(std::atomic<uint32_t>::is_always_lock_free);

int64_t SegmentBytes(int32_t size) { return kHeaderBytes + 2 * size * ShmSegment::kSlotBytes; }

constexpr char kWhereKey[] = "shm/where";

std::string VoteKey(int32_t rank) { return absl::StrCat("shm/sees/", rank); }

}  // namespace

std::unique_ptr<ShmSegment> ShmSegment::Map(int fd, int32_t size) {
  const int64_t bytes = SegmentBytes(size);
  struct stat info = {};
  if (fstat(fd, &info) != 0 || info.st_size != bytes) return nullptr;
  void* base = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) return nullptr;
  return std::unique_ptr<ShmSegment>(new ShmSegment(base, bytes, size));
}

ShmSegment::~ShmSegment() { munmap(base_, static_cast<size_t>(bytes_)); }

std::byte* ShmSegment::slot(int32_t set, int32_t rank) const {
  return static_cast<std::byte*>(base_) + kHeaderBytes + (set * size_ + rank) * kSlotBytes;
}

absl::StatusOr<std::unique_ptr<ShmSegment>> ShmSegment::Make(int32_t size, KeyValueStore& store,
                                                             int* fd) {
  std::unique_ptr<ShmSegment> segment;
  *fd = memfd_create("millrace", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (*fd >= 0 && ftruncate(*fd, SegmentBytes(size)) == 0 &&
      fcntl(*fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0) {
    segment = Map(*fd, size);
  }
  if (segment == nullptr) {
    RETURN_IF_ERROR(store.Set(kWhereKey, ""));
    return segment;
  }
  ASSIGN_OR_RETURN(const std::string token, RandomBytes(sizeof(Header::token)));
  new (segment->base_) Header();  // all zero, as the fresh memory is
  std::memcpy(segment->header().token.data(), token.data(), token.size());
  RETURN_IF_ERROR(store.Set(kWhereKey, absl::StrCat("/proc/", getpid(), "/fd/", *fd, " ",
                                                    absl::BytesToHexString(token))));
  return segment;
}

absl::StatusOr<std::unique_ptr<ShmSegment>> ShmSegment::Find(int32_t size, KeyValueStore& store,
                                                             absl::Duration timeout) {
  ASSIGN_OR_RETURN(const std::string where, store.Get(kWhereKey, timeout));
  const std::vector<std::string> parts = absl::StrSplit(where, ' ');
  if (parts.size() != 2 || parts[1].size() != 2 * sizeof(Header::token)) return nullptr;
  // Opening goes through the other process: it fails unless it has the same user and is visible.
  const int fd = open(parts[0].c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return nullptr;
  std::unique_ptr<ShmSegment> segment = Map(fd, size);
  close(fd);
  const std::string token = absl::HexStringToBytes(parts[1]);
  // On another host the same path may be something else.
  if (segment != nullptr &&
      std::memcmp(segment->header().token.data(), token.data(), token.size()) != 0) {
    segment.reset();
  }
  return segment;
}

absl::StatusOr<std::unique_ptr<ShmSegment>> ShmSegment::Connect(int32_t rank, int32_t size,
                                                                KeyValueStore& store,
                                                                absl::Duration timeout) {
  if (size > kMaxShmRanks) return nullptr;
  int fd = -1;
  absl::StatusOr<std::unique_ptr<ShmSegment>> segment =
      rank == 0 ? Make(size, store, &fd) : Find(size, store, timeout);
  bool all = false;
  absl::Status status = segment.status();
  if (status.ok()) {
    all = *segment != nullptr;
    if (all) (*segment)->header().ranks[static_cast<size_t>(rank)].pid.store(getpid());
    status = store.Set(VoteKey(rank), all ? "yes" : "no");
  }
  for (int32_t r = 0; r < size && status.ok(); ++r) {
    const absl::StatusOr<std::string> vote = store.Get(VoteKey(r), timeout);
    status = vote.status();
    all = all && status.ok() && *vote == "yes";
  }
  if (fd >= 0) close(fd);
  RETURN_IF_ERROR(status);
  if (!all) return nullptr;
  return std::move(*segment);
}

}  // namespace millrace
