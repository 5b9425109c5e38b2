#include "engine/cache/kv_cache.h"

#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_device.h"

namespace millrace {
namespace {

CacheSpec TwoKinds() {
  CacheSpec spec;
  spec.layers.push_back(KeyValueLayer(/*kv_heads=*/3, /*head_dim=*/5, DType::kF32));
  spec.layers.push_back({RowStore{"compressed", 4, 1, 7, DType::kBF16}});
  return spec;
}

TEST(CacheSpecTest, BytesPerPageAreThoseOfAllStores) {
  EXPECT_EQ(TwoKinds().bytes_per_page(8), 2 * 3 * 8 * 5 * 4 + 2 * 7 * 2);
}

TEST(CacheSpecTest, APageMustHoldWholeRows) {
  EXPECT_TRUE(TwoKinds().Validate(8).ok());
  const absl::Status status = TwoKinds().Validate(6);
  EXPECT_NE(std::string(status.message())
                .find("layer 1 stores one compressed row for 4 tokens: "
                      "give a multiple of 4"),
            std::string::npos)
      << status;
  EXPECT_FALSE(TwoKinds().Validate(0).ok());
}

TEST(KvCacheTest, EveryStoreHasItsShapeAndItsOwnMemory) {
  const std::unique_ptr<CpuDevice> device = *CpuDevice::Create(1);
  absl::StatusOr<KvCache> cache = KvCache::Allocate(TwoKinds(), {8, 4, 0}, *device);
  ASSERT_TRUE(cache.ok()) << cache.status();
  EXPECT_EQ(cache->store(0, kKeyStore).ToString(), "float32[4, 3, 8, 5] on cpu");
  EXPECT_EQ(cache->store(1, 0).ToString(), "bfloat16[4, 1, 2, 7] on cpu");
  const char* key = cache->store(0, kKeyStore).as<char>();
  const char* value = cache->store(0, kValueStore).as<char>();
  const char* compressed = cache->store(1, 0).as<char>();
  EXPECT_GE(value - key, 4 * 3 * 8 * 5 * 4);
  EXPECT_GE(compressed - value, 4 * 3 * 8 * 5 * 4);
  EXPECT_GE(cache->bytes(), compressed - key + 4 * 2 * 7 * 2);
}

TEST(KvCacheTest, SlotStoresAreCountedApartFromPages) {
  CacheSpec spec = TwoKinds();
  const int64_t page_bytes = spec.bytes_per_page(8);
  EXPECT_EQ(spec.bytes_per_slot(), 0);
  spec.slot_layers = {{}, {SlotStore{"window", 9, 5, DType::kF32}, {"sum", 1, 3, DType::kBF16}}};
  EXPECT_EQ(spec.bytes_per_page(8), page_bytes);
  EXPECT_EQ(spec.bytes_per_slot(), 9 * 5 * 4 + 3 * 2);
  const std::unique_ptr<CpuDevice> device = *CpuDevice::Create(1);
  absl::StatusOr<KvCache> cache = KvCache::Allocate(spec, {8, 4, 6}, *device);
  ASSERT_TRUE(cache.ok()) << cache.status();
  EXPECT_EQ(cache->slot_store(1, 0).ToString(), "float32[6, 9, 5] on cpu");
  EXPECT_EQ(cache->slot_store(1, 1).ToString(), "bfloat16[6, 1, 3] on cpu");
  const char* rows = cache->store(1, 0).as<char>();
  const char* window = cache->slot_store(1, 0).as<char>();
  const char* sum = cache->slot_store(1, 1).as<char>();
  EXPECT_GE(window - rows, 4 * 2 * 7 * 2);
  EXPECT_GE(sum - window, 6 * 9 * 5 * 4);
  EXPECT_GE(cache->bytes(), sum - cache->store(0, kKeyStore).as<char>() + 6 * 3 * 2);
}

TEST(KvCacheTest, RefusesNoPagesAndTooMany) {
  const std::unique_ptr<CpuDevice> device = *CpuDevice::Create(1);
  EXPECT_EQ(KvCache::Allocate(TwoKinds(), {8, 0, 0}, *device).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(KvCache::Allocate(TwoKinds(), {1 << 20, 1 << 20, 0}, *device).status().code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace millrace
