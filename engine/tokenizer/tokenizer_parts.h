// What a Tokenizer is made of. Private to the tokenizer's own files.
#ifndef ENGINE_TOKENIZER_TOKENIZER_PARTS_H_
#define ENGINE_TOKENIZER_TOKENIZER_PARTS_H_

#include "engine/tokenizer/added_tokens.h"
#include "engine/tokenizer/bpe_model.h"
#include "engine/tokenizer/decode_table.h"
#include "engine/tokenizer/normalizer.h"
#include "engine/tokenizer/post_processor.h"
#include "engine/tokenizer/pre_tokenizer.h"
#include "engine/tokenizer/tokenizer.h"
#include "engine/tokenizer/vocabulary.h"

namespace millrace {

struct Tokenizer::Parts {
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  BpeModel model;
  AddedTokens added;
  PostProcessor post_processor;
  DecodeTable decode_table;
  Vocabulary added_vocabulary;  // added tokens that the model does not hold
};

}  // namespace millrace

#endif  // ENGINE_TOKENIZER_TOKENIZER_PARTS_H_
