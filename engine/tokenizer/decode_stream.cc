#include "engine/tokenizer/decode_stream.h"

#include <algorithm>
#include <utility>

namespace millrace {

void StripStream::Push(std::string* text) {
  std::string_view rest = *text;
  while (start_left_ > 0 && !rest.empty()) {
    size_t next = 0;
    if (NextCodePoint(rest, &next) != rule_.content) {
      start_left_ = 0;
      break;
    }
    --start_left_;
    rest.remove_prefix(next);
  }
  if (rule_.stop == 0 || rest.empty()) {
    *text = std::string(rest);
    return;
  }
  std::string content;
  AppendUtf8(rule_.content, &content);
  std::string_view body = rest;
  int64_t run = 0;
  while (!body.empty() && CodePointBefore(body, body.size()) == rule_.content) {
    body.remove_suffix(content.size());
    ++run;
  }
  if (body.empty()) run += held_;
  std::string out;
  if (!body.empty()) {
    for (int64_t i = 0; i < held_; ++i) out += content;
    out += body;
  }
  held_ = std::min(run, rule_.stop);
  for (int64_t i = held_; i < run; ++i) out += content;
  *text = std::move(out);
}

DecodeStream::DecodeStream(const DecodeTable& table, bool skip_special_tokens)
    : table_(table), skip_special_tokens_(skip_special_tokens) {
  for (const Decoder::StripRule& rule : table.decoder().strips()) strips_.emplace_back(rule);
}

void DecodeStream::Push(int32_t id, std::string* out) {
  if (!table_.Contains(id) || (skip_special_tokens_ && table_.IsSpecial(id))) return;
  if (const int byte = table_.Byte(id); byte >= 0) {
    return PushByte(static_cast<unsigned char>(byte), out);
  }
  EndRun(out);
  if (!is_first_) return Put(table_.Piece(id), out);
  is_first_ = false;
  RegexScratch scratch;
  scratch.has_newer_characters = true;
  Put(table_.decoder().PieceOf(table_.Text(id), /*is_first=*/true, &scratch), out);
}

void DecodeStream::PushByte(unsigned char byte, std::string* out) {
  if (run_.empty() && !run_is_broken_) run_is_first_ = is_first_;
  is_first_ = false;
  if (run_is_broken_) return PutBroken(1, out);
  run_.push_back(static_cast<char>(byte));
  if (run_tracker_.Push(byte) != Utf8Tracker::State::kInvalid) return;
  run_is_broken_ = true;
  PutBroken(run_.size() - forgotten_bytes_, out);
  run_.clear();
}

void DecodeStream::EndRun(std::string* out) {
  if (run_.empty() && !run_is_broken_) return;
  if (!run_is_broken_) {
    if (run_tracker_.state() == Utf8Tracker::State::kComplete) {
      RegexScratch scratch;
      scratch.has_newer_characters = true;
      const std::string_view run = std::string_view(run_).substr(forgotten_characters_);
      if (!run.empty()) Put(table_.decoder().PieceOfRun(run, run_is_first_, &scratch), out);
    } else {
      PutBroken(run_.size() - forgotten_bytes_, out);
    }
  }
  run_.clear();
  run_is_first_ = false;
  run_is_broken_ = false;
  run_tracker_.Reset();
  forgotten_bytes_ = 0;
  forgotten_characters_ = 0;
}

void DecodeStream::PutBroken(size_t count, std::string* out) {
  if (count == 0) return;
  RegexScratch scratch;
  for (size_t i = 0; i < count; ++i) {
    Put(table_.decoder().PieceOfRun(kReplacementCharacter, run_is_first_, &scratch), out);
    run_is_first_ = false;
  }
}

void DecodeStream::Put(std::string_view piece, std::string* out) {
  if (!table_.decoder().byte_level()) return PutText(std::string(piece), out);
  if (strips_.empty()) return sanitizer_.Push(piece, out);
  std::string text;
  sanitizer_.Push(piece, &text);
  PutText(std::move(text), out);
}

void DecodeStream::PutText(std::string text, std::string* out) {
  for (StripStream& strip : strips_) strip.Push(&text);
  out->append(text);
}

void DecodeStream::Finish(std::string* out) {
  EndRun(out);
  std::string text;
  sanitizer_.Finish(&text);
  PutText(std::move(text), out);
}

void DecodeStream::ForgetHeldText() {
  if (run_.empty()) return;
  forgotten_bytes_ = run_.size();
  // A character that is begun but not complete belongs to what comes.
  Utf8Tracker tracker;
  for (size_t i = 0; i < run_.size(); ++i) {
    if (tracker.Push(static_cast<unsigned char>(run_[i])) == Utf8Tracker::State::kComplete) {
      forgotten_characters_ = i + 1;
    }
  }
}

void DecodeStream::SkipStart() {
  is_first_ = false;
  for (StripStream& strip : strips_) strip.SkipStart();
}

}  // namespace millrace
