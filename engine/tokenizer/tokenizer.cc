#include "engine/tokenizer/tokenizer.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/tokenizer/decode_stream.h"
#include "engine/tokenizer/newer_characters.h"
#include "engine/tokenizer/tokenizer_parts.h"
#include "engine/tokenizer/utf8.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

// What one call of Encode works with.
struct Scratch {
  PreTokenizerScratch pre_tokenizer;
  BpeScratch model;
  std::string normalized;
  std::vector<AddedTokens::Part> raw_parts;
  std::vector<AddedTokens::Part> normalized_parts;
};

absl::Status CheckSpans(absl::Span<const TextSpan> spans, size_t text_bytes) {
  size_t done = 0;
  for (const TextSpan& span : spans) {
    if (span.begin < done || span.end < span.begin || span.end > text_bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("literal span [", span.begin, ", ", span.end, ") of a text of ", text_bytes,
                       " bytes: want spans in order, inside the text, not overlapping"));
    }
    done = span.end;
  }
  return absl::OkStatus();
}

LiteralSpans SpansOf(const EncodeOptions& options, size_t text_bytes) {
  if (!options.parse_special_tokens) return LiteralSpans({TextSpan{0, text_bytes}});
  std::vector<TextSpan> spans;
  for (const TextSpan& span : options.literal_spans) {
    if (span.begin < span.end) spans.push_back(span);
  }
  return LiteralSpans(std::move(spans), options.literal_scope);
}

}  // namespace

// Keeps the scratch of finished calls, with its cache of words, for the next ones: as many as
// there were calls at once.
class Tokenizer::ScratchPool {
 public:
  std::unique_ptr<Scratch> Take() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!free_.empty()) {
        std::unique_ptr<Scratch> scratch = std::move(free_.back());
        free_.pop_back();
        return scratch;
      }
    }
    return std::make_unique<Scratch>();
  }
  void Return(std::unique_ptr<Scratch> scratch) {
    const std::lock_guard<std::mutex> lock(mutex_);
    free_.push_back(std::move(scratch));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Scratch>> free_;  // guarded by mutex_
};

// One call of Encode.
class Tokenizer::Encoder {
 public:
  Encoder(const Parts& parts, Scratch* scratch, std::vector<int32_t>* ids)
      : parts_(parts), scratch_(*scratch), ids_(*ids) {}

  absl::Status Run(std::string_view text, const LiteralSpans& literal) {
    scratch_.pre_tokenizer.regex.has_newer_characters = HasNewerCharacters(text);
    std::vector<AddedTokens::Part>& parts = scratch_.raw_parts;
    parts_.added.Split(text, AddedTokens::Stage::kRaw, literal, regex(), &parts);
    for (const AddedTokens::Part& part : parts) {
      if (part.id >= 0) {
        ids_.push_back(part.id);
        continue;
      }
      const std::string_view piece = text.substr(part.begin, part.end - part.begin);
      RETURN_IF_ERROR(EncodePiece(piece, part.begin == 0, literal, part.begin));
    }
    return absl::OkStatus();
  }

 private:
  RegexScratch* regex() { return &scratch_.pre_tokenizer.regex; }

  // A stretch between added tokens that are matched in the text as it came; it begins at byte
  // `offset` of the whole.
  absl::Status EncodePiece(std::string_view piece, bool at_start, const LiteralSpans& literal,
                           size_t offset) {
    std::string_view text = piece;
    if (!parts_.normalizer.is_identity()) {
      scratch_.normalized.assign(piece);
      RETURN_IF_ERROR(parts_.normalizer.Apply(&scratch_.normalized, &at_start, regex()));
      text = scratch_.normalized;
    }
    if (parts_.added.empty(AddedTokens::Stage::kNormalized)) return EncodeText(text, at_start);
    LiteralSpans inside;
    if (parts_.added.has_normalized_special() || literal.scope() == LiteralScope::kAddedTokens) {
      ASSIGN_OR_RETURN(inside,
                       MapSpans(literal.Within(offset, offset + piece.size()), piece, text));
    }
    std::vector<AddedTokens::Part>& parts = scratch_.normalized_parts;
    parts_.added.Split(text, AddedTokens::Stage::kNormalized, inside, regex(), &parts);
    for (const AddedTokens::Part& part : parts) {
      if (part.id >= 0) {
        ids_.push_back(part.id);
      } else {
        RETURN_IF_ERROR(EncodeText(text.substr(part.begin, part.end - part.begin),
                                   at_start && part.begin == 0));
      }
    }
    return absl::OkStatus();
  }

  // Carries spans of `piece` over to `text`, its normalized form: the border at byte n lies
  // where the normalized form of the first n bytes ends. Where that is no beginning of `text`
  // nobody can tell, and then all of it is literal.
  absl::StatusOr<LiteralSpans> MapSpans(const LiteralSpans& spans, std::string_view piece,
                                        std::string_view text) {
    if (spans.empty() || parts_.normalizer.is_identity()) return spans;
    const LiteralSpans everything({TextSpan{0, text.size()}}, spans.scope());
    std::vector<TextSpan> mapped;
    for (const TextSpan& span : spans.spans()) {
      TextSpan result;
      for (const bool end : {false, true}) {
        std::string head(piece.substr(0, end ? span.end : span.begin));
        bool at_start = true;
        RETURN_IF_ERROR(parts_.normalizer.Apply(&head, &at_start, regex()));
        if (text.substr(0, head.size()) != head) return everything;
        (end ? result.end : result.begin) = head.size();
      }
      if (result.begin < result.end) mapped.push_back(result);
    }
    return LiteralSpans(std::move(mapped), spans.scope());
  }

  absl::Status EncodeText(std::string_view text, bool at_start) {
    return parts_.pre_tokenizer.Split(
        text, at_start, &scratch_.pre_tokenizer,
        [this](std::string_view word) { parts_.model.Encode(word, &scratch_.model, &ids_); });
  }

  const Parts& parts_;
  Scratch& scratch_;
  std::vector<int32_t>& ids_;
};

Tokenizer::Tokenizer(std::unique_ptr<Parts> parts)
    : parts_(std::move(parts)), scratch_pool_(std::make_unique<ScratchPool>()) {}
Tokenizer::~Tokenizer() = default;

absl::StatusOr<std::vector<int32_t>> Tokenizer::Encode(std::string_view text,
                                                       const EncodeOptions& options) const {
  if (const size_t bad = FindInvalidUtf8(text); bad != std::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat("text is not valid UTF-8 at byte ", bad));
  }
  RETURN_IF_ERROR(CheckSpans(options.literal_spans, text.size()));
  const std::vector<int32_t>& prefix = parts_->post_processor.prefix();
  const std::vector<int32_t>& suffix = parts_->post_processor.suffix();
  std::vector<int32_t> ids;
  if (options.add_special_tokens) ids = prefix;
  std::unique_ptr<Scratch> scratch = scratch_pool_->Take();
  const absl::Status status =
      Encoder(*parts_, scratch.get(), &ids).Run(text, SpansOf(options, text.size()));
  scratch_pool_->Return(std::move(scratch));
  RETURN_IF_ERROR(status);
  if (options.add_special_tokens) ids.insert(ids.end(), suffix.begin(), suffix.end());
  return ids;
}

std::string Tokenizer::Decode(absl::Span<const int32_t> ids, bool skip_special_tokens) const {
  DecodeStream stream(parts_->decode_table, skip_special_tokens);
  std::string text;
  for (const int32_t id : ids) stream.Push(id, &text);
  stream.Finish(&text);
  return text;
}

std::string_view Tokenizer::IdToToken(int32_t id) const {
  const Vocabulary& model = parts_->model.vocabulary();
  return model.Contains(id) ? model.Token(id) : parts_->added_vocabulary.Token(id);
}

std::optional<int32_t> Tokenizer::TokenToId(std::string_view token) const {
  const auto added = parts_->added_vocabulary.Find(token);
  return added.has_value() ? added : parts_->model.vocabulary().Find(token);
}

int32_t Tokenizer::vocab_size() const {
  return std::max(parts_->model.vocabulary().size(), parts_->added_vocabulary.size());
}

bool Tokenizer::Contains(int32_t id) const { return parts_->decode_table.Contains(id); }

bool Tokenizer::IsSpecial(int32_t id) const {
  return Contains(id) && parts_->decode_table.IsSpecial(id);
}

const DecodeTable& Tokenizer::decode_table() const { return parts_->decode_table; }

}  // namespace millrace
