// What an FP8 cache does to keys and values, for formulas in double precision.
#ifndef TESTS_PARITY_CACHE_CODES_H_
#define TESTS_PARITY_CACHE_CODES_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/parity/checkpoint_writer.h"
#include "tests/parity/tiny_llama.h"

namespace millrace {

// Of each kv head, by projection: "model.layers.0.self_attn.k_proj".
using HeadScales = std::map<std::string, std::vector<double>>;

// From `unit` to 32 * `unit`, exact in f32. Those of the next head, of the other projection and of
// the next layer are 2 to 32 times as large or small.
HeadScales UnlikeScales(const TinyLlamaShape& shape, float unit);

// As tensors of a checkpoint: "model.layers.0.self_attn.k_proj.k_scale".
std::map<std::string, WrittenTensor> ScaleTensors(const HeadScales& scales);

// For TinyLlama::round_cache. Projections without scales have 1.
TinyLlama::Rounding InCodes(HeadScales scales = {});

}  // namespace millrace

#endif  // TESTS_PARITY_CACHE_CODES_H_
