#include "engine/weights/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace millrace {
namespace {

absl::StatusOr<absl::Span<const std::byte>> Map(int fd, const std::string& path) {
  struct stat info = {};
  if (fstat(fd, &info) != 0) {
    return absl::UnavailableError(absl::StrCat(path, ": ", strerror(errno)));
  }
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a regular file"));
  }
  const auto size = static_cast<size_t>(info.st_size);
  if (size == 0) return absl::Span<const std::byte>();  // mmap refuses empty files
  void* const start = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (start == MAP_FAILED) {
    return absl::UnavailableError(absl::StrCat(path, ": cannot be mapped: ", strerror(errno)));
  }
  return absl::MakeConstSpan(static_cast<const std::byte*>(start), size);
}

}  // namespace

absl::StatusOr<std::unique_ptr<MappedFile>> MappedFile::Open(const std::string& path) {
  // Without O_NONBLOCK a pipe in the file's place would wait for a writer.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    const std::string message = absl::StrCat(path, ": ", strerror(errno));
    return errno == ENOENT ? absl::NotFoundError(message) : absl::UnavailableError(message);
  }
  absl::StatusOr<absl::Span<const std::byte>> bytes = Map(fd, path);
  close(fd);  // the mapping stays
  if (!bytes.ok()) return bytes.status();
  return std::unique_ptr<MappedFile>(new MappedFile(path, *bytes));
}

MappedFile::MappedFile(std::string path, absl::Span<const std::byte> bytes)
    : path_(std::move(path)), bytes_(bytes) {}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void PrefetchMapped(absl::Span<const std::byte> bytes) {
  if (bytes.empty()) return;
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(bytes.data());
  const uintptr_t start = begin / page * page;
  // Only a hint: a kernel that declines it reads on demand.
  (void)posix_madvise(reinterpret_cast<void*>(start), begin + bytes.size() - start,
                      POSIX_MADV_WILLNEED);
}

}  // namespace millrace
