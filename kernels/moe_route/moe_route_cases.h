// Shapes of the routers, shared by test and bench.
#ifndef KERNELS_MOE_ROUTE_MOE_ROUTE_CASES_H_
#define KERNELS_MOE_ROUTE_MOE_ROUTE_CASES_H_

#include <cstdint>

namespace millrace {

struct MoeRouteCase {
  int64_t tokens;
  int64_t experts;
  int64_t chosen;
  int64_t row_padding;
};

inline constexpr MoeRouteCase kMoeRouteCases[] = {
    {0, 8, 2, 0},    {1, 1, 1, 0},     {1, 256, 6, 0},   {7, 384, 6, 8},   {300, 8, 2, 3},
    {65, 256, 6, 0}, {33, 6, 6, 1},    {5, 137, 9, 0},   {2, 1000, 33, 0}, {9, 384, 8, 3},
    {6, 512, 8, 4},  {3, 1024, 40, 0}, {129, 384, 6, 0},
};

// What the benchmark times.
struct MoeRouteServed {
  int64_t tokens;
  int64_t experts;
  int64_t chosen;
};

inline constexpr MoeRouteServed kMoeRouteServed[] = {
    {1, 256, 6},    {16, 256, 6}, {64, 256, 6}, {512, 256, 6},  {2048, 256, 6},
    {8192, 256, 6}, {1, 384, 6},  {64, 384, 6}, {8192, 384, 6}, {8192, 384, 8},
};

}  // namespace millrace

#endif  // KERNELS_MOE_ROUTE_MOE_ROUTE_CASES_H_
