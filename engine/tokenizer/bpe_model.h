// The BPE model of tokenizer.json: words to ids.
#ifndef ENGINE_TOKENIZER_BPE_MODEL_H_
#define ENGINE_TOKENIZER_BPE_MODEL_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/tokenizer/json_reader.h"
#include "engine/tokenizer/merge_table.h"
#include "engine/tokenizer/merger.h"
#include "engine/tokenizer/vocabulary.h"
#include "engine/tokenizer/word_cache.h"
#include "engine/tokenizer/word_cutter.h"

namespace millrace {

// The working memory of BpeModel::Encode, of one model only. One thread at a time.
struct BpeScratch {
  WordCache cache;
  MergerScratch merger;
  std::vector<int32_t> symbols;
};

// Immutable, any thread.
class BpeModel {
 public:
  // `byte_level`: words come as bytes, and the vocabulary spells bytes in the byte-level alphabet.
  // Refused by name: other models, dropout, and non-empty subword prefixes and suffixes.
  static absl::StatusOr<BpeModel> FromJson(const JsonRef& spec, bool byte_level);

  // Appends the ids of `word` to *out. A character that no token covers becomes its byte tokens
  // (byte_fallback), or the unknown token, or nothing when there is none.
  // REQUIRES: valid UTF-8, unless byte_level.
  void Encode(std::string_view word, BpeScratch* scratch, std::vector<int32_t>* out) const;

  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  // What a character starts as: one id, several byte tokens, the unknown token, or nothing.
  struct Initial {
    int32_t id = -1;
    std::vector<int32_t> bytes;
    bool unknown = false;
  };
  // Turns characters into symbols; several unknown ones in a row become one if fuse_unk is set.
  class SymbolWriter;

  absl::Status ReadOptions(const JsonRef& spec);
  absl::Status ReadVocabulary(const JsonRef& vocab);
  absl::Status ReadUnknownToken(const JsonRef& unk_token);
  absl::Status ReadMerges(const JsonRef& merges);
  absl::Status AddMerge(const std::string& left, const std::string& right, size_t rank);
  void FindByteTokens();
  void PrepareInitials();
  void PrepareWholeWords();

  Initial InitialOf(std::string_view character) const;
  // A part of a word that merges cannot reach beyond; through the cache if it is short.
  void EncodePart(std::string_view part, BpeScratch* scratch, std::vector<int32_t>* out) const;
  void MergePart(std::string_view part, BpeScratch* scratch, std::vector<int32_t>* out) const;
  // The token that is `word` as it stands, where ignore_merges lets it win.
  std::optional<int32_t> FindWhole(std::string_view word) const;

  Vocabulary vocabulary_;
  MergeTable merges_;
  bool byte_level_ = false;
  bool fuse_unk_ = false;
  bool byte_fallback_ = false;
  bool ignore_merges_ = false;
  int32_t unk_id_ = -1;
  std::array<int32_t, 256> byte_tokens_{};  // "<0x00>" to "<0xFF>"; -1 for none

  // Words are cut before they are merged, where cutter_ allows.
  bool cuttable_ = false;
  WordCutter cutter_;

  std::array<Initial, 256> byte_initials_;              // byte_level
  std::array<int32_t, 128> ascii_{};                    // tokens of one character; -1 for none
  absl::flat_hash_map<std::string, int32_t> by_bytes_;  // byte_level and ignore_merges
  size_t longest_token_ = 0;                            // in bytes, as words count them
};

}  // namespace millrace

#endif  // ENGINE_TOKENIZER_BPE_MODEL_H_
