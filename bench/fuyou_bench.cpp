// Optimizer state on a disk (Liao et al., "Fuyou", 2024): groups of state that are read, updated and written back while
// others come and go, beside the same groups one after the other: read, update, write, and only then the next. Both
// have the same memory for it. Training steps of a stack of matrices in bf16, AdamW's weights and moments in f32 (12
// bytes a parameter).
//     fuyou_bench [million parameters, 100] [directory] [rows of a batch, 64] [trace.json]
// "in turn" is what the parts take one after the other: computing, reading and writing, each measured by itself; what a
// step takes less was hidden. The trace has a time line of one step of either way.

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "strata/core/parallel.h"
#include "strata/core/rng.h"
#include "strata/cuda/runtime.h"
#include "strata/io/files.h"
#include "strata/lab/trace.h"
#include "strata/memory/allocator.h"
#include "strata/memory/disk.h"
#include "strata/memory/tiers.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/optim/home.h"
#include "strata/optim/optim.h"

namespace {

using namespace strata;
using memory::kDisk;

constexpr int64_t kWidth = 2048, kState = 12 * kWidth * kWidth;  // bytes of one matrix's state
constexpr int64_t kNear = 4 * kState;                            // that may be in memory at once
constexpr int kSteps = 4;                                        // the first makes the state, and is not counted

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// What the disk moved when, seen every millisecond.
class DiskWatch {
 public:
  explicit DiskWatch(lab::Trace& trace, double begin) : trace_(trace), begin_(begin), thread_([this] { watch(); }) {}
  ~DiskWatch() {
    stop_ = true;
    thread_.join();
  }

 private:
  void watch() {
    memory::DiskStats last = memory::disk()->stats();
    double from = now();
    const auto add = [&](const char* name, int64_t bytes, double to) {
      if (bytes > 0) trace_.track(name).spans.push_back({"state", from - begin_, to - begin_, bytes, Phase::update});
    };
    while (!stop_) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      const memory::DiskStats s = memory::disk()->stats();
      const double to = now();
      add("from disk", s.bytes_read - last.bytes_read, to);
      add("to disk", s.bytes_written - last.bytes_written, to);
      last = s;
      from = to;
    }
  }

  lab::Trace& trace_;
  const double begin_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

enum class Way { resident, serial, overlapped };

struct Figures {
  double backward = 0, update = 0;  // seconds: forward and backward, the update
  double reading = 0, writing = 0;  // of a step, during which the disk read, wrote
  int64_t bytes_read = 0, bytes_written = 0;
  std::vector<double> losses;
  lab::Trace trace;  // of the last step
  double step() const { return backward + update; }
};

Figures train(Way way, int64_t n, int64_t rows, Device device) {
  const DeviceScope on(device);
  manual_seed(1);
  const auto synchronize = [&] {
    if (device.is_cuda()) cuda::synchronize();
  };
  TensorList params;
  for (int64_t i = 0; i < std::max<int64_t>(n / (kWidth * kWidth), 2); ++i) {
    Tensor w = (rand({kWidth, kWidth}, DType::f32) * 0.04 - 0.02).to(DType::bf16);
    w.set_requires_grad();
    params.push_back(w);
  }
  const Tensor x = randn({rows, kWidth}, DType::f32).to(DType::bf16);
  const optim::AdamWOptions options{.lr = 1e-3, .low = {.master_weights = true}};
  // One after the other: an optimizer for each group, whose state goes home before the next begins.
  std::vector<std::unique_ptr<optim::AdamW>> optimizers;
  const size_t each = way == Way::serial ? static_cast<size_t>(kNear / kState) : params.size();
  for (size_t i = 0; i < params.size(); i += each) {
    const auto first = params.begin() + static_cast<std::ptrdiff_t>(i);
    const auto count = static_cast<std::ptrdiff_t>(std::min(each, params.size() - i));
    optimizers.push_back(std::make_unique<optim::AdamW>(TensorList(first, first + count), options));
    if (way != Way::resident)
      optimizers.back()->set_home({.where = kDisk, .group_bytes = way == Way::serial ? kNear : kState});
  }
  Figures f;
  for (int step = 0; step < kSteps; ++step) {
    const memory::DiskStats before = memory::disk()->stats();
    lab::Trace trace;
    const double begin = now();
    double middle = 0;
    {
      std::optional<DiskWatch> watch;
      if (step == kSteps - 1 && way != Way::resident) watch.emplace(trace, begin);
      Tensor h = x;
      for (const Tensor& w : params) h = tanh(matmul(h, w)) + h;
      const Tensor loss = mean((h * h).to(DType::f32));
      loss.backward();
      f.losses.push_back(loss.item());
      synchronize();
      middle = now();
      for (const auto& o : optimizers) {
        o->step();
        if (way != Way::serial) continue;
        synchronize();
        memory::backend(device, kDisk).release_cached();
      }
      for (Tensor w : params) w.set_grad({});
      synchronize();
      // What still has to be written belongs to the step.
      if (way == Way::overlapped) memory::backend(device, kDisk).release_cached();
    }
    const double end = now();
    if (step == 0) continue;
    const memory::DiskStats s = memory::disk()->stats();
    constexpr double kCounted = kSteps - 1;
    f.backward += (middle - begin) / kCounted;
    f.update += (end - middle) / kCounted;
    f.reading += (s.seconds_reading - before.seconds_reading) / kCounted;
    f.writing += (s.seconds_writing - before.seconds_writing) / kCounted;
    f.bytes_read += (s.bytes_read - before.bytes_read) / (kSteps - 1);
    f.bytes_written += (s.bytes_written - before.bytes_written) / (kSteps - 1);
    trace.track("compute").spans.push_back({"forward, backward", 0, middle - begin, 0, Phase::backward});
    trace.track("compute").spans.push_back({"update", middle - begin, end - begin, 0, Phase::update});
    f.trace = std::move(trace);
  }
  return f;
}

}  // namespace

int main(int argc, char** argv) {
  const auto number = [&](int i, int64_t otherwise) { return argc > i ? std::atoll(argv[i]) : otherwise; };
  const int64_t n = number(1, 100) * 1000 * 1000, rows = number(3, 64);
  const bool card = cuda::device_count() > 0;
  const Device device = card ? Device::cuda() : Device::cpu();
  if (argc > 2) memory::use_disk({.directories = {argv[2]}});
  // A group's own update has the gradients and parameters beside its state, which are not of this tier.
  memory::set_near_limit(kNear, device, kDisk);
  std::printf("%s, %d threads; %.2f GB of state on a disk (%s), %.2f GB of it near at most\n",
              card ? cuda::properties().name.c_str() : "the CPU", num_threads(), 12e-9 * static_cast<double>(n),
              std::string(memory::disk()->engine()).c_str(), static_cast<double>(kNear) * 1e-9);
  const Figures resident = train(Way::resident, n, rows, device);
  std::printf("%-11s %8.1f ms a step, of it the update %8.1f ms\n", "resident", resident.step() * 1e3,
              resident.update * 1e3);
  double serial = 0;
  for (const Way way : {Way::serial, Way::overlapped}) {
    const char* name = way == Way::serial ? "serial" : "overlapped";
    const Figures f = train(way, n, rows, device);
    if (way == Way::serial) serial = f.step();
    const double turn = resident.step() + f.reading + f.writing;
    std::printf(
        "%-11s %8.1f ms a step, of it the update %8.1f ms; %.2f GB read in %.0f ms, %.2f written in %.0f ms; in turn "
        "%.0f ms, hidden %.0f ms; %.2f of serial; %s\n",
        name, f.step() * 1e3, f.update * 1e3, static_cast<double>(f.bytes_read) * 1e-9, f.reading * 1e3,
        static_cast<double>(f.bytes_written) * 1e-9, f.writing * 1e3, turn * 1e3, (turn - f.step()) * 1e3,
        f.step() / serial, f.losses == resident.losses ? "losses as resident" : "LOSSES DIFFER");
    std::fflush(stdout);
    if (argc > 4) io::write_file(std::string(argv[4]) + "." + name, f.trace.to_chrome_json());
  }
  memory::set_near_limit(0, device, kDisk);
  return 0;
}
