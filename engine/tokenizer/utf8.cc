#include "engine/tokenizer/utf8.h"

#include <cstring>

namespace millrace {
namespace {

// Whether the eight bytes at `p` are all ASCII.
bool IsAscii8(const char* p) {
  uint64_t word = 0;
  std::memcpy(&word, p, sizeof(word));
  return (word & 0x8080808080808080ULL) == 0;
}

}  // namespace

Utf8Tracker::State Utf8Tracker::Push(unsigned char byte) {
  if (state_ == State::kInvalid) return state_;
  if (missing_ > 0) {
    if (byte < low_ || byte > high_) return state_ = State::kInvalid;
    low_ = 0x80;
    high_ = 0xBF;
    return state_ = --missing_ == 0 ? State::kComplete : State::kPartial;
  }
  if (byte < 0x80) return state_ = State::kComplete;
  if (byte < 0xC2 || byte > 0xF4) return state_ = State::kInvalid;
  missing_ = byte < 0xE0 ? 1 : byte < 0xF0 ? 2 : 3;
  // Overlong forms, surrogates and values past U+10FFFF show in the second byte.
  if (byte == 0xE0) low_ = 0xA0;
  if (byte == 0xED) high_ = 0x9F;
  if (byte == 0xF0) low_ = 0x90;
  if (byte == 0xF4) high_ = 0x8F;
  return state_ = State::kPartial;
}

size_t FindInvalidUtf8(std::string_view text) {
  Utf8Tracker tracker;
  size_t start = 0;  // of the code point being read
  size_t pos = 0;
  while (pos < text.size()) {
    if (pos == start) {
      while (pos + 8 <= text.size() && IsAscii8(text.data() + pos)) pos += 8;
      start = pos;
      if (pos == text.size()) break;
    }
    const Utf8Tracker::State state = tracker.Push(static_cast<unsigned char>(text[pos++]));
    if (state == Utf8Tracker::State::kInvalid) return start;
    if (state == Utf8Tracker::State::kComplete) start = pos;
  }
  return start == text.size() ? std::string_view::npos : start;
}

char32_t NextCodePoint(std::string_view text, size_t* pos) {
  const auto byte = [&](size_t i) {
    return static_cast<char32_t>(static_cast<unsigned char>(text[*pos + i]));
  };
  const char32_t lead = byte(0);
  const size_t length = Utf8Length(static_cast<unsigned char>(lead));
  char32_t code = lead;
  if (length == 2) code = (lead & 0x1F) << 6 | (byte(1) & 0x3F);
  if (length == 3) code = (lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
  if (length == 4) {
    code = (lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
  }
  *pos += length;
  return code;
}

char32_t CodePointBefore(std::string_view text, size_t end) {
  size_t pos = end - 1;
  while (pos > 0 && (static_cast<unsigned char>(text[pos]) & 0xC0) == 0x80) --pos;
  return NextCodePoint(text, &pos);
}

void AppendUtf8(char32_t code_point, std::string* out) {
  const auto put = [out](char32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) return put(code_point);
  if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    return put(0x80 | (code_point & 0x3F));
  }
  if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
  }
  put(0x80 | (code_point >> 6 & 0x3F));
  put(0x80 | (code_point & 0x3F));
}

void Utf8Sanitizer::Push(std::string_view bytes, std::string* out) {
  for (size_t i = 0; i < bytes.size();) {
    const Utf8Tracker::State state = tracker_.Push(static_cast<unsigned char>(bytes[i]));
    if (state == Utf8Tracker::State::kInvalid) {
      tracker_.Reset();
      out->append(kReplacementCharacter);
      // A byte that only broke what was held may itself begin a character: look at it again.
      if (pending_.empty()) ++i;
      pending_.clear();
      continue;
    }
    pending_.push_back(bytes[i++]);
    if (state == Utf8Tracker::State::kComplete) {
      out->append(pending_);
      pending_.clear();
    }
  }
}

void Utf8Sanitizer::Finish(std::string* out) {
  if (!pending_.empty()) out->append(kReplacementCharacter);
  pending_.clear();
  tracker_.Reset();
}

}  // namespace millrace
