// Reads a whole small file.
#ifndef ENGINE_CONFIG_READ_FILE_H_
#define ENGINE_CONFIG_READ_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace millrace {

// The bytes of the regular file `path`, which may be a link to one. NotFound: no such file.
// InvalidArgument: not a regular file, or larger than `max_bytes`. Unavailable: cannot be read.
// Any thread.
absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t max_bytes);

}  // namespace millrace

#endif  // ENGINE_CONFIG_READ_FILE_H_
