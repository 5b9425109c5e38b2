#include "engine/tokenizer/bpe_model.h"

#include <utility>

#include "engine/tokenizer/byte_level.h"
#include "engine/tokenizer/utf8.h"

namespace millrace {

class BpeModel::SymbolWriter {
 public:
  SymbolWriter(const BpeModel& model, std::vector<int32_t>* symbols)
      : model_(model), symbols_(*symbols) {
    symbols_.clear();
  }

  void Known(int32_t id) {
    Flush();
    symbols_.push_back(id);
  }
  // Byte tokens do not end a run of unknown characters: the run is written behind them. No sane
  // vocabulary has both, but the reference library does it so.
  void Bytes(const std::vector<int32_t>& ids) {
    symbols_.insert(symbols_.end(), ids.begin(), ids.end());
  }
  void Unknown() {
    if (model_.unk_id_ < 0) return;
    if (!model_.fuse_unk_) Flush();
    pending_ = true;
  }
  void Put(const Initial& initial) {
    if (initial.id >= 0) return Known(initial.id);
    if (initial.unknown) return Unknown();
    Bytes(initial.bytes);
  }
  void Flush() {
    if (pending_) symbols_.push_back(model_.unk_id_);
    pending_ = false;
  }

 private:
  const BpeModel& model_;
  std::vector<int32_t>& symbols_;
  bool pending_ = false;
};

BpeModel::Initial BpeModel::InitialOf(std::string_view character) const {
  Initial initial;
  if (const auto id = vocabulary_.Find(character); id.has_value()) {
    initial.id = *id;
    return initial;
  }
  if (byte_fallback_) {
    for (const char c : character) {
      const int32_t id = byte_tokens_[static_cast<unsigned char>(c)];
      if (id >= 0) initial.bytes.push_back(id);
    }
    if (initial.bytes.size() == character.size()) return initial;
    initial.bytes.clear();
  }
  initial.unknown = true;
  return initial;
}

void BpeModel::Encode(std::string_view word, BpeScratch* scratch, std::vector<int32_t>* out) const {
  if (!cuttable_) return EncodePart(word, scratch, out);
  size_t begin = 0;
  size_t pos = 0;
  char32_t left = 0;
  while (pos < word.size()) {
    const size_t here = pos;
    const char32_t right = NextCodePoint(word, &pos);
    if (here > begin && !cutter_.CanJoin(left, right)) {
      EncodePart(word.substr(begin, here - begin), scratch, out);
      begin = here;
    }
    left = right;
  }
  EncodePart(word.substr(begin), scratch, out);
}

void BpeModel::EncodePart(std::string_view part, BpeScratch* scratch,
                          std::vector<int32_t>* out) const {
  if (part.empty()) return;
  if (part.size() > WordCache::kMaxWordBytes) return MergePart(part, scratch, out);
  const uint64_t hash = WordCache::Hash(part);
  if (scratch->cache.Find(part, hash, out)) return;
  const size_t before = out->size();
  MergePart(part, scratch, out);
  scratch->cache.Insert(part, hash, absl::MakeConstSpan(*out).subspan(before));
}

std::optional<int32_t> BpeModel::FindWhole(std::string_view word) const {
  if (!ignore_merges_ || word.size() > longest_token_) return std::nullopt;
  if (!byte_level_) return vocabulary_.Find(word);
  const auto found = by_bytes_.find(absl::string_view(word.data(), word.size()));
  if (found == by_bytes_.end()) return std::nullopt;
  return found->second;
}

void BpeModel::MergePart(std::string_view part, BpeScratch* scratch,
                         std::vector<int32_t>* out) const {
  if (const auto id = FindWhole(part); id.has_value()) {
    out->push_back(*id);
    return;
  }
  SymbolWriter writer(*this, &scratch->symbols);
  if (byte_level_) {
    for (const char c : part) writer.Put(byte_initials_[static_cast<unsigned char>(c)]);
  } else {
    for (size_t pos = 0; pos < part.size();) {
      const size_t begin = pos;
      const char32_t code = NextCodePoint(part, &pos);
      if (code < ascii_.size() && ascii_[code] >= 0) {
        writer.Known(ascii_[code]);
      } else {
        writer.Put(InitialOf(part.substr(begin, pos - begin)));
      }
    }
  }
  writer.Flush();
  MergeAll(merges_, &scratch->symbols, &scratch->merger);
  out->insert(out->end(), scratch->symbols.begin(), scratch->symbols.end());
}

}  // namespace millrace
