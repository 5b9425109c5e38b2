// The archive that GetTokenizer streams: the files a gateway needs to tokenize and to render chats.
#ifndef DISTRIBUTED_CONTROLLER_FRONTDOOR_TOKENIZER_BUNDLE_H_
#define DISTRIBUTED_CONTROLLER_FRONTDOOR_TOKENIZER_BUNDLE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace millrace {

struct TokenizerBundle {
  std::string zip;
  std::string sha256_hex;
};

// A deflated ZIP of those files of `dir` that say how to tokenize, the same bytes each time.
// FAILED_PRECONDITION when there are none; messages hold no paths.
absl::StatusOr<TokenizerBundle> BuildTokenizerBundle(const std::string& dir);

// Names of the files that would go in, sorted.
std::vector<std::string> TokenizerFiles(const std::string& dir);

}  // namespace millrace

#endif  // DISTRIBUTED_CONTROLLER_FRONTDOOR_TOKENIZER_BUNDLE_H_
