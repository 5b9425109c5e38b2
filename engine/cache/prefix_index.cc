#include "engine/cache/prefix_index.h"

#include <openssl/sha.h>

#include <cstring>

namespace millrace {

PageKey RootKey(std::string_view salt) {
  PageKey key;
  SHA256(reinterpret_cast<const uint8_t*>(salt.data()), salt.size(), key.digest.data());
  return key;
}

PageKey ChildKey(const PageKey& parent, absl::Span<const int32_t> tokens) {
  std::vector<uint8_t> bytes(parent.digest.size() + tokens.size() * sizeof(int32_t));
  std::memcpy(bytes.data(), parent.digest.data(), parent.digest.size());
  if (!tokens.empty()) {
    std::memcpy(bytes.data() + parent.digest.size(), tokens.data(),
                tokens.size() * sizeof(int32_t));
  }
  PageKey key;
  SHA256(bytes.data(), bytes.size(), key.digest.data());
  return key;
}

bool PrefixIndex::Publish(const PageKey& key, PageId page) {
  if (!page_of_.emplace(key, page).second) return false;
  key_of_[page] = key;
  return true;
}

void PrefixIndex::Forget(PageId page) {
  const auto it = key_of_.find(page);
  if (it == key_of_.end()) return;
  page_of_.erase(it->second);
  key_of_.erase(it);
}

std::vector<PageId> PrefixIndex::Match(absl::Span<const PageKey> keys) const {
  std::vector<PageId> pages;
  for (const PageKey& key : keys) {
    const auto it = page_of_.find(key);
    if (it == page_of_.end()) break;
    pages.push_back(it->second);
  }
  return pages;
}

std::vector<PageId> PrefixIndex::Pages() const {
  std::vector<PageId> pages;
  pages.reserve(key_of_.size());
  for (const auto& [page, key] : key_of_) pages.push_back(page);
  return pages;
}

}  // namespace millrace
