#pragma once
// What a FeatureTable does, with its lock held: gathers that begin and are completed, what is kept, writes.

#include <algorithm>
#include <atomic>
#include <deque>
#include <exception>
#include <mutex>
#include <numeric>
#include <optional>
#include <utility>

#include "strata/core/node.h"
#include "strata/cuda/graph.h"
#include "strata/cuda/runtime.h"
#include "strata/memory/tiers.h"
#include "strata/nn/feature_table.h"
#include "strata/nn/host_gather_inl.h"
#include "strata/nn/row_cache_inl.h"
#include "strata/nn/row_store_inl.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/embedding/embedding.h"
#include "strata/ops/embedding/embedding_cached_kernel.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/index/index.h"
#include "strata/ops/sort/sort.h"
#include "strata/ops/view/view.h"

namespace strata::nn {
namespace feature_table {

inline constexpr std::string_view kName = "FeatureTable";
inline constexpr size_t kMostAhead = 64;  // batches that may be begun and never gathered
inline constexpr int64_t kChunkBytes = int64_t{32} << 20;

using Keep = FeatureTableOptions::Keep;

inline std::span<const int64_t> numbers(const Tensor& t) {
  return {t.numel() == 0 ? nullptr : t.data<int64_t>(), static_cast<size_t>(t.numel())};
}
inline Tensor flat(const Tensor& indices, Device device) {
  return indices.detach().to(device).to(DType::i64).reshape({indices.numel()}).contiguous();
}
inline void check_indices(const Tensor& indices) {
  check<DTypeError>(indices.dtype() == DType::i64 || indices.dtype() == DType::i32, kName,
                    "needs i64 or i32 indices, got ", indices);
}
inline void check_range(const Tensor& index, int64_t rows) {
  int64_t at = 0;
  for (const int64_t i : numbers(index)) {
    check<IndexError>(i >= 0 && i < rows, kName, "index ", i, " at position ", at, " is out of range for a table of ",
                      rows, " rows");
    ++at;
  }
}
inline bool same_numbers(const Tensor& a, const Tensor& b) {
  const auto x = numbers(a), y = numbers(b);
  return std::equal(x.begin(), x.end(), y.begin(), y.end());
}

// Work of the table's own, whatever its caller's modes: nothing is recorded, and what it makes has an address.
struct Quiet {
  NoGrad no_grad;
  memory::TierScope tier{Tier()};
  memory::TagScope tag{memory::Tag::data};
};

// A gather that has begun.
struct Batch {
  Tensor given;  // as prefetch() got them
  uint32_t version = 0;
  Tensor index;         // flat: of the host where the host decides, else of the device
  RowCache::Plan plan;  // where the host decides
  RowStore::Reading reading;
  std::unique_ptr<cuda::Event> begun;  // where that was on a stream beside the caller's
  Tensor rows;                         // [n, width], once it is complete
};

struct Use {
  int64_t number;
  Tensor index, values;
};

}  // namespace feature_table

using namespace feature_table;  // NOLINT: of this room's own files

struct FeatureTable::Impl {
  Impl(int64_t rows, int64_t width, DType dtype, const FeatureTableOptions& o) : options(o) {
    check(rows >= 0 && width >= 0, kName, "sizes must not be negative, got [", rows, ", ", width, "]");
    check(o.cache_bytes >= 0, kName, "cache_bytes must not be negative, got ", o.cache_bytes);
    check(!o.device.is_meta(), kName, "has no rows on the meta device");
    const bool on_disk = o.home == memory::kDisk;
    check(on_disk == !o.directories.empty(), kName, "directories are for the tier disk, which needs one: home is ",
          o.home);
    const Quiet quiet;
    if (on_disk) {
      disk = std::make_shared<memory::DiskStore>(memory::DiskOptions{.directories = o.directories});
      home = make_disk_rows(rows, width, dtype, disk, o.device.is_cuda());
    } else {
      check(memory::backend(o.device, o.home).bytes == memory::Bytes::fixed, kName,
            "rows live in memory that does not ", "move, or on a disk: home is ", o.home);
      home = make_table_rows(rows, width, dtype, o.device, o.home);
    }
    const int64_t slots = home->row_bytes() == 0 ? 0 : std::min(o.cache_bytes / home->row_bytes(), rows);
    check(slots < INT32_MAX && (slots == 0 || rows < INT32_MAX), kName,
          "keeps rows of tables with less than 2^31, got ", rows);
    by_host = on_disk || (o.keep == Keep::last_used && slots > 0);
    if (by_host || slots > 0) kept.emplace(rows, slots);
    if (slots > 0) cache = empty(near({slots, width}));
    hits_on_device = zeros_at({}, o.device);
    if (o.home == memory::kUnified) reader.emplace(o.device);
  }
  ~Impl() {
    // What the stream beside still reads goes after it has.
    try {
      if (beside) cuda::current_stream(options.device.index).wait(*beside);
    } catch (...) {  // a card that has failed reads nothing
    }
  }

  TensorMeta near(const Shape& shape) const { return {shape, home->dtype, options.device, std::nullopt}; }
  static Tensor zeros_at(const Shape& shape, Device device) {
    const Tensor t = empty({shape, DType::i64, device, std::nullopt});
    fill_elements(t, 0);
    return t;
  }

  // ---- streams: calls follow one another on whichever stream their callers have ----

  void enter() {
    if (!options.device.is_cuda()) return;
    const cuda::Stream now = cuda::current_stream(options.device.index);
    if (last && !(*last == now)) now.wait(*last);
    last = now;
  }

  // ---- a batch: begin, then complete ----

  // With `keep` the caller may write over `indices` before it is completed.
  void begin(Batch& b, const Tensor& indices, bool keep) {
    check_indices(indices);
    b.given = indices;
    b.version = indices.version();
    b.index = flat(indices, by_host ? Device::cpu() : options.device);
    if (keep && b.index.storage() == indices.storage()) b.index = b.index.clone();
    if (by_host) {
      check_range(b.index, home->rows);
      if (uses) count(b.index);
      try {
        b.plan = kept->ask(numbers(b.index), options.keep == Keep::last_used);
        const Tensor missing = from_span<int64_t>(std::span<const int64_t>(b.plan.missing), {count_of(b.plan.missing)});
        b.reading = home->begin(missing.to(home->device()), count_of(b.plan.found));
      } catch (...) {
        abandon();
        throw;
      }
      seen.hits += b.plan.hits;
      seen.home_rows += count_of(b.plan.missing);
    } else {
      if (indices.device().is_cpu()) check_range(flat(indices, Device::cpu()), home->rows);
      if (slots.defined()) {
        Tensor hits;
        std::tie(b.rows, hits) = embedding_cached(b.index, home->table(), cache, slots);
        hits_on_device.add_(hits);
      } else if (reads_for_the_card(indices)) {
        b.rows = reader->gather(home->table(), flat(indices, Device::cpu()));
      } else {
        b.rows = embedding(b.index, home->table());
      }
      seen.home_rows += b.index.numel();  // and hits_on_device less
      if (uses) count(b.index);
    }
    seen.rows += b.index.numel();
  }

  // Whether the processor does better, and may: it reads what is there now, so that nothing may be on its way there.
  bool reads_for_the_card(const Tensor& indices) {
    if (!reader || !indices.device().is_cpu() || cuda::capturing()) return false;
    if (written && written->query()) written.reset();
    return !written && HostGather::is_faster(home->row_bytes());
  }
  // After work was queued that writes to the rows' home.
  void wrote() {
    if (!reader) return;
    if (!written) written = std::make_unique<cuda::Event>(false, options.device.index);
    written->record(cuda::current_stream(options.device.index));
  }

  void complete(Batch& b) {
    if (b.begun) {
      const cuda::Stream now = cuda::current_stream(options.device.index);
      b.begun->wait(now);
      for (const Tensor& t : {b.rows, b.reading.rows, b.index})
        if (t.defined() && t.device().is_cuda()) cuda::record_stream(t, now);
      b.begun.reset();
    }
    if (b.rows.defined()) return;
    const Device device = options.device;
    const int64_t missing = count_of(b.plan.missing), found = count_of(b.plan.found);
    Tensor fresh = home->finish(b.reading);
    if (!(fresh.device() == device)) {
      const Tensor there = empty(near({missing + found, home->width}));
      if (missing > 0) copy_elements(there.narrow(0, 0, missing), fresh.narrow(0, 0, missing));
      fresh = there;
    }
    if (cache.defined() && missing > 0)
      put_rows(cache, from_span<int64_t>(std::span<const int64_t>(b.plan.slots), {missing}).to(device),
               fresh.narrow(0, 0, missing));
    std::vector<int32_t> where(static_cast<size_t>(missing), -1);
    where.insert(where.end(), b.plan.found.begin(), b.plan.found.end());
    const Tensor local = from_span<int64_t>(std::span<const int64_t>(b.plan.local), {count_of(b.plan.local)}),
                 from = from_span<int32_t>(std::span<const int32_t>(where), {missing + found}),
                 near_rows = cache.defined() ? cache : fresh.narrow(0, 0, 0);
    b.rows = std::get<0>(embedding_cached(local.to(device), fresh, near_rows, from.to(device)));
    b.plan = {};
    b.reading = {};
  }

  // The first of those that have begun, in the order in which what is kept was decided.
  void complete_first(size_t count) {
    try {
      for (size_t i = 0; i < count; ++i) complete(ahead[i]);
    } catch (...) {
      abandon();
      throw;
    }
  }
  void complete_all() { complete_first(ahead.size()); }

  // So that the counts on the device are those of every call before.
  void settle() {
    if (!by_host) complete_all();
  }

  // What was to be kept has not come: nothing is, and nothing has begun.
  void abandon() {
    ahead.clear();
    if (by_host && options.keep == Keep::last_used) kept->clear();
  }
  // What is kept may not be what is at home any more.
  void forget() {
    ahead.clear();
    if (kept) kept->clear();
    slots = Tensor();
  }

  Tensor gather(const Tensor& indices) {
    const Quiet quiet;
    check_indices(indices);
    const auto it = std::find_if(ahead.begin(), ahead.end(), [&](const Batch& b) { return asks_for(b, indices); });
    Tensor found;
    if (it != ahead.end()) {
      const auto which = it - ahead.begin();
      complete_first(static_cast<size_t>(which) + 1);  // others go on
      found = ahead[static_cast<size_t>(which)].rows;
      ahead.erase(ahead.begin(), ahead.begin() + which + 1);
      ++seen.prefetched;
    } else {
      complete_all();
      Batch& b = ahead.emplace_back();
      try {
        begin(b, indices, false);
      } catch (...) {
        if (!ahead.empty()) ahead.pop_back();
        throw;
      }
      complete_all();
      found = ahead.back().rows;
      ahead.pop_back();
    }
    Shape shape = indices.shape();
    shape.push_back(home->width);
    return found.view(shape);
  }

  static bool asks_for(const Batch& b, const Tensor& indices) {
    if (b.given.version() == b.version && b.given.storage() == indices.storage() &&
        b.given.storage_offset() == indices.storage_offset() && b.given.shape() == indices.shape() &&
        b.given.strides() == indices.strides() && b.given.dtype() == indices.dtype())
      return true;
    return b.index.device().is_cpu() && indices.device().is_cpu() &&
           same_numbers(b.index, flat(indices, Device::cpu()));
  }

  void prefetch(const Tensor& indices) {
    const Quiet quiet;
    if (ahead.size() == kMostAhead) {
      complete_all();
      ahead.pop_front();
    }
    Batch b;
    if (options.device.is_cuda()) {
      const cuda::Stream now = cuda::current_stream(options.device.index);
      if (!beside) beside = cuda::Stream::create(options.device.index);
      beside->wait(now);
      const cuda::StreamScope scope(*beside);
      auto begun = std::make_unique<cuda::Event>(false, options.device.index);
      begin(b, indices, true);
      if (indices.device().is_cuda()) cuda::record_stream(indices, *beside);
      if (home->table().defined()) cuda::record_stream(home->table(), *beside);
      begun->record(*beside);
      b.begun = std::move(begun);
    } else if (by_host) {
      begin(b, indices, true);
    } else {
      check_indices(indices);
      return check_range(flat(indices, Device::cpu()), home->rows);
    }
    ahead.push_back(std::move(b));
  }

  // ---- changes ----

  // `rows` [n] ascending, each once and in range.
  void write(const Tensor& rows, const Tensor& values) {
    const Quiet quiet;
    complete_all();
    if (rows.numel() == 0 || home->width == 0) return;
    const Device there = home->device(), device = options.device;
    try {
      home->write(rows.to(there), values.to(there));
      wrote();
    } catch (...) {
      forget();
      throw;
    }
    if (!cache.defined() && ahead.empty()) return;
    const Tensor index = rows.to(device), now = values.to(device);
    if (by_host && cache.defined()) {
      const Tensor at_host = rows.to(Device::cpu());
      std::vector<int64_t> at;
      for (const int64_t row : numbers(at_host)) at.push_back(kept->slot(row) < 0 ? kNoRow : kept->slot(row));
      put_rows(cache, from_span<int64_t>(std::span<const int64_t>(at), {count_of(at)}).to(device), now);
    } else if (slots.defined()) {
      const Tensor at = index_select(slots, 0, index).to(DType::i64);
      put_rows(cache, where(at < 0, full_like(at, Scalar(kNoRow)), at), now);
    }
    for (Batch& b : ahead) {
      const Tensor wanted = b.index.to(device);
      const Tensor place = clamp_max(searchsorted(index, wanted), rows.numel() - 1);
      const Tensor is_new = index_select(index, 0, place) == wanted;
      b.rows = strata::where(unsqueeze(is_new, 1), index_select(now, 0, place), b.rows);
    }
  }

  void keep_most_used(const Tensor& given) {
    const Quiet quiet;
    check(options.keep == Keep::most_used, kName, "keep_most_used() is for tables that keep the most used rows");
    check(given.defined() || uses, kName, "nothing is counted: call count_uses(true) before, or give counts");
    const Tensor counts = (given.defined() ? given : *uses).to(Device::cpu());
    check<ShapeError>(counts.shape() == Shape{home->rows}, kName, "needs a count for each of ", home->rows,
                      " rows, got ", counts);
    check<DTypeError>(counts.dtype() == DType::i64, kName, "needs i64 counts, got ", counts);
    if (!cache.defined()) return;
    complete_all();
    const Tensor dense = counts.contiguous();
    const auto much = numbers(dense);
    std::vector<int64_t> rows(static_cast<size_t>(home->rows));
    std::iota(rows.begin(), rows.end(), int64_t{0});
    const auto end = rows.begin() + kept->size();
    const auto before = [&](int64_t a, int64_t b) {
      const int64_t u = much[static_cast<size_t>(a)], v = much[static_cast<size_t>(b)];
      return u != v ? u > v : a < b;
    };
    std::nth_element(rows.begin(), end, rows.end(), before);
    rows.erase(end, rows.end());
    std::sort(rows.begin(), rows.end());
    kept->clear();  // what is half filled counts as nothing
    slots = Tensor();
    const int64_t chunk = std::max<int64_t>(1, kChunkBytes / std::max<int64_t>(1, home->row_bytes()));
    for (int64_t first = 0; first < kept->size(); first += chunk) {
      const int64_t n = std::min(chunk, kept->size() - first);
      const Tensor index =
          from_span<int64_t>(std::span(rows).subspan(static_cast<size_t>(first), static_cast<size_t>(n)), {n});
      copy_elements(cache.narrow(0, first, n), home->read(index.to(home->device())).to(options.device));
    }
    kept->assign(rows);
    if (!by_host) slots = from_span<int32_t>(kept->slots(), {home->rows}).to(options.device);
  }

  void count(const Tensor& index) {
    const Tensor ones = empty({index.shape(), DType::i64, index.device(), std::nullopt});
    fill_elements(ones, 1);
    index_add_(*uses, 0, index, ones);
  }

  template <class T>
  static int64_t count_of(const std::vector<T>& v) {
    return static_cast<int64_t>(v.size());
  }

  const FeatureTableOptions options;
  std::mutex mutex;
  std::shared_ptr<memory::DiskStore> disk;
  std::unique_ptr<RowStore> home;
  bool by_host = false;          // the host decides what is kept, or reads a disk
  std::optional<RowCache> kept;  // the books
  Tensor cache;                  // [slots, width] on the device
  Tensor slots;                  // where kernels look rows up: i32 [rows] on the device
  std::deque<Batch> ahead;
  std::optional<Tensor> uses;
  FeatureTableStats seen;
  Tensor hits_on_device;  // i64 []
  std::optional<cuda::Stream> beside, last;
  std::optional<HostGather> reader;      // of a home that the processor reads as well
  std::unique_ptr<cuda::Event> written;  // what may still write there

  std::mutex of_gradients;
  std::atomic<bool> wants_grad{false};
  int64_t next_use = 0;
  std::vector<Use> gradients;
};

}  // namespace strata::nn
