#include "engine/tokenizer/word_cache.h"

#include <cstring>

namespace millrace {
namespace {

constexpr size_t kSlots = size_t{1} << 15;
constexpr size_t kMaxKeyBytes = size_t{1} << 20;
constexpr size_t kMaxIds = size_t{1} << 18;

uint64_t Load(const char* p, size_t bytes) {
  uint64_t value = 0;
  std::memcpy(&value, p, bytes);
  return value;
}

uint64_t Mix(uint64_t a, uint64_t b) {
  const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

}  // namespace

WordCache::WordCache() : slots_(kSlots) {}

uint64_t WordCache::Hash(std::string_view word) {
  constexpr uint64_t kOdd1 = 0x9E3779B97F4A7C15ULL;
  constexpr uint64_t kOdd2 = 0xD6E8FEB86659FD93ULL;
  uint64_t hash = word.size() * kOdd1;
  const char* p = word.data();
  size_t left = word.size();
  for (; left > 8; left -= 8, p += 8) hash = Mix(hash ^ Load(p, 8), kOdd2);
  return Mix(hash ^ Load(p, left), kOdd1);
}

size_t WordCache::Home(uint64_t hash) { return hash & (kSlots - 1) & ~size_t{1}; }

bool WordCache::Find(std::string_view word, uint64_t hash, std::vector<int32_t>* out) const {
  const size_t home = Home(hash);
  for (size_t way = 0; way < 2; ++way) {
    const Slot& slot = slots_[home + way];
    if (slot.hash != hash || slot.id_count == 0 || slot.key_bytes != word.size()) continue;
    if (std::memcmp(keys_.data() + slot.key, word.data(), word.size()) != 0) continue;
    const int32_t* ids = ids_.data() + slot.ids;
    out->insert(out->end(), ids, ids + slot.id_count);
    return true;
  }
  return false;
}

void WordCache::Insert(std::string_view word, uint64_t hash, absl::Span<const int32_t> ids) {
  if (ids.empty() || ids.size() > 0xFFFF) return;
  if (keys_.size() + word.size() > kMaxKeyBytes || ids_.size() + ids.size() > kMaxIds) {
    slots_.assign(kSlots, Slot());
    keys_.clear();
    ids_.clear();
  }
  Slot* set = &slots_[Home(hash)];
  set[1] = set[0];
  set[0] = Slot{hash, static_cast<uint32_t>(keys_.size()), static_cast<uint32_t>(ids_.size()),
                static_cast<uint16_t>(word.size()), static_cast<uint16_t>(ids.size())};
  keys_.append(word);
  ids_.insert(ids_.end(), ids.begin(), ids.end());
}

}  // namespace millrace
