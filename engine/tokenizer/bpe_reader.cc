// Reads the model section of tokenizer.json into a BpeModel.
#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/tokenizer/bpe_model.h"
#include "engine/tokenizer/byte_level.h"
#include "engine/tokenizer/utf8.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

constexpr size_t kMaxTokenBytes = 64 << 10;

// Refuses an option that is set to anything but null or an empty string.
absl::Status RequireEmpty(const JsonRef& option) {
  if (option.is_null()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string text, option.String());
  return text.empty() ? absl::OkStatus() : option.Error("\"" + text + "\" is not supported");
}

}  // namespace

absl::StatusOr<BpeModel> BpeModel::FromJson(const JsonRef& spec, bool byte_level) {
  RETURN_IF_ERROR(spec.CheckObject());
  // Old files leave the type out; what they hold is told by their members.
  if (const JsonRef type = spec.Member("type"); !type.is_null()) {
    ASSIGN_OR_RETURN(const std::string name, type.String());
    if (name != "BPE") return type.Error("model type \"" + name + "\" is not supported, want BPE");
  }
  BpeModel model;
  model.byte_level_ = byte_level;
  RETURN_IF_ERROR(model.ReadOptions(spec));
  RETURN_IF_ERROR(model.ReadVocabulary(spec.Member("vocab")));
  RETURN_IF_ERROR(model.ReadUnknownToken(spec.Member("unk_token")));
  model.FindByteTokens();
  RETURN_IF_ERROR(model.ReadMerges(spec.Member("merges")));
  model.PrepareInitials();
  model.PrepareWholeWords();
  return model;
}

absl::Status BpeModel::ReadOptions(const JsonRef& spec) {
  if (const JsonRef dropout = spec.Member("dropout"); !dropout.is_null()) {
    if (!dropout.value().is_number()) return dropout.Wants("a number");
    if (dropout.value().get<double>() != 0.0) return dropout.Error("dropout is not supported");
  }
  RETURN_IF_ERROR(RequireEmpty(spec.Member("continuing_subword_prefix")));
  RETURN_IF_ERROR(RequireEmpty(spec.Member("end_of_word_suffix")));
  ASSIGN_OR_RETURN(fuse_unk_, spec.Member("fuse_unk").BoolOr(false));
  ASSIGN_OR_RETURN(byte_fallback_, spec.Member("byte_fallback").BoolOr(false));
  ASSIGN_OR_RETURN(ignore_merges_, spec.Member("ignore_merges").BoolOr(false));
  return absl::OkStatus();
}

absl::Status BpeModel::ReadVocabulary(const JsonRef& vocab) {
  RETURN_IF_ERROR(vocab.CheckObject());
  for (const auto& [token, id] : vocab.value().items()) {
    const JsonRef entry(id, absl::StrCat(vocab.path(), "[\"", token.substr(0, 40), "\"]"));
    ASSIGN_OR_RETURN(const int64_t checked, entry.IndexBelow(kMaxTokens));
    if (token.size() > kMaxTokenBytes) return entry.Error("token is too long");
    const absl::Status added = vocabulary_.Add(token, static_cast<int32_t>(checked));
    if (!added.ok()) return entry.Error(std::string(added.message()));
  }
  return absl::OkStatus();
}

absl::Status BpeModel::ReadUnknownToken(const JsonRef& unk_token) {
  if (unk_token.is_null()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string token, unk_token.String());
  const auto id = vocabulary_.Find(token);
  if (!id.has_value()) return unk_token.Error("\"" + token + "\" is not in the vocabulary");
  unk_id_ = *id;
  return absl::OkStatus();
}

void BpeModel::FindByteTokens() {
  bool complete = true;
  for (int byte = 0; byte < 256; ++byte) {
    const auto id = vocabulary_.Find(absl::StrFormat("<0x%02X>", byte));
    byte_tokens_[static_cast<size_t>(byte)] = id.value_or(-1);
    complete = complete && id.has_value();
  }
  // Cutting is sound where each character is a symbol of its own: unknown ones that become one
  // token together, or vanish so that their neighbours meet, forbid it.
  const bool all_stand = byte_fallback_ ? complete : !fuse_unk_ && unk_id_ >= 0;
  cuttable_ = all_stand && !byte_level_ && !ignore_merges_;
}

absl::Status BpeModel::ReadMerges(const JsonRef& merges) {
  RETURN_IF_ERROR(merges.CheckArray());
  merges_ = MergeTable(merges.value().size());
  size_t rank = 0;
  for (size_t i = 0; i < merges.value().size(); ++i) {
    const Json& merge = merges.value()[i];
    absl::Status added;
    if (merge.is_string()) {
      const auto& text = merge.get_ref<const std::string&>();
      if (text.rfind("#version", 0) == 0) continue;  // the header line of merges.txt
      const size_t blank = text.find(' ');
      if (blank == std::string::npos || text.find(' ', blank + 1) != std::string::npos) {
        return merges.Element(i).Error("want two tokens with one blank between them");
      }
      added = AddMerge(text.substr(0, blank), text.substr(blank + 1), rank++);
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
               merge[1].is_string()) {
      added = AddMerge(merge[0].get_ref<const std::string&>(),
                       merge[1].get_ref<const std::string&>(), rank++);
    } else {
      return merges.Element(i).Wants("\"a b\" or [\"a\", \"b\"]");
    }
    if (!added.ok()) return merges.Element(i).Error(std::string(added.message()));
  }
  return absl::OkStatus();
}

absl::Status BpeModel::AddMerge(const std::string& left, const std::string& right, size_t rank) {
  const auto left_id = vocabulary_.Find(left);
  const auto right_id = vocabulary_.Find(right);
  const std::string joined = left + right;
  const auto result = vocabulary_.Find(joined);
  if (!left_id.has_value() || !right_id.has_value() || !result.has_value()) {
    const std::string& missing = !left_id.has_value()    ? left
                                 : !right_id.has_value() ? right
                                                         : joined;
    return absl::InvalidArgumentError("\"" + missing + "\" is not in the vocabulary");
  }
  merges_.Set(*left_id, *right_id, PackMerge(static_cast<uint32_t>(rank), *result));
  if (!cuttable_) return absl::OkStatus();
  cutter_.AddToken(joined);
  // Symbols that do not spell the text they stand for could merge where no token shows it.
  for (const int32_t id : {*left_id, *right_id}) {
    const bool is_byte = byte_fallback_ && std::find(byte_tokens_.begin(), byte_tokens_.end(),
                                                     id) != byte_tokens_.end();
    if (is_byte || id == unk_id_) cuttable_ = false;
  }
  return absl::OkStatus();
}

void BpeModel::PrepareInitials() {
  for (size_t code = 0; code < ascii_.size(); ++code) {
    const char c = static_cast<char>(code);
    ascii_[code] = vocabulary_.Find(std::string_view(&c, 1)).value_or(-1);
  }
  if (!byte_level_) return;
  for (size_t byte = 0; byte < byte_initials_.size(); ++byte) {
    std::string spelled;
    AppendUtf8(ByteLevelChar(static_cast<uint8_t>(byte)), &spelled);
    byte_initials_[byte] = InitialOf(spelled);
  }
}

void BpeModel::PrepareWholeWords() {
  if (!ignore_merges_) return;
  for (int32_t id = 0; id < vocabulary_.size(); ++id) {
    if (!vocabulary_.Contains(id)) continue;
    const std::string_view token = vocabulary_.Token(id);
    if (!byte_level_) {
      longest_token_ = std::max(longest_token_, token.size());
      continue;
    }
    auto bytes = DecodeByteLevel(token);
    if (!bytes.has_value()) continue;
    longest_token_ = std::max(longest_token_, bytes->size());
    by_bytes_.emplace(*std::move(bytes), id);
  }
}

}  // namespace millrace
