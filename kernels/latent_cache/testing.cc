#include "kernels/latent_cache/testing.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "kernels/latent_cache/latent_row.h"

namespace millrace {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// The value of an E4M3 code, from its definition.
double ValueOfCode(int code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  if (exponent == 15 && mantissa == 7) return kNan;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return code < 128 ? magnitude : -magnitude;
}

double ValueOfBf16(int low, int high) {
  return ToFloat(BFloat16{static_cast<uint16_t>(low | high << 8)});
}

// Of one page of FP8 rows, `page` its bytes.
std::vector<double> Fp8Row(const uint8_t* page, int64_t page_rows, int64_t row) {
  const uint8_t* data = page + row * 576;
  const uint8_t* scales = page + page_rows * 576 + row * 8;
  std::vector<double> values;
  for (int64_t i = 0; i < 448; ++i) {
    const double scale = scales[i / 64] == 255 ? kNan : std::ldexp(1.0, scales[i / 64] - 127);
    values.push_back(ValueOfCode(data[i]) * scale);
  }
  for (int64_t i = 448; i < 576; i += 2) values.push_back(ValueOfBf16(data[i], data[i + 1]));
  return values;
}

void FillFp8Page(double* page, int64_t page_rows, TestRng& rng) {
  for (int64_t i = 0; i < page_rows * 576; ++i) {
    const bool is_code = i % 576 < 448;
    // No NaN. A bf16 is below 2 in magnitude: its upper byte ends in the exponent's upper bits.
    int64_t byte = rng.Integer(0, is_code ? 126 : 255);
    if (!is_code && i % 2 == 1) byte = rng.Integer(0x3a, 0x3f);
    if ((is_code || i % 2 == 1) && rng.Uniform() < 0.5) byte += 128;
    page[i] = static_cast<double>(byte);
  }
  for (int64_t row = 0; row < page_rows; ++row) {
    double* scales = page + page_rows * 576 + row * 8;
    for (int64_t g = 0; g < 7; ++g) scales[g] = static_cast<double>(rng.Integer(116, 120));
    scales[7] = 0;
  }
}

double AsBf16(double x) { return ToFloat(ToBFloat16(static_cast<float>(x))); }

// Nearest multiple of a float's last place, with `bits` of mantissa and no exponent below `lowest`.
double Rounded(double x, int bits, int lowest) {
  if (x == 0) return x;
  const int exponent = std::max(std::ilogb(x), lowest);
  const double unit = std::ldexp(1.0, exponent - bits);
  return std::nearbyint(x / unit) * unit;  // ties to even
}

// A row as FP8 gives it back.
std::vector<double> AsFp8(const std::vector<double>& row) {
  std::vector<double> want;
  for (size_t begin = 0; begin < 448; begin += 64) {
    double amax = 1e-4;
    bool is_finite = true;
    for (size_t i = begin; i < begin + 64; ++i) {
      is_finite = is_finite && std::isfinite(row[i]);
      amax = std::max(amax, std::abs(row[i]));
    }
    const double scale = std::exp2(std::ceil(std::log2(amax / 448)));
    for (size_t i = begin; i < begin + 64; ++i) {
      want.push_back(is_finite ? Rounded(row[i] / scale, 3, -6) * scale : kNan);
    }
  }
  for (size_t i = 448; i < 512; ++i) want.push_back(AsBf16(row[i]));
  return want;
}

GuardedTensor StepTensor(Device& device, int64_t size) {
  return GuardedTensor(device, DType::kI32, {size});
}

}  // namespace

ScatteredPages::ScatteredPages(const std::vector<int64_t>& lengths, int64_t page_tokens,
                               uint64_t seed)
    : page_tokens_(page_tokens) {
  for (int64_t length : lengths) num_pages_ += (length + page_tokens - 1) / page_tokens;
  num_pages_ += 2;
  std::vector<int64_t> free(static_cast<size_t>(num_pages_));
  std::iota(free.begin(), free.end(), 0);
  TestRng rng(seed);
  for (size_t i = free.size() - 1; i > 0; --i) {
    std::swap(free[i], free[static_cast<size_t>(rng.Integer(0, static_cast<int64_t>(i)))]);
  }
  auto next = free.begin();
  for (int64_t length : lengths) {
    const auto end = next + (length + page_tokens - 1) / page_tokens;
    pages_.emplace_back(next, end);
    next = end;
  }
}

int64_t ScatteredPages::max_pages() const {
  size_t most = 1;
  for (const auto& pages : pages_) most = std::max(most, pages.size());
  return static_cast<int64_t>(most);
}

int64_t ScatteredPages::RowOf(int64_t b, int64_t p, int64_t tokens_per_row) const {
  const int64_t page = pages(b)[static_cast<size_t>(p / page_tokens_)];
  return page * (page_tokens_ / tokens_per_row) + p % page_tokens_ / tokens_per_row;
}

StepBatch::StepBatch(Device& device, const ScatteredPages& pages,
                     const std::vector<SequenceStep>& step, std::vector<int64_t> order)
    : q_start_(StepTensor(device, static_cast<int64_t>(step.size()) + 1)),
      kv_len_(StepTensor(device, static_cast<int64_t>(step.size()))),
      table_(device, DType::kI32, {static_cast<int64_t>(step.size()), pages.max_pages()}, 3) {
  if (order.empty()) {
    order.resize(step.size());
    std::iota(order.begin(), order.end(), 0);
  }
  std::vector<double> starts = {0}, lengths, table;
  for (size_t b = 0; b < step.size(); ++b) {
    for (int64_t i = 0; i < step[b].tokens; ++i) {
      sequence_.push_back(order[b]);
      position_.push_back(step[b].before + i);
    }
    starts.push_back(static_cast<double>(sequence_.size()));
    lengths.push_back(static_cast<double>(step[b].before + step[b].tokens));
    std::vector<double> row(static_cast<size_t>(pages.max_pages()), -1);
    std::copy(pages.pages(order[b]).begin(), pages.pages(order[b]).end(), row.begin());
    table.insert(table.end(), row.begin(), row.end());
  }
  q_start_.Set(starts);
  kv_len_.Set(lengths);
  table_.Set(table);
}

::testing::AssertionResult StepBatch::GuardsIntact() const {
  for (const GuardedTensor* t : {&q_start_, &kv_len_, &table_}) {
    const ::testing::AssertionResult intact = t->GuardsIntact();
    if (!intact) return intact;
  }
  return ::testing::AssertionSuccess();
}

GuardedTensor LatentStore(Device& device, DType dtype, int64_t pages, int64_t page_rows,
                          int64_t dim) {
  return GuardedTensor(device, dtype, {pages, 1, page_rows, LatentRowWidth(dtype, dim)});
}

void FillLatentStore(GuardedTensor& store, TestRng& rng) {
  if (store.view().dtype != DType::kU8) {
    store.SetNormal(rng);
    return;
  }
  const int64_t page_rows = store.view().dim(2), page_bytes = page_rows * 584;
  std::vector<double> bytes(static_cast<size_t>(store.size()));
  for (int64_t page = 0; page < store.view().dim(0); ++page) {
    FillFp8Page(bytes.data() + page * page_bytes, page_rows, rng);
  }
  store.Set(bytes);
}

TestRows LatentStoreRows(const GuardedTensor& store) {
  const int64_t page_rows = store.view().dim(2), width = store.view().dim(3);
  TestRows rows;
  if (store.view().dtype == DType::kU8) {
    const std::vector<uint8_t> bytes = store.GetBytes();
    for (int64_t i = 0; i < store.view().dim(0) * page_rows; ++i) {
      rows.push_back(
          Fp8Row(bytes.data() + i / page_rows * page_rows * width, page_rows, i % page_rows));
    }
    return rows;
  }
  const std::vector<double> values = store.Get();
  for (auto row = values.begin(); row != values.end(); row += width) {
    rows.emplace_back(row, row + width);
  }
  return rows;
}

std::vector<double> AsStored(const std::vector<double>& row, DType dtype) {
  if (dtype == DType::kU8) return AsFp8(row);
  std::vector<double> want = row;
  if (dtype == DType::kBF16) std::transform(row.begin(), row.end(), want.begin(), AsBf16);
  return want;
}

}  // namespace millrace
