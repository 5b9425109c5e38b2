// The added tokens of tokenizer.json: strings that are one token wherever they stand in a text,
// found before anything else is done with it.
#ifndef ENGINE_TOKENIZER_ADDED_TOKENS_H_
#define ENGINE_TOKENIZER_ADDED_TOKENS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/tokenizer/json_reader.h"
#include "engine/tokenizer/literal_spans.h"
#include "engine/tokenizer/normalizer.h"
#include "engine/tokenizer/regex.h"
#include "engine/tokenizer/token_trie.h"
#include "engine/tokenizer/vocabulary.h"

namespace millrace {

struct AddedToken {
  int32_t id = -1;
  std::string content;
  std::string matched;  // what is looked for: the normalized content if `normalized`
  bool single_word = false;
  bool lstrip = false;
  bool rstrip = false;
  bool normalized = false;
  bool special = false;
};

// Immutable, any thread.
class AddedTokens {
 public:
  // A stretch of text: an added token (with the blanks it took), or ordinary text (id -1).
  struct Part {
    size_t begin = 0;
    size_t end = 0;
    int32_t id = -1;
  };
  enum class Stage { kRaw, kNormalized };  // which tokens are looked for

  // Refuses ids and contents that contradict `model` or each other.
  static absl::StatusOr<AddedTokens> FromJson(const JsonRef& list, const Vocabulary& model,
                                              const Normalizer& normalizer);

  const std::vector<AddedToken>& tokens() const { return tokens_; }
  bool empty(Stage stage) const { return trie(stage).empty(); }
  // Whether any special token is looked for in normalized text.
  bool has_normalized_special() const { return has_normalized_special_; }

  // Cuts `text` into parts that cover it. Tokens in the scope of `literal` are not found where
  // they would touch one of its spans; other added tokens are. REQUIRES: valid UTF-8.
  void Split(std::string_view text, Stage stage, const LiteralSpans& literal, RegexScratch* scratch,
             std::vector<Part>* parts) const;

 private:
  const TokenTrie& trie(Stage stage) const {
    return stage == Stage::kRaw ? raw_trie_ : normalized_trie_;
  }
  static absl::StatusOr<AddedToken> ReadToken(const JsonRef& spec);
  absl::Status Insert(AddedToken token, const JsonRef& spec, const Vocabulary& model);
  bool IsWholeWord(std::string_view text, const TokenTrie::Hit& hit, RegexScratch* scratch) const;

  std::vector<AddedToken> tokens_;
  TokenTrie raw_trie_;  // values are indices into tokens_
  TokenTrie normalized_trie_;
  absl::flat_hash_map<int32_t, size_t> by_id_;
  absl::flat_hash_map<std::string, size_t> by_content_;
  std::shared_ptr<const Regex> word_character_;
  bool has_normalized_special_ = false;
};

}  // namespace millrace

#endif  // ENGINE_TOKENIZER_ADDED_TOKENS_H_
