// A checkpoint folder: model.safetensors, or shards named by model.safetensors.index.json.
#ifndef ENGINE_WEIGHTS_CHECKPOINT_H_
#define ENGINE_WEIGHTS_CHECKPOINT_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/weights/safetensors_file.h"
#include "engine/weights/tensor_info.h"

namespace millrace {

// Immutable; any thread. Opening maps the files and reads only their headers.
class Checkpoint final {
 public:
  // NotFound: no weights in `dir`. InvalidArgument, naming file and tensor: a file that
  // SafetensorsFile refuses, an index that is malformed or names anything but plain files inside
  // `dir`, a tensor that the index puts into a shard that lacks it, or one in two shards.
  static absl::StatusOr<std::unique_ptr<Checkpoint>> Open(const std::string& dir);

  const std::string& dir() const { return dir_; }
  // Null when there is no such tensor. Lives as long as the checkpoint.
  const TensorInfo* Find(std::string_view name) const;
  // Path of the file that has it; of the folder when there is no such tensor.
  std::string FileOf(std::string_view name) const;
  // Sorted by name.
  const std::map<std::string, const TensorInfo*, std::less<>>& tensors() const { return tensors_; }
  // Sorted by path.
  const std::vector<std::unique_ptr<SafetensorsFile>>& files() const { return files_; }
  // Of all tensors' data.
  int64_t total_bytes() const;

  // SHA-256 in hex over config.json, and each file's name, size and header; not over the data.
  // NotFound, Unavailable: config.json cannot be read.
  absl::StatusOr<std::string> Fingerprint() const;

 private:
  explicit Checkpoint(std::string dir);
  absl::Status AddFile(const std::string& name);

  const std::string dir_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, const TensorInfo*, std::less<>> tensors_;
  std::map<std::string, std::string, std::less<>> file_of_;  // tensor -> file name
};

}  // namespace millrace

#endif  // ENGINE_WEIGHTS_CHECKPOINT_H_
