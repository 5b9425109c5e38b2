// A checkpoint folder with every quantised matrix as the f32 numbers that it stands for.
#ifndef TESTS_PARITY_DEQUANTISED_CHECKPOINT_H_
#define TESTS_PARITY_DEQUANTISED_CHECKPOINT_H_

#include <cstdint>
#include <map>
#include <string>

#include "tests/parity/checkpoint_writer.h"

namespace millrace {

// What a rank that holds everything keeps in memory of a checkpoint, by the formats' arithmetic.
struct StoredBytes {
  int64_t matrices = 0;  // codes, scales and factors of quantised ones
  int64_t plain = 0;     // everything else, as the file has it
};

// Reads the checkpoint `from`, a DeepSeek-V4, and writes the like into the folder `to`, with the
// config.json of the folder `config`.
StoredBytes WriteDequantised(const std::string& from, const std::string& config,
                             const std::string& to);

// The tensors of a folder as they are stored.
std::map<std::string, WrittenTensor> StoredTensors(const std::string& dir);

// Of a LLaMA with FP8 weights: code times scale as f32, whatever shares a scale, without scales.
// The rest as it is.
std::map<std::string, WrittenTensor> DequantisedLlama(const std::string& dir);

// The text of config.json in a folder.
std::string ConfigOf(const std::string& dir);

}  // namespace millrace

#endif  // TESTS_PARITY_DEQUANTISED_CHECKPOINT_H_
