// A failed call in plain words: what happened and what the user can do.
#ifndef TOOLS_CLIENT_EXPLAIN_ERROR_H_
#define TOOLS_CLIENT_EXPLAIN_ERROR_H_

#include <string>

#include "absl/status/status.h"

namespace millrace {

// Two lines: "error: CODE: message" and "what to do". REQUIRES: !status.ok().
std::string ExplainError(const absl::Status& status, const std::string& server);

}  // namespace millrace

#endif  // TOOLS_CLIENT_EXPLAIN_ERROR_H_
