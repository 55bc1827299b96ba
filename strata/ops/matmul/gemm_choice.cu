// The search for the fastest kernel of a product, and what remembers it.

#include "strata/ops/matmul/gemm_choice.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "strata/core/once.h"
#include "strata/core/tensor.h"
#include "strata/cuda/check.cuh"
#include "strata/cuda/choice_file.h"

namespace strata::cuda {
namespace {

constexpr size_t kWorkspace = size_t{64} << 20;
constexpr int kCandidates = 16;
constexpr double kWorthSearching = 2e9;              // flops
constexpr size_t kScratchLimit = size_t{256} << 20;  // bytes of a result that may not be written over
constexpr int kRounds = 5, kRoundsOfSlow = 3;        // from a millisecond on
constexpr float kHopeless = 1.3f;                    // times the quickest first run
constexpr float kRoundMs = 0.4f;                     // of one candidate in one round, at least
constexpr float kClearlyFaster = 0.98f;              // than the library's first guess

std::string bytes_of(const Problem& p) {
  return {reinterpret_cast<const char*>(&p), sizeof p};
}

struct Preference {
  LtPreference p;
  explicit Preference(const Problem& problem) {
    p.set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspace);
    // Partial sums may be kept apart in f32, never rounded to the result's dtype.
    p.set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
    p.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, problem.align_b);
    p.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, problem.align_a);
    p.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, problem.align_c);
    p.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, problem.align_c);
  }
};

// The library's guesses, best first.
std::vector<Choice> candidates(const Problem& problem, const LtCall& call, int most) {
  const Preference preference(problem);
  std::array<cublasLtMatmulHeuristicResult_t, kCandidates> found{};
  int count = 0;
  const cublasStatus_t s =
      cublas_lt().heuristic(call.handle, call.desc, call.a_layout, call.b_layout, call.added_layout(), call.c_layout,
                            preference.p.p, most, found.data(), &count);
  std::vector<Choice> all;
  if (s != CUBLAS_STATUS_SUCCESS) return all;
  for (int i = 0; i < count; ++i) {
    const cublasLtMatmulHeuristicResult_t& f = found[static_cast<size_t>(i)];
    if (f.state == CUBLAS_STATUS_SUCCESS) all.push_back({true, f.algo, f.workspaceSize});
  }
  return all;
}

// Two events for the times of a search.
struct Stopwatch {
  cudaEvent_t begin = nullptr, end = nullptr;
  Stopwatch() {
    check_cuda(cudaEventCreate(&begin), "matmul", "cudaEventCreate");
    check_cuda(cudaEventCreate(&end), "matmul", "cudaEventCreate");
  }
  ~Stopwatch() {
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
  }
  Stopwatch(const Stopwatch&) = delete;
};

// The fastest candidate by the median of several rounds, in which the candidates take turns: a card that slows down as
// it warms up slows them all down.
Choice search(const std::vector<Choice>& all, const Problem& problem, const LtCall& call, Device device) {
  size_t space = 0;
  for (const Choice& c : all) space = std::max(space, c.workspace);
  Tensor workspace, scratch;
  if (space > 0) workspace = empty({{static_cast<int64_t>(space)}, DType::u8, device, std::nullopt});
  void* into = call.c;
  if (problem.accumulates == 1) {
    const int64_t last = (problem.batches - 1) * problem.c_batch + (problem.m - 1) * problem.ldc + problem.n;
    const int64_t bytes = last * size_of(static_cast<DType>(problem.out));
    if (last < 0 || static_cast<size_t>(bytes) > kScratchLimit) return all[0];
    scratch = empty({{bytes}, DType::u8, device, std::nullopt});
    into = scratch.raw_data();
  }
  const Stopwatch watch;
  // Milliseconds of `times` runs, or nothing for a kernel that refuses.
  const auto run = [&](const Choice& c, int times) -> std::optional<float> {
    check_cuda(cudaEventRecord(watch.begin, stream()), "matmul", "cudaEventRecord");
    for (int i = 0; i < times; ++i) {
      const cublasStatus_t s =
          cublas_lt().matmul(call.handle, call.desc, call.alpha, call.a, call.a_layout, call.b, call.b_layout,
                             call.beta, call.added_to(), call.added_layout(), into, call.c_layout, &c.algo,
                             workspace.defined() ? workspace.raw_data() : nullptr, c.workspace, stream());
      if (s != CUBLAS_STATUS_SUCCESS) return std::nullopt;
    }
    check_cuda(cudaEventRecord(watch.end, stream()), "matmul", "cudaEventRecord");
    check_cuda(cudaEventSynchronize(watch.end), "matmul", "waiting for a candidate");
    float ms = 0;
    check_cuda(cudaEventElapsedTime(&ms, watch.begin, watch.end), "matmul", "cudaEventElapsedTime");
    return ms;
  };
  struct Runner {
    size_t at;
    float once;
    int times;
    std::vector<float> ms;
  };
  std::vector<Runner> runners;
  for (size_t i = 0; i < all.size(); ++i) {
    if (!run(all[i], 1)) continue;  // the first run loads the kernel
    const auto once = run(all[i], 1);
    if (!once) continue;
    runners.push_back({i, *once, std::clamp(static_cast<int>(kRoundMs / std::max(*once, 1e-3f)), 1, 20), {}});
  }
  if (runners.empty()) return all[0];
  float quickest = runners[0].once;
  for (const Runner& r : runners) quickest = std::min(quickest, r.once);
  std::erase_if(runners, [&](const Runner& r) { return r.once > kHopeless * quickest && r.at != 0; });
  const int rounds = quickest < 1 ? kRounds : kRoundsOfSlow;
  for (int round = 0; round < rounds; ++round)
    for (Runner& r : runners) r.ms.push_back(run(all[r.at], r.times).value_or(1e9f) / static_cast<float>(r.times));
  const auto median = [](const Runner& r) {
    std::vector<float> sorted = r.ms;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  };
  const Runner* best = &runners[0];
  float least = median(runners[0]) * kClearlyFaster;
  for (const Runner& r : runners) {
    if (median(r) < least) best = &r, least = median(r);
  }
  return all[best->at];
}

bool capturing() {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  return cudaStreamIsCapturing(stream(), &status) != cudaSuccess || status != cudaStreamCaptureStatusNone;
}

bool search_wanted() {
  static const bool wanted = [] {
    const char* s = std::getenv("STRATA_MATMUL_SEARCH");
    return s == nullptr || std::strcmp(s, "0") != 0;
  }();
  return wanted;
}

// The choices for one card.
class Choices {
 public:
  explicit Choices(int device) {
    const std::string folder = cache_folder();
    if (folder.empty()) return;
    const DeviceProperties& p = properties(device);
    std::string card;
    for (const char c : p.name) card += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '-';
    const std::string id = cat(card, "-", p.multiprocessors, "-driver-", versions().driver, "-cublaslt-",
                               static_cast<int64_t>(cublas_lt().version()));
    file_ = std::make_unique<ChoiceFile>(cat(folder, "/matmul-", id), cat("strata matmul 1 ", id), kMostOnDisk);
  }

  Choice get(const Problem& problem, const LtCall& call, Device device) {
    const std::lock_guard lock(mutex_);
    const std::string key = bytes_of(problem);
    if (const auto at = index_.find(key); at != index_.end()) {
      order_.splice(order_.begin(), order_, at->second);
      return at->second->second;
    }
    const strata::detail::OnceScope once("products chosen");
    const Choice c = find(key, problem, call, device);
    order_.emplace_front(key, c);
    index_[key] = order_.begin();
    if (order_.size() > kMost) {
      index_.erase(order_.back().first);
      order_.pop_back();
    }
    return c;
  }

 private:
  static constexpr size_t kMost = 1024, kMostOnDisk = 2048;

  // A choice from disk, once the library has agreed that it is one.
  static std::optional<Choice> parse(const std::string& value, const LtCall& call) {
    Choice c;
    if (value.size() != sizeof c.algo) return std::nullopt;
    std::memcpy(&c.algo, value.data(), sizeof c.algo);
    cublasLtMatmulHeuristicResult_t r{};
    if (cublas_lt().check(call.handle, call.desc, call.a_layout, call.b_layout, call.added_layout(), call.c_layout,
                          &c.algo, &r) != CUBLAS_STATUS_SUCCESS ||
        r.workspaceSize > kWorkspace)
      return std::nullopt;
    c.found = true;
    c.workspace = r.workspaceSize;
    return c;
  }

  std::optional<Choice> known(const std::string& key, const LtCall& call) {
    const auto value = file_->find(key);
    return value ? parse(*value, call) : std::nullopt;
  }

  Choice find(const std::string& key, const Problem& problem, const LtCall& call, Device device) {
    const bool large = search_wanted() && file_ && problem.flops() >= kWorthSearching;
    if (large) {
      if (const auto c = known(key, call)) return *c;
      if (problem.accumulates) {
        // The product that writes over its result needed no scratch to be timed.
        Problem plain = problem;
        plain.accumulates = 0;
        if (const auto c = known(bytes_of(plain), call)) return *c;
      }
    }
    const bool searching = large && !capturing() && file_->writable();
    const std::vector<Choice> all = candidates(problem, call, searching ? kCandidates : 1);
    if (all.empty()) return {};
    if (!searching || all.size() == 1) return all[0];
    const Choice best = search(all, problem, call, device);
    // Another process may have decided otherwise; and what cannot be put down must not depend on the clock.
    const auto kept = file_->put(key, {reinterpret_cast<const char*>(&best.algo), sizeof best.algo});
    return kept ? parse(*kept, call).value_or(all[0]) : all[0];
  }

  std::mutex mutex_;
  std::unique_ptr<ChoiceFile> file_;
  std::list<std::pair<std::string, Choice>> order_;  // used last first
  std::unordered_map<std::string, std::list<std::pair<std::string, Choice>>::iterator> index_;
};

}  // namespace

Choice choose(const Problem& problem, const LtCall& call, Device device) {
  struct Slot {
    std::once_flag once;
    std::unique_ptr<Choices> choices;
  };
  static auto* slots = new std::array<Slot, 64>;
  Slot& s = (*slots)[static_cast<size_t>(device.index)];
  std::call_once(s.once, [&] { s.choices = std::make_unique<Choices>(device.index); });
  return s.choices->get(problem, call, device);
}

bool run_chosen(const LtCall& call, const Choice& choice, Device device) {
  if (!choice.found) return false;
  Tensor workspace;
  if (choice.workspace > 0)
    workspace = empty({{static_cast<int64_t>(choice.workspace)}, DType::u8, device, std::nullopt});
  const cublasStatus_t status =
      cublas_lt().matmul(call.handle, call.desc, call.alpha, call.a, call.a_layout, call.b, call.b_layout, call.beta,
                         call.added_to(), call.added_layout(), call.c, call.c_layout, &choice.algo,
                         workspace.defined() ? workspace.raw_data() : nullptr, choice.workspace, stream());
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || (call.start != nullptr && status == CUBLAS_STATUS_INVALID_VALUE))
    return false;
  check_lt(status, "cublasLtMatmul");
  return true;
}

}  // namespace strata::cuda
