#include <algorithm>
#include <cstring>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/core/parallel.h"
#include "strata/cuda/far_rows_kernel.h"
#include "strata/cuda/launch.h"
#include "strata/memory/transfers.h"
#include "strata/nn/row_store_inl.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/embedding/embedding.h"

namespace strata::nn {

struct RowsOnTheirWay {
  RowsOnTheirWay(std::shared_ptr<memory::DiskStore> store, Tensor to, memory::DiskStore::Ticket which)
      : disk(std::move(store)), rows(std::move(to)), ticket(std::move(which)) {}
  ~RowsOnTheirWay() {
    try {
      disk->wait(ticket);
    } catch (...) {  // of a read that nobody wants any more, or whose error is known
    }
  }
  RowsOnTheirWay(const RowsOnTheirWay&) = delete;

  const std::shared_ptr<memory::DiskStore> disk;
  const Tensor rows;
  const memory::DiskStore::Ticket ticket;
};

namespace {

constexpr int64_t kChunkBytes = int64_t{8} << 20;

class TableRows final : public RowStore {
 public:
  TableRows(int64_t rows, int64_t width, DType dtype, Device device, Tier tier)
      : RowStore(rows, width, dtype), table_(empty({{rows, width}, dtype, device, std::nullopt}, tier)) {}

  Device device() const override { return table_.device(); }
  Tensor table() const override { return table_; }
  Reading begin(const Tensor& index, int64_t more) override {
    const Tensor found = embedding(index, table_);
    if (more == 0) return {found};
    const Tensor all = empty({{index.numel() + more, width}, dtype, device(), std::nullopt});
    copy_elements(all.narrow(0, 0, index.numel()), found);
    return {all};
  }
  Tensor finish(const Reading& reading) override { return reading.rows; }
  void write(const Tensor& index, const Tensor& values) override { put_rows(table_, index, values); }
  Tensor read_range(int64_t first, int64_t count) override {
    return table_.narrow(0, first, count).to(Device::cpu()).clone();
  }
  void write_range(int64_t first, const Tensor& values) override {
    table_.narrow(0, first, values.size(0)).copy_(values.to(table_.device()));
  }

 private:
  Tensor table_;
};

class DiskRows final : public RowStore {
 public:
  DiskRows(int64_t rows, int64_t width, DType dtype, std::shared_ptr<memory::DiskStore> disk, bool pinned)
      : RowStore(rows, width, dtype),
        disk_(std::move(disk)),
        block_(rows * row_bytes() == 0 ? nullptr : disk_->allocate(static_cast<size_t>(rows * row_bytes()))),
        tier_(pinned ? Tier::pinned : Tier()) {}
  ~DiskRows() override {
    if (block_) disk_->deallocate(block_);
  }

  Device device() const override { return Device::cpu(); }
  Reading begin(const Tensor& index, int64_t more) override {
    const Tensor rows = empty(meta(index.numel() + more), tier_);
    if (index.numel() == 0 || width == 0) return {rows};
    const auto bytes = static_cast<size_t>(row_bytes());
    const memory::MovedName moved([&] { return shown_name(); });
    return {rows,
            std::make_shared<RowsOnTheirWay>(disk_, rows,
                                             disk_->read_rows(block_, bytes_of(rows), bytes, index.data<int64_t>(),
                                                              static_cast<size_t>(index.numel()), bytes))};
  }
  Tensor finish(const Reading& reading) override {
    if (!reading.pending) return reading.rows;
    std::optional<memory::TimedTransfer> waiting;
    const memory::MovedName moved([&] { return shown_name(); });
    if (!disk_->done(reading.pending->ticket)) waiting.emplace(memory::TransferKind::wait, "waiting");
    disk_->wait(reading.pending->ticket);
    return reading.rows;
  }
  void write(const Tensor& index, const Tensor& values) override {
    const Tensor from = values.contiguous();
    if (from.numel() == 0) return;
    const auto bytes = static_cast<size_t>(row_bytes());
    const memory::MovedName moved([&] { return shown_name(); });
    // Neighbours go together, and so many at once that the disk is busy.
    constexpr size_t kMostAtOnce = 512;
    std::vector<memory::DiskStore::Ticket> all;
    const int64_t n = index.numel();
    const auto* row = index.data<int64_t>();
    for (int64_t i = 0; i < n;) {
      int64_t end = i + 1;
      while (end < n && row[end] == row[end - 1] + 1) ++end;
      if (all.size() == kMostAtOnce) wait_for(all);
      all.push_back(disk_->write(block_, bytes_of(from) + static_cast<size_t>(i) * bytes,
                                 static_cast<size_t>(end - i) * bytes, static_cast<size_t>(row[i]) * bytes));
      i = end;
    }
    wait_for(all);
  }
  Tensor read_range(int64_t first, int64_t count) override {
    const Tensor to = empty(meta(count), tier_);
    const memory::MovedName moved([&] { return shown_name(); });
    if (to.numel() > 0)
      disk_->wait(disk_->read(block_, bytes_of(to), static_cast<size_t>(to.nbytes()),
                              static_cast<size_t>(first * row_bytes())));
    return to;
  }
  void write_range(int64_t first, const Tensor& values) override {
    const Tensor from = values.to(Device::cpu()).contiguous();
    const memory::MovedName moved([&] { return shown_name(); });
    if (from.numel() > 0)
      disk_->wait(disk_->write(block_, bytes_of(from), static_cast<size_t>(from.nbytes()),
                               static_cast<size_t>(first * row_bytes())));
  }

 private:
  TensorMeta meta(int64_t n) const { return {{n, width}, dtype, Device::cpu(), std::nullopt}; }
  std::string shown_name() const { return cat("rows of a table [", rows, ", ", width, "]"); }
  static std::byte* bytes_of(const Tensor& t) { return static_cast<std::byte*>(t.raw_data()); }
  // All of them, whatever fails: what is under way reads memory of the caller's.
  void wait_for(std::vector<memory::DiskStore::Ticket>& all) {
    std::exception_ptr failed;
    for (const auto& t : all) {
      try {
        disk_->wait(t);
      } catch (...) {
        if (!failed) failed = std::current_exception();
      }
    }
    all.clear();
    if (failed) std::rethrow_exception(failed);
  }

  std::shared_ptr<memory::DiskStore> disk_;
  memory::DiskStore::Block* block_;
  Tier tier_;
};

}  // namespace

std::unique_ptr<RowStore> make_table_rows(int64_t rows, int64_t width, DType dtype, Device device, Tier tier) {
  return std::make_unique<TableRows>(rows, width, dtype, device, tier);
}
std::unique_ptr<RowStore> make_disk_rows(int64_t rows, int64_t width, DType dtype,
                                         std::shared_ptr<memory::DiskStore> disk, bool pinned) {
  return std::make_unique<DiskRows>(rows, width, dtype, std::move(disk), pinned);
}

void fill_rows(RowStore& store, double value) {
  if (const Tensor t = store.table(); t.defined()) return fill_elements(t, value);
  const int64_t chunk = std::max<int64_t>(1, kChunkBytes / std::max<int64_t>(1, store.row_bytes()));
  const Tensor values = empty({{std::min(chunk, store.rows), store.width}, store.dtype, Device::cpu(), std::nullopt});
  fill_elements(values, value);
  for (int64_t first = 0; first < store.rows; first += chunk)
    store.write_range(first, values.narrow(0, 0, std::min(chunk, store.rows - first)));
}

void put_rows(const Tensor& table, const Tensor& index, const Tensor& values) {
  const Tensor from = values.contiguous(), at = index.contiguous();
  if (from.numel() == 0) return;
  if (table.device().is_cuda()) {
    const cuda::LaunchScope launch("put_rows", table.device());
    cuda::put_far_rows(table, at, from);
  } else {
    const int64_t n = at.numel(), bytes = from.nbytes() / n;
    auto* to = static_cast<std::byte*>(table.raw_data());
    const auto* source = static_cast<const std::byte*>(from.raw_data());
    const auto* row = at.data<int64_t>();
    parallel_for(0, n, std::max<int64_t>(1, 65536 / bytes), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        if (row[i] != kNoRow) std::memcpy(to + row[i] * bytes, source + i * bytes, static_cast<size_t>(bytes));
    });
  }
  bump_version(table, "put_rows");
}

}  // namespace strata::nn
