#include "kernels/cpu/cpu_device.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "kernels/core/check.h"
#include "kernels/core/status.h"
#include "kernels/cpu/memory_info.h"

namespace millrace {
namespace {

constexpr int64_t kAlignment = 256;

std::string CpuModelName() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    const size_t colon = line.find(':');
    if (line.rfind("model name", 0) == 0 && colon + 2 <= line.size()) return line.substr(colon + 2);
  }
  return "CPU";
}

int64_t RoundUp(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

// Zero pages at a multiple of kHugeBytes, or null.
void* MapHuge(int64_t bytes) {
  const size_t size = static_cast<size_t>(bytes);
  const size_t huge = static_cast<size_t>(CpuDevice::kHugeBytes);
  void* mapped = mmap(nullptr, size + huge, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  const uintptr_t base = reinterpret_cast<uintptr_t>(mapped);
  const uintptr_t aligned = (base + huge - 1) / huge * huge;
  if (aligned > base) munmap(mapped, aligned - base);
  const size_t tail = base + huge - aligned;
  if (tail > 0) munmap(reinterpret_cast<void*>(aligned + size), tail);
  void* data = reinterpret_cast<void*>(aligned);
  madvise(data, size, MADV_HUGEPAGE);  // a wish: without it the memory is merely slower
  return data;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CpuDevice>> CpuDevice::Create(int threads, CpuIsa isa) {
  if (threads < 1 || threads > ThreadPool::kMaxThreads) {
    return absl::InvalidArgumentError(
        absl::StrCat("CPU device: threads = ", threads, ", want 1 to ", ThreadPool::kMaxThreads));
  }
  if (isa > DetectIsa()) {
    return absl::InvalidArgumentError(absl::StrCat("CPU device: this machine has no ",
                                                   std::string(IsaName(isa)), ", its best is ",
                                                   std::string(IsaName(DetectIsa()))));
  }
  ASSIGN_OR_RETURN(const MemoryInfo memory, ReadMemoryInfo());
  return std::unique_ptr<CpuDevice>(new CpuDevice(threads, isa, memory.free_bytes));
}

CpuDevice::CpuDevice(int threads, CpuIsa isa, int64_t budget_bytes)
    : pool_(threads, isa), budget_bytes_(budget_bytes) {}

CpuDevice::~CpuDevice() { MR_CHECK(allocations_.empty()); }

absl::StatusOr<int64_t> CpuDevice::Available() const {
  ASSIGN_OR_RETURN(const MemoryInfo memory, ReadMemoryInfo());
  const std::lock_guard<std::mutex> lock(mu_);
  return std::max<int64_t>(0, std::min(memory.free_bytes, budget_bytes_ - allocated_bytes_));
}

absl::StatusOr<DeviceProperties> CpuDevice::Properties() const {
  ASSIGN_OR_RETURN(const MemoryInfo memory, ReadMemoryInfo());
  ASSIGN_OR_RETURN(const int64_t available, Available());
  return DeviceProperties{
      .name = absl::StrCat(CpuModelName(), " (", pool_.threads(),
                           pool_.threads() == 1 ? " thread, " : " threads, ",
                           std::string(IsaName(pool_.isa())), ")"),
      .total_bytes = memory.total_bytes,
      .free_bytes = available,
      .multiprocessors = pool_.threads(),
      .compute_capability = 0,
  };
}

absl::StatusOr<Buffer> CpuDevice::Allocate(int64_t bytes) {
  if (bytes < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("CPU device: cannot allocate ", bytes, " bytes"));
  }
  if (bytes == 0) return Buffer();
  ASSIGN_OR_RETURN(const int64_t available, Available());
  if (bytes > available) {
    return absl::ResourceExhaustedError(
        absl::StrCat("CPU device: ", bytes, " bytes asked for, ", available, " are available"));
  }
  void* data = nullptr;
  if (bytes >= kHugeBytes) {
    data = MapHuge(RoundUp(bytes, kHugeBytes));
  } else {
    const size_t size = static_cast<size_t>(RoundUp(bytes, kAlignment));
    data = std::aligned_alloc(kAlignment, size);
    if (data != nullptr) std::memset(data, 0, size);
  }
  if (data == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("CPU device: the system refused ", bytes,
                                                     " bytes (", available, " looked available)"));
  }
  const std::lock_guard<std::mutex> lock(mu_);
  allocations_.emplace(data, bytes);
  allocated_bytes_ += bytes;
  return Buffer(this, data, bytes);
}

void CpuDevice::Free(void* data, MemoryKind) {
  int64_t bytes = 0;
  {
    const std::lock_guard<std::mutex> lock(mu_);
    const auto found = allocations_.find(data);
    MR_CHECK(found != allocations_.end());
    bytes = found->second;
    allocated_bytes_ -= bytes;
    allocations_.erase(found);
  }
  if (bytes >= kHugeBytes) {
    munmap(data, static_cast<size_t>(RoundUp(bytes, kHugeBytes)));
  } else {
    std::free(data);
  }
}

absl::Status CpuDevice::Copy(void* dst, const void* src, int64_t bytes, CopyKind, Stream) {
  if (bytes < 0) {
    return absl::InvalidArgumentError(absl::StrCat("CPU device: cannot copy ", bytes, " bytes"));
  }
  if (bytes > 0) std::memcpy(dst, src, static_cast<size_t>(bytes));
  return absl::OkStatus();
}

}  // namespace millrace
