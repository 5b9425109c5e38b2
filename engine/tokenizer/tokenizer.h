// Text to token ids and back, as a Hugging Face tokenizer.json describes it.
#ifndef ENGINE_TOKENIZER_TOKENIZER_H_
#define ENGINE_TOKENIZER_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/tokenizer/literal_spans.h"

namespace millrace {

class DecodeTable;

struct EncodeOptions {
  // Adds what the post-processor puts before and behind a text (such as a BOS token).
  bool add_special_tokens = false;
  // Whether special tokens spelled out in the text become those tokens. Off, they are ordinary
  // text; added tokens that are not special are still found.
  bool parse_special_tokens = true;
  // Parts of the text in which they are ordinary text all the same: what a user wrote inside a
  // prompt. In order, not overlapping, within the text. Only special tokens see these borders:
  // the text is split and merged across them as if they were not there.
  absl::Span<const TextSpan> literal_spans;
  // Whether added tokens that are not special are ordinary text in the literal spans, too: some
  // tokenizers keep control tokens among them.
  LiteralScope literal_scope = LiteralScope::kSpecialTokens;
};

// Immutable after load; any thread, any number of them at once.
class Tokenizer {
 public:
  // Reads byte-level and SentencePiece-style BPE tokenizers. Files are not trusted: whatever is
  // malformed, contradictory, too large or of a kind not known here is refused with the file
  // and the place in it. NotFound when `path` cannot be read.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> FromFile(const std::string& path);
  static absl::StatusOr<std::unique_ptr<Tokenizer>> FromJson(std::string_view json);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // InvalidArgument when `text` is not valid UTF-8 or the literal spans are not as described;
  // ResourceExhausted when it drives a pattern of the tokenizer past its limits.
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text,
                                              const EncodeOptions& options = {}) const;

  // Always valid UTF-8: bytes that form no character become U+FFFD. Ids not known add nothing.
  std::string Decode(absl::Span<const int32_t> ids, bool skip_special_tokens) const;

  // The token as it is spelled in the file; empty for an id that is not known.
  std::string_view IdToToken(int32_t id) const;
  std::optional<int32_t> TokenToId(std::string_view token) const;
  // The largest id and one. Ids below may be unknown where the file leaves gaps.
  int32_t vocab_size() const;
  bool Contains(int32_t id) const;
  bool IsSpecial(int32_t id) const;

  // For IncrementalDetokenizer.
  const DecodeTable& decode_table() const;

 private:
  struct Parts;
  class Encoder;
  class ScratchPool;
  explicit Tokenizer(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;
  std::unique_ptr<ScratchPool> scratch_pool_;
};

}  // namespace millrace

#endif  // ENGINE_TOKENIZER_TOKENIZER_H_
