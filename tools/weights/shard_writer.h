// Writes a checkpoint's safetensors files front to back, never holding a tensor.
#ifndef TOOLS_WEIGHTS_SHARD_WRITER_H_
#define TOOLS_WEIGHTS_SHARD_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/weights/tensor_info.h"

namespace millrace {

// A tensor to be written. REQUIRES of users: its bits are whole bytes.
struct OutputTensor {
  std::string name;
  FileDType dtype;
  std::vector<int64_t> shape;

  int64_t bytes() const;
};

// One thread.
class ShardWriter final {
 public:
  // Writes into the folder `dir`: model.safetensors when all fits `max_shard_bytes`, else
  // model-00001-of-0000N.safetensors and an index. A shard takes at least one tensor.
  ShardWriter(std::string dir, std::vector<OutputTensor> tensors, int64_t max_shard_bytes);

  // The next bytes of the tensors' data, in their order; may end in the middle of a tensor, and go
  // on in the next. Unavailable: a file cannot be written.
  // REQUIRES: no more bytes in all than the tensors have.
  absl::Status Append(absl::Span<const std::byte> bytes);

  // Ends the last file and writes the index. REQUIRES: all bytes were appended.
  absl::Status Finish();

 private:
  struct Shard {
    std::string file;
    size_t begin = 0;  // tensors_[begin, end)
    size_t end = 0;
    int64_t bytes = 0;
  };
  std::string Header(const Shard& shard) const;
  absl::Status OpenNext();
  absl::Status CloseFile();
  absl::Status WriteIndex() const;

  const std::string dir_;
  const std::vector<OutputTensor> tensors_;
  std::vector<Shard> shards_;
  size_t next_ = 0;   // shard to open next
  int64_t left_ = 0;  // bytes that the open shard still waits for
  std::ofstream file_;
};

}  // namespace millrace

#endif  // TOOLS_WEIGHTS_SHARD_WRITER_H_
