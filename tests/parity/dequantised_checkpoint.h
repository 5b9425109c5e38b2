// A checkpoint folder with every quantised matrix as the f32 numbers that it stands for.
#ifndef TESTS_PARITY_DEQUANTISED_CHECKPOINT_H_
#define TESTS_PARITY_DEQUANTISED_CHECKPOINT_H_

#include <cstdint>
#include <string>

namespace millrace {

// What a rank that holds everything keeps in memory of a checkpoint, by the formats' arithmetic.
struct StoredBytes {
  int64_t matrices = 0;  // codes, scales and factors of quantised ones
  int64_t plain = 0;     // everything else, as the file has it
};

// Reads the checkpoint `from` and writes the like into the folder `to`, with the config.json of the
// folder `config`.
StoredBytes WriteDequantised(const std::string& from, const std::string& config,
                             const std::string& to);

}  // namespace millrace

#endif  // TESTS_PARITY_DEQUANTISED_CHECKPOINT_H_
