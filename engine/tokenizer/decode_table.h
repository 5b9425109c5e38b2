// What each id adds to a text, worked out once when a tokenizer is loaded.
#ifndef ENGINE_TOKENIZER_DECODE_TABLE_H_
#define ENGINE_TOKENIZER_DECODE_TABLE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "engine/tokenizer/decoder.h"

namespace millrace {

// Immutable, any thread.
class DecodeTable {
 public:
  struct Token {
    std::string_view text;  // as the decoder is to see it; data() is null for an unknown id
    bool special = false;
  };

  DecodeTable() = default;
  // `token` is asked for each id in [0, size) and its answer must outlive the table.
  DecodeTable(Decoder decoder, int32_t size, absl::FunctionRef<Token(int32_t)> token);

  const Decoder& decoder() const { return decoder_; }
  bool Contains(int32_t id) const {
    return id >= 0 && static_cast<size_t>(id) < entries_.size() &&
           entries_[static_cast<size_t>(id)].text.data() != nullptr;
  }

  // REQUIRES for the rest: Contains(id).
  bool IsSpecial(int32_t id) const { return entry(id).special; }
  // The byte that the id stands for, or -1.
  int Byte(int32_t id) const { return entry(id).byte; }
  std::string_view Text(int32_t id) const { return entry(id).text; }
  // What the id adds to the text anywhere but at its beginning.
  std::string_view Piece(int32_t id) const {
    return std::string_view(pieces_).substr(entry(id).begin, entry(id).size);
  }

 private:
  struct Entry {
    std::string_view text;
    size_t begin = 0;  // of the piece
    uint32_t size = 0;
    int16_t byte = -1;
    bool special = false;
  };
  const Entry& entry(int32_t id) const { return entries_[static_cast<size_t>(id)]; }

  Decoder decoder_;
  std::vector<Entry> entries_;
  std::string pieces_;
};

}  // namespace millrace

#endif  // ENGINE_TOKENIZER_DECODE_TABLE_H_
