// model.safetensors.index.json: which file holds which tensor.
#ifndef ENGINE_WEIGHTS_SHARD_INDEX_H_
#define ENGINE_WEIGHTS_SHARD_INDEX_H_

#include <map>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace millrace {

// Tensor name -> file name, each a plain name ending in .safetensors. `where` begins messages.
// InvalidArgument: malformed JSON, a key twice, no weight_map, or a file name with a path in it.
absl::StatusOr<std::map<std::string, std::string>> ParseShardIndex(std::string_view json,
                                                                   const std::string& where);

// InvalidArgument when dir/name is a link to something outside `dir`. A Hugging Face cache is the
// one exception: files of MODEL/snapshots/REVISION are links into MODEL/blobs. OK when the file is
// missing: opening it says so better.
absl::Status CheckInsideFolder(const std::string& dir, const std::string& name);

}  // namespace millrace

#endif  // ENGINE_WEIGHTS_SHARD_INDEX_H_
