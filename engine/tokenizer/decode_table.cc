#include "engine/tokenizer/decode_table.h"

#include <utility>

namespace millrace {

DecodeTable::DecodeTable(Decoder decoder, int32_t size, absl::FunctionRef<Token(int32_t)> token)
    : decoder_(std::move(decoder)), entries_(static_cast<size_t>(size)) {
  RegexScratch scratch;
  scratch.has_newer_characters = true;
  for (int32_t id = 0; id < size; ++id) {
    const Token known = token(id);
    if (known.text.data() == nullptr) continue;
    Entry& entry = entries_[static_cast<size_t>(id)];
    entry.text = known.text;
    entry.special = known.special;
    if (const auto byte = decoder_.ByteOf(known.text, /*is_first=*/false, &scratch);
        byte.has_value()) {
      entry.byte = *byte;
    }
    const std::string piece = decoder_.PieceOf(known.text, /*is_first=*/false, &scratch);
    entry.begin = pieces_.size();
    entry.size = static_cast<uint32_t>(piece.size());
    pieces_ += piece;
  }
}

}  // namespace millrace
