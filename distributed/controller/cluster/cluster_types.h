// What the hub is told and what it tells of its groups.
#ifndef DISTRIBUTED_CONTROLLER_CLUSTER_CLUSTER_TYPES_H_
#define DISTRIBUTED_CONTROLLER_CLUSTER_CLUSTER_TYPES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "engine/runtime/runner_config.h"

namespace millrace {

struct WorkerHubOptions {
  std::string host = "127.0.0.1";  // where workers dial in
  int32_t port = 0;                // 0: a free one, see WorkerHub::port()
  std::string secret;              // of the cluster, at least 16 bytes; see session/secret.h
  std::string build_version;       // workers must have the same; see session/version.h

  RunnerConfig config;            // handed to every rank
  std::string model_fingerprint;  // of config.model_dir; a worker's own must match. "": unchecked
  int32_t world = 1;              // ranks of all of config.data_parallel_size groups
  int32_t vocab_size = 0;         // > 0; results outside of it are refused
  // GPUs: small sums over peer memory, where the ranks have it, instead of by NCCL.
  bool custom_all_reduce = true;

  int32_t num_pages = 0;              // > 0: as asked; 0: sized from what the ranks report
  int64_t kv_cache_memory_bytes = 0;  // > 0: cache of each rank; 0: a share of what is free
  double memory_utilization = 0;      // that share, 0: PageRequest's; ranks of one memory divide it

  absl::Duration startup_timeout = absl::Minutes(10);  // to the first group's readiness
  absl::Duration self_test_timeout = absl::Seconds(30);
  absl::Duration step_timeout = absl::Seconds(60);
  absl::Duration lease = absl::Seconds(4);  // silence after which a worker is given up
};

struct RankInfo {
  int32_t rank = 0;
  std::string host;
  int32_t pid = 0;
  std::string device;     // "AMD EPYC ... (2 threads, avx512_bf16)"
  std::string memory_id;  // RankRoom's
  std::string transport;  // of its collectives
  RankMemory memory;
};

struct GroupInfo {
  std::string id;
  int32_t num_pages = 0;
  std::vector<RankInfo> ranks;
};

}  // namespace millrace

#endif  // DISTRIBUTED_CONTROLLER_CLUSTER_CLUSTER_TYPES_H_
