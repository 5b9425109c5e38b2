// Ids to text, one at a time. What whole decoding is built on too, so that both agree.
#ifndef ENGINE_TOKENIZER_DECODE_STREAM_H_
#define ENGINE_TOKENIZER_DECODE_STREAM_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/tokenizer/decode_table.h"
#include "engine/tokenizer/utf8.h"

namespace millrace {

// Strips the ends of a text that comes in parts.
class StripStream {
 public:
  explicit StripStream(const Decoder::StripRule& rule) : rule_(rule), start_left_(rule.start) {}

  // Replaces *text by what can be passed on; holds back what may be stripped from the end.
  void Push(std::string* text);
  // Behaves as if a text had gone before.
  void SkipStart() { start_left_ = 0; }

 private:
  Decoder::StripRule rule_;
  int64_t start_left_;
  int64_t held_ = 0;  // characters rule_.content at the end, not passed on
};

// One thread at a time. The table must outlive it.
class DecodeStream {
 public:
  DecodeStream(const DecodeTable& table, bool skip_special_tokens);

  // Appends to *out the text that is certain once `id` has come: whole characters that no later
  // id can change. Unknown ids add nothing. Byte tokens in a row are held until the run ends,
  // because one bad byte turns the whole run into U+FFFD.
  void Push(int32_t id, std::string* out);

  // Appends what is held back; broken bytes as U+FFFD. Nothing may be pushed afterwards.
  void Finish(std::string* out);

  // Marks a border: of what is held now, the part that would be text if the stream ended here is
  // not passed on later. Then text that follows continues a text that was shown already.
  void ForgetHeldText();

  // Behaves as if tokens had gone before the first one pushed.
  void SkipStart();

 private:
  void PushByte(unsigned char byte, std::string* out);
  void EndRun(std::string* out);
  // Writes a U+FFFD token for each of `count` bytes of the run.
  void PutBroken(size_t count, std::string* out);
  void Put(std::string_view piece, std::string* out);
  void PutText(std::string text, std::string* out);

  const DecodeTable& table_;
  bool skip_special_tokens_;
  bool is_first_ = true;

  std::string run_;             // byte tokens, held
  bool run_is_first_ = false;   // the run began the text
  bool run_is_broken_ = false;  // it is no UTF-8: its bytes were passed on as U+FFFD
  Utf8Tracker run_tracker_;
  size_t forgotten_bytes_ = 0;       // of the run: what is dropped if it proves broken
  size_t forgotten_characters_ = 0;  // of the run, in bytes: what is dropped if it proves whole

  Utf8Sanitizer sanitizer_;  // byte-level pieces
  std::vector<StripStream> strips_;
};

}  // namespace millrace

#endif  // ENGINE_TOKENIZER_DECODE_STREAM_H_
