// One .safetensors file: mapped, its header checked in full before a byte of data is looked at.
#ifndef ENGINE_WEIGHTS_SAFETENSORS_FILE_H_
#define ENGINE_WEIGHTS_SAFETENSORS_FILE_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/weights/mapped_file.h"
#include "engine/weights/tensor_info.h"

namespace millrace {

// Immutable; any thread. Tensors borrow their bytes from it.
class SafetensorsFile final {
 public:
  // InvalidArgument, naming file, tensor and reason, unless the header length fits the file and
  // 100 MB, the header is well formed (ParseSafetensorsHeader), each dtype is known, each shape
  // takes exactly its bytes, and the tensors cover the rest of the file without hole or overlap.
  // NotFound, Unavailable: as MappedFile.
  static absl::StatusOr<std::unique_ptr<SafetensorsFile>> Open(const std::string& path);

  const std::string& path() const { return file_->path(); }
  // In the order of the data.
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  // The 8 length bytes and the header's text.
  absl::Span<const std::byte> header() const { return header_; }
  int64_t file_bytes() const { return static_cast<int64_t>(file_->bytes().size()); }

 private:
  SafetensorsFile(std::unique_ptr<MappedFile> file, absl::Span<const std::byte> header,
                  std::vector<TensorInfo> tensors);

  const std::unique_ptr<MappedFile> file_;
  const absl::Span<const std::byte> header_;
  const std::vector<TensorInfo> tensors_;
};

// The same checks on bytes in memory, which the result borrows. Messages carry no file name.
absl::StatusOr<std::vector<TensorInfo>> ParseSafetensors(absl::Span<const std::byte> file);

}  // namespace millrace

#endif  // ENGINE_WEIGHTS_SAFETENSORS_FILE_H_
