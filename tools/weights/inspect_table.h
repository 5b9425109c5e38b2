// The report of tools/weights:inspect as text.
#ifndef TOOLS_WEIGHTS_INSPECT_TABLE_H_
#define TOOLS_WEIGHTS_INSPECT_TABLE_H_

#include <cstdint>
#include <string>

#include "engine/weights/checkpoint.h"

namespace millrace {

// "1.5 MiB", "576 B"
std::string BytesText(int64_t bytes);

// One line a tensor in natural order (layer 2 before layer 10), then the files and the total.
std::string InspectTable(const Checkpoint& checkpoint);

}  // namespace millrace

#endif  // TOOLS_WEIGHTS_INSPECT_TABLE_H_
