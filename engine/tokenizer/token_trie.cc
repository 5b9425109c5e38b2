#include "engine/tokenizer/token_trie.h"

namespace millrace {

void TokenTrie::Add(std::string_view text, int32_t value) {
  starts_.set(static_cast<unsigned char>(text[0]));
  uint32_t node = 0;
  for (const char byte : text) {
    const auto [edge, added] = edges_.try_emplace(Edge(node, byte), nodes_);
    if (added) ++nodes_;
    node = edge->second;
  }
  values_[node] = value;
}

bool TokenTrie::Find(std::string_view text, size_t from, Hit* hit) const {
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (!starts_[static_cast<unsigned char>(text[begin])]) continue;
    hit->value = -1;
    uint32_t node = 0;
    for (size_t pos = begin; pos < text.size(); ++pos) {
      const auto edge = edges_.find(Edge(node, text[pos]));
      if (edge == edges_.end()) break;
      node = edge->second;
      const auto value = values_.find(node);
      if (value == values_.end()) continue;
      *hit = Hit{begin, pos + 1, value->second};
    }
    if (hit->value >= 0) return true;
  }
  return false;
}

}  // namespace millrace
