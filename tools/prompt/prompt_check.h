// Compares the prompt encoder and the completion parser with what was recorded.
#ifndef TOOLS_PROMPT_PROMPT_CHECK_H_
#define TOOLS_PROMPT_PROMPT_CHECK_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "engine/tokenizer/tokenizer.h"
#include "tools/prompt/prompt_cases.h"

namespace millrace {

// All of these: what differs, or none.
using Difference = std::optional<std::string>;

Difference CompareRendered(const PromptCase& want);
// Of the prompt as rendered here.
Difference CompareIds(const PromptCase& want, const Tokenizer& tokenizer);
// Parses the completion in the pieces that end at `cuts` (in order, inside the text), and what is
// left behind the last. Also compares what was given out on the way with the whole.
Difference CompareParsed(const ParseCase& want, absl::Span<const size_t> cuts);

}  // namespace millrace

#endif  // TOOLS_PROMPT_PROMPT_CHECK_H_
