// The byte-level alphabet of GPT-2: each of the 256 bytes has a printable character, so that any
// byte string can be spelled in a vocabulary of readable text.
#ifndef ENGINE_TOKENIZER_BYTE_LEVEL_H_
#define ENGINE_TOKENIZER_BYTE_LEVEL_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace millrace {

// The pattern by which GPT-2 splits text into words (Oniguruma syntax).
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// The character that stands for `byte`.
char32_t ByteLevelChar(uint8_t byte);

// `bytes` spelled in the alphabet, as UTF-8.
std::string EncodeByteLevel(std::string_view bytes);

// The bytes that `spelled` (valid UTF-8) stands for, or nullopt if a character is not of the
// alphabet.
std::optional<std::string> DecodeByteLevel(std::string_view spelled);

}  // namespace millrace

#endif  // ENGINE_TOKENIZER_BYTE_LEVEL_H_
