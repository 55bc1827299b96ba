#include "strata/data/loader.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <numeric>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "strata/core/error.h"
#include "strata/core/tensor.h"

namespace strata::data {
namespace {
// What next() hands out, with the place after it. Neither batch nor error: the end of an epoch.
struct Item {
  std::optional<Batch> batch;
  std::exception_ptr error;
  SamplerState after;
};
}  // namespace

struct DataLoader::Impl {
  Impl(std::shared_ptr<const Dataset> set, const DataLoaderOptions& opts)
      : dataset(std::move(set)),
        options(opts),
        sampler(dataset->size(), opts.seed, opts.shuffle),
        delivered(sampler.state()) {}
  ~Impl() { stop(); }

  Item make() {
    Item item;
    std::vector<Sample> samples;
    if (!options.repeat) {
      const bool ended = epoch != sampler.state().epoch;
      if (ended || (options.drop_last && sampler.left() < options.batch_size)) {
        if (!ended) sampler.start_next_epoch();
        epoch = sampler.state().epoch;
        item.after = sampler.state();
        return item;
      }
    }
    const int64_t count = options.repeat ? options.batch_size : std::min(options.batch_size, sampler.left());
    for (int64_t i = 0; i < count; ++i) samples.push_back(sampler.next());
    item.after = sampler.state();
    if (options.parts > 1) {
      int64_t begin = count * options.part / options.parts, end = count * (options.part + 1) / options.parts;
      if (const std::vector<int64_t>& sizes = options.part_sizes; !sizes.empty()) {
        begin = std::accumulate(sizes.begin(), sizes.begin() + options.part, int64_t{0});
        end = begin + sizes[static_cast<size_t>(options.part)];
      }
      samples = {samples.begin() + begin, samples.begin() + end};
    }
    const memory::TagScope tag(memory::Tag::data);
    // What the data set makes is where it is wanted at once; what it only hands on is copied.
    const memory::TierScope tier(options.pin_memory ? Tier::pinned : Tier());
    try {
      item.batch = dataset->get_batch(samples);
      if (options.pin_memory)
        for (Tensor& t : *item.batch) t = t.to(Tier::pinned).contiguous();
    } catch (...) {
      item.error = std::current_exception();
    }
    return item;
  }

  void produce() {
    for (;;) {
      Item item = make();
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return stopping || static_cast<int64_t>(queue.size()) < options.prefetch; });
      if (stopping) return;
      queue.push_back(std::move(item));
      lock.unlock();
      changed.notify_all();
    }
  }

  // False where the system gives no thread (a limit on processes, or no memory for a stack): batches are then made when
  // they are asked for.
  bool start() {
    try {
      thread = std::thread([this] { produce(); });
    } catch (const std::system_error&) {
      return false;
    }
    return true;
  }

  Item take() {
    if (options.prefetch == 0 || !(thread.joinable() || start())) return make();
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return !queue.empty(); });
    Item item = std::move(queue.front());
    queue.pop_front();
    lock.unlock();
    changed.notify_all();
    return item;
  }

  void stop() {
    if (!thread.joinable()) return;
    {
      std::lock_guard lock(mutex);
      stopping = true;
    }
    changed.notify_all();
    thread.join();
    stopping = false;
    queue.clear();
  }

  std::shared_ptr<const Dataset> dataset;
  DataLoaderOptions options;
  Sampler sampler;    // the thread's, while it runs
  int64_t epoch = 0;  // of the batches being made
  SamplerState delivered;

  std::thread thread;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Item> queue;
  bool stopping = false;
};

DataLoader::DataLoader(std::shared_ptr<const Dataset> dataset, const DataLoaderOptions& options) {
  constexpr std::string_view op = "DataLoader";
  check(dataset != nullptr, op, "needs a data set");
  check(options.batch_size >= 1, op, "batch_size must be at least 1, got ", options.batch_size);
  check(options.prefetch >= 0, op, "prefetch must be at least 0, got ", options.prefetch);
  check(dataset->size() >= 1, op, "the data set is empty");
  check(options.part >= 0 && options.part < options.parts, op, "there is no part ", options.part, " of ", options.parts);
  check(options.parts == 1 || (options.repeat && options.parts <= options.batch_size), op, options.parts,
        " parts want `repeat` and at least as many samples, got batches of ", options.batch_size);
  if (const std::vector<int64_t>& sizes = options.part_sizes; !sizes.empty()) {
    check(static_cast<int64_t>(sizes.size()) == options.parts &&
              std::all_of(sizes.begin(), sizes.end(), [](int64_t n) { return n >= 1; }) &&
              std::accumulate(sizes.begin(), sizes.end(), int64_t{0}) == options.batch_size,
          op, "part_sizes wants a number of samples for each of ", options.parts, " parts, at least 1, which make a batch of ",
          options.batch_size);
  }
  check(options.repeat || !options.drop_last || dataset->size() >= options.batch_size, op,
        "drop_last leaves no batch of ", options.batch_size, ": the data set has ", dataset->size(), " samples");
  impl_ = std::make_unique<Impl>(std::move(dataset), options);
}

DataLoader::~DataLoader() = default;
DataLoader::DataLoader(DataLoader&&) noexcept = default;
DataLoader& DataLoader::operator=(DataLoader&&) noexcept = default;

std::optional<Batch> DataLoader::next() {
  Item item = impl_->take();
  impl_->delivered = item.after;
  if (item.error) std::rethrow_exception(item.error);
  return std::move(item.batch);
}

SamplerState DataLoader::state() const {
  return impl_->delivered;
}

void DataLoader::set_state(const SamplerState& state) {
  impl_->stop();
  // A refused state must not leave the sampler where the thread had run ahead to.
  impl_->sampler.set_state(impl_->delivered);
  impl_->epoch = impl_->delivered.epoch;
  impl_->sampler.set_state(state);
  impl_->delivered = state;
  impl_->epoch = state.epoch;
}

int64_t DataLoader::batches_per_epoch() const {
  const int64_t size = impl_->dataset->size(), batch = impl_->options.batch_size;
  return impl_->options.drop_last && !impl_->options.repeat ? size / batch : (size + batch - 1) / batch;
}

}  // namespace strata::data
