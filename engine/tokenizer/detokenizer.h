// Turns generated ids into text as they come.
#ifndef ENGINE_TOKENIZER_DETOKENIZER_H_
#define ENGINE_TOKENIZER_DETOKENIZER_H_

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "engine/tokenizer/decode_stream.h"
#include "engine/tokenizer/tokenizer.h"

namespace millrace {

// What Push() and Finish() return, joined, is Tokenizer::Decode() of all ids pushed. One thread at
// a time; the tokenizer must outlive it. O(1) per id. Memory: a few bytes, but a run of byte
// tokens is held until it ends, one byte per id (the decoder's own rule makes the whole run
// U+FFFD if any of it is broken).
class IncrementalDetokenizer {
 public:
  // `prompt` are the ids before the first one pushed; any number of its last ones will do, more
  // than 64 are not looked at. Then what is returned continues the text of the prompt: the blank
  // that a first token loses is kept, and a character begun there is completed.
  IncrementalDetokenizer(const Tokenizer& tokenizer, bool skip_special_tokens,
                         absl::Span<const int32_t> prompt = {});

  // The text that is certain now: whole characters that no later id can change.
  std::string Push(int32_t id);

  // The rest; broken bytes become U+FFFD. REQUIRES: nothing is pushed afterwards.
  std::string Finish();

 private:
  DecodeStream stream_;
};

}  // namespace millrace

#endif  // ENGINE_TOKENIZER_DETOKENIZER_H_
