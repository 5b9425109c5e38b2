// A file in memory, read only.
#ifndef ENGINE_WEIGHTS_MAPPED_FILE_H_
#define ENGINE_WEIGHTS_MAPPED_FILE_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace millrace {

// Maps a whole regular file. The file must not be shortened while it is mapped: reading past its
// new end would kill the process. Immutable; any thread.
class MappedFile final {
 public:
  // NotFound: no such file. InvalidArgument: not a regular file. Unavailable: cannot be mapped.
  static absl::StatusOr<std::unique_ptr<MappedFile>> Open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  absl::Span<const std::byte> bytes() const { return bytes_; }

 private:
  MappedFile(std::string path, absl::Span<const std::byte> bytes);

  const std::string path_;
  const absl::Span<const std::byte> bytes_;
};

// Tells the kernel that `bytes`, part of some mapped file, will be read soon.
void PrefetchMapped(absl::Span<const std::byte> bytes);

}  // namespace millrace

#endif  // ENGINE_WEIGHTS_MAPPED_FILE_H_
