// Files that may be compressed.
#ifndef TOOLS_TOKENIZE_TOKENIZER_FILE_H_
#define TOOLS_TOKENIZE_TOKENIZER_FILE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/tokenizer/tokenizer.h"

namespace millrace {

// The contents of `path`, unpacked if it is gzip. NotFound when it cannot be read, DataLoss when it
// is broken, ResourceExhausted past 1 GiB.
absl::StatusOr<std::string> ReadMaybeGzip(const std::string& path);

// A tokenizer.json or tokenizer.json.gz.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& path);

}  // namespace millrace

#endif  // TOOLS_TOKENIZE_TOKENIZER_FILE_H_
