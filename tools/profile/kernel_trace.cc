// A library that CUDA loads into any program (CUDA_INJECTION64_PATH): at the program's end it
// prints what ran on the GPU, kernel by kernel, and how long nothing did. See README.md.
#include <cupti.h>
#include <cxxabi.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace {

constexpr size_t kBufferBytes = size_t{8} << 20;

struct Run {
  uint64_t begin = 0;  // ns
  uint64_t end = 0;
  std::string name;
};

struct Trace {
  std::mutex mu;
  std::vector<Run> runs;
};

// Alive until the process is gone: CUPTI delivers from a thread of its own.
Trace& TheTrace() {
  static Trace* trace = new Trace;
  return *trace;
}

// Without return type, namespaces and parameters: "linear_kernel<4, 2>".
std::string ShortName(const char* mangled) {
  int status = 0;
  char* demangled = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
  std::string name = status == 0 ? demangled : mangled;
  std::free(demangled);
  for (const std::string drop : {"millrace::", "(anonymous namespace)::", "void "}) {
    for (size_t at = name.find(drop); at != std::string::npos; at = name.find(drop)) {
      name.erase(at, drop.size());
    }
  }
  for (size_t at = name.find('('), depth = 0; at < name.size(); ++at) {
    if (name[at] != '(') continue;
    // A cast inside the template arguments is no parameter list.
    depth = static_cast<size_t>(std::count(name.begin(), name.begin() + at, '<')) -
            static_cast<size_t>(std::count(name.begin(), name.begin() + at, '>'));
    if (depth == 0) name.resize(at);
  }
  constexpr size_t kWidth = 70;
  if (name.size() > kWidth) name.resize(kWidth);
  return name;
}

void Add(const CUpti_Activity* record) {
  Run run;
  if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
    const auto* kernel = reinterpret_cast<const CUpti_ActivityKernel10*>(record);
    run = {kernel->start, kernel->end, kernel->name};
  } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
    const auto* copy = reinterpret_cast<const CUpti_ActivityMemcpy6*>(record);
    run = {copy->start, copy->end, "[copy]"};
  } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
    const auto* set = reinterpret_cast<const CUpti_ActivityMemset4*>(record);
    run = {set->start, set->end, "[set]"};
  } else {
    return;
  }
  TheTrace().runs.push_back(std::move(run));
}

void CUPTIAPI GiveBuffer(uint8_t** buffer, size_t* size, size_t* most_records) {
  *size = kBufferBytes;
  *most_records = 0;
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(8, kBufferBytes));
}

void CUPTIAPI TakeBuffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  const std::lock_guard<std::mutex> lock(TheTrace().mu);
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) Add(record);
  std::free(buffer);
}

struct Total {
  uint64_t ns = 0;
  int64_t count = 0;
};

// Of runs sorted by begin: time in which none ran, and how it is spread.
void PrintIdle(const std::vector<Run>& runs) {
  uint64_t idle = 0, longest = 0, covered = runs.front().begin;
  int64_t gaps[3] = {};  // above 2, 5 and 20 us
  for (const Run& run : runs) {
    if (run.begin > covered) {
      const uint64_t gap = run.begin - covered;
      idle += gap;
      longest = std::max(longest, gap);
      gaps[0] += gap > 2000;
      gaps[1] += gap > 5000;
      gaps[2] += gap > 20000;
    }
    covered = std::max(covered, run.end);
  }
  const double span = static_cast<double>(covered - runs.front().begin);
  std::fprintf(stderr,
               "span %.3f ms, idle %.3f ms (%.1f %%), gaps above 2 us: %lld, 5 us: %lld, "
               "20 us: %lld, longest %.1f us\n",
               span * 1e-6, static_cast<double>(idle) * 1e-6,
               100.0 * static_cast<double>(idle) / span, static_cast<long long>(gaps[0]),
               static_cast<long long>(gaps[1]), static_cast<long long>(gaps[2]),
               static_cast<double>(longest) * 1e-3);
}

void PrintKernels(const std::vector<Run>& runs) {
  std::map<std::string, Total> by_name;
  uint64_t all = 0;
  for (const Run& run : runs) {
    Total& total = by_name[ShortName(run.name.c_str())];
    total.ns += run.end - run.begin;
    ++total.count;
    all += run.end - run.begin;
  }
  std::vector<std::pair<std::string, Total>> rows(by_name.begin(), by_name.end());
  std::sort(rows.begin(), rows.end(),
            [](const auto& a, const auto& b) { return a.second.ns > b.second.ns; });
  std::fprintf(stderr, "%7s %8s %10s %10s  kernel\n", "of all", "count", "ms", "us each");
  for (const auto& [name, total] : rows) {
    const double ns = static_cast<double>(total.ns);
    std::fprintf(stderr, "%5.1f %% %8lld %10.3f %10.2f  %s\n", 100 * ns / static_cast<double>(all),
                 static_cast<long long>(total.count), ns * 1e-6,
                 ns * 1e-3 / static_cast<double>(total.count), name.c_str());
  }
}

// What a kernel adds to the time of those in order, by the kernel that ended before it.
struct Step {
  double begin_ns = 0;  // after the end before; negative where it was launched early
  double end_ns = 0;
  int64_t count = 0;
};

// Of runs sorted by begin. Pairs that come at least a hundredth as often as the most frequent one.
void PrintSteps(std::vector<Run> runs) {
  std::sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) { return a.end < b.end; });
  std::map<std::pair<std::string, std::string>, Step> steps;
  int64_t most = 0;
  for (size_t i = 1; i < runs.size(); ++i) {
    const auto before = static_cast<double>(runs[i - 1].end);
    Step& step = steps[{ShortName(runs[i].name.c_str()), ShortName(runs[i - 1].name.c_str())}];
    step.begin_ns += static_cast<double>(runs[i].begin) - before;
    step.end_ns += static_cast<double>(runs[i].end) - before;
    most = std::max(most, ++step.count);
  }
  std::fprintf(stderr, "%8s %10s %10s  us after the end before: kernel, the one before\n", "count",
               "begin", "end");
  for (const auto& [names, step] : steps) {
    if (step.count * 100 < most) continue;
    const double scale = 1e-3 / static_cast<double>(step.count);
    std::fprintf(stderr, "%8lld %10.2f %10.2f  %s, %s\n", static_cast<long long>(step.count),
                 step.begin_ns * scale, step.end_ns * scale, names.first.c_str(),
                 names.second.c_str());
  }
}

// Of the last KERNEL_TRACE_LAST_MS milliseconds of the program's work on the GPU; of all without.
void Print() {
  cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  const std::lock_guard<std::mutex> lock(TheTrace().mu);
  std::vector<Run>& runs = TheTrace().runs;
  if (runs.empty()) return;
  std::sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) { return a.begin < b.begin; });
  const char* last = std::getenv("KERNEL_TRACE_LAST_MS");
  if (last != nullptr) {
    const auto window = static_cast<uint64_t>(std::atof(last) * 1e6);
    const uint64_t end = runs.back().end;
    std::erase_if(runs, [&](const Run& run) { return run.begin + window < end; });
  }
  std::fprintf(stderr, "--- kernel trace\n");
  PrintIdle(runs);
  PrintKernels(runs);
  PrintSteps(runs);
}

}  // namespace

// Called by the CUDA driver when it is first used.
extern "C" int InitializeInjection() {
  if (cuptiActivityRegisterCallbacks(GiveBuffer, TakeBuffer) != CUPTI_SUCCESS) return 0;
  for (const CUpti_ActivityKind kind : {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                        CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET}) {
    if (cuptiActivityEnable(kind) != CUPTI_SUCCESS) return 0;
  }
  std::atexit(Print);
  return 1;
}
