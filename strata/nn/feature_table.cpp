#include "strata/nn/feature_table.h"

#include <algorithm>
#include <utility>

#include "strata/autograd/hooks.h"
#include "strata/nn/feature_table_inl.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/join/join.h"

namespace strata::nn {
FeatureTable::FeatureTable(int64_t rows, int64_t width, DType dtype, const FeatureTableOptions& options)
    : impl_(std::make_shared<Impl>(rows, width, dtype, options)) {}

FeatureTable::FeatureTable(const Tensor& values, const FeatureTableOptions& options) {
  check<ShapeError>(values.dim() == 2, kName, "needs rows [rows, width], got ", values);
  impl_ = std::make_shared<Impl>(values.size(0), values.size(1), values.dtype(), options);
  const Quiet quiet;
  impl_->home->write_range(0, values.detach());
  impl_->wrote();
}

FeatureTable::~FeatureTable() = default;

int64_t FeatureTable::rows() const {
  return impl_->home->rows;
}
int64_t FeatureTable::width() const {
  return impl_->home->width;
}
DType FeatureTable::dtype() const {
  return impl_->home->dtype;
}
Device FeatureTable::device() const {
  return impl_->options.device;
}

Tensor FeatureTable::gather(const Tensor& indices) {
  Tensor y;
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->enter();
    y = impl_->gather(indices);
  }
  if (!impl_->wants_grad || !grad_enabled()) return y;
  y.set_requires_grad();
  int64_t number = 0;
  {
    const std::lock_guard lock(impl_->of_gradients);
    number = impl_->next_use++;
  }
  // The table may be gone by then.
  register_post_accumulate_grad_hook(
      y, [weak = std::weak_ptr(impl_), number, index = flat(indices, device())](const Tensor& leaf) {
        const Tensor g = leaf.grad().detach();
        Tensor(leaf).set_grad({});
        if (const std::shared_ptr<Impl> table = weak.lock()) {
          const std::lock_guard lock(table->of_gradients);
          table->gradients.push_back({number, index, g.reshape({index.numel(), table->home->width})});
        }
      });
  return y;
}

void FeatureTable::prefetch(const Tensor& indices) {
  const std::lock_guard lock(impl_->mutex);
  impl_->enter();
  impl_->prefetch(indices);
}

void FeatureTable::write(const Tensor& rows, const Tensor& values) {
  check<DTypeError>(rows.dtype() == DType::i64 && rows.dim() == 1, kName, "needs i64 rows [n], got ", rows);
  check<ShapeError>(values.shape() == Shape({rows.numel(), width()}), kName, "cannot write ", values, " to ",
                    rows.numel(), " rows of ", width());
  check<DTypeError>(values.dtype() == dtype(), kName, "cannot write ", values, " to a table of ", dtype());
  Tensor sorted, ordered;
  {
    const Quiet quiet;
    const Tensor index = flat(rows, Device::cpu());
    check_range(index, this->rows());
    const Tensor order = argsort(index, 0);
    sorted = index_select(index, 0, order);
    const auto at = numbers(sorted);
    for (size_t i = 1; i < at.size(); ++i) check(at[i] != at[i - 1], kName, "row ", at[i], " is to be written twice");
    ordered = index_select(values.detach(), 0, order.to(values.device()));
  }
  const std::lock_guard lock(impl_->mutex);
  impl_->enter();
  impl_->write(sorted, ordered);
}

void FeatureTable::write(int64_t first, const Tensor& values) {
  check<ShapeError>(values.dim() == 2 && values.size(1) == width(), kName, "cannot write ", values, " to rows of ",
                    width());
  check<DTypeError>(values.dtype() == dtype(), kName, "cannot write ", values, " to a table of ", dtype());
  const int64_t n = values.size(0);
  check<IndexError>(first >= 0 && n <= rows() && first <= rows() - n, kName, "rows [", first, ", ", first + n,
                    ") are out of range for a table of ", rows(), " rows");
  const std::lock_guard lock(impl_->mutex);
  impl_->enter();
  if (impl_->cache.defined() || !impl_->ahead.empty()) {
    const Quiet quiet;
    impl_->write(arange(first, first + n).to(DType::i64), values.detach());
  } else {
    const Quiet quiet;
    impl_->home->write_range(first, values.detach());
    impl_->wrote();
  }
}

Tensor FeatureTable::read(int64_t first, int64_t count) const {
  check<IndexError>(first >= 0 && count >= 0 && count <= rows() && first <= rows() - count, kName, "rows [", first,
                    ", ", first + count, ") are out of range for a table of ", rows(), " rows");
  const std::lock_guard lock(impl_->mutex);
  impl_->enter();
  const Quiet quiet;
  return impl_->home->read_range(first, count);
}

int64_t FeatureTable::cache_rows() const {
  return impl_->cache.defined() ? impl_->cache.size(0) : 0;
}
void FeatureTable::count_uses(bool on) {
  const std::lock_guard lock(impl_->mutex);
  impl_->enter();
  const Quiet quiet;
  impl_->settle();
  impl_->uses.reset();
  if (on) impl_->uses = Impl::zeros_at({rows()}, impl_->by_host ? Device::cpu() : device());
}
Tensor FeatureTable::uses() const {
  const std::lock_guard lock(impl_->mutex);
  impl_->enter();
  check(impl_->uses.has_value(), kName, "nothing is counted: call count_uses(true) before");
  const Quiet quiet;
  impl_->settle();
  return impl_->uses->to(Device::cpu()).clone();
}
void FeatureTable::keep_most_used(const Tensor& counts) {
  const std::lock_guard lock(impl_->mutex);
  impl_->enter();
  impl_->keep_most_used(counts);
}
FeatureTableStats FeatureTable::stats() const {
  const std::lock_guard lock(impl_->mutex);
  impl_->enter();
  const Quiet quiet;
  impl_->settle();
  FeatureTableStats s = impl_->seen;
  const auto hits = impl_->hits_on_device.item<int64_t>();
  s.hits += hits;
  s.home_rows -= hits;
  s.home_bytes = s.home_rows * impl_->home->row_bytes();
  return s;
}
void FeatureTable::reset_stats() {
  const std::lock_guard lock(impl_->mutex);
  impl_->enter();
  const Quiet quiet;
  impl_->settle();
  impl_->seen = {};
  impl_->hits_on_device.fill_(0);
}

void FeatureTable::set_requires_grad(bool on) {
  check<DTypeError>(!on || is_floating(dtype()), kName, "a table of ", dtype(), " has no gradient");
  impl_->wants_grad = on;
}
bool FeatureTable::requires_grad() const {
  return impl_->wants_grad;
}

RowGradient FeatureTable::gradient() const {
  std::vector<Use> all;
  {
    const std::lock_guard lock(impl_->of_gradients);
    all = impl_->gradients;
  }
  const std::lock_guard lock(impl_->mutex);
  impl_->enter();
  const Quiet quiet;
  std::stable_sort(all.begin(), all.end(), [](const Use& a, const Use& b) { return a.number < b.number; });
  const DType wide = dtype() == DType::f64 ? DType::f64 : DType::f32;
  TensorList indices, values;
  for (const Use& u : all) {
    indices.push_back(u.index);
    values.push_back(u.values.to(wide));
  }
  if (all.empty()) {
    indices.push_back(Impl::zeros_at({0}, device()));
    values.push_back(empty({{0, width()}, wide, device(), std::nullopt}));
  }
  const UniqueResult rows = unique(cat(indices, 0), true);
  Tensor sum = empty({{rows.values.numel(), width()}, wide, device(), std::nullopt});
  fill_elements(sum, 0);
  index_add_(sum, 0, rows.inverse, cat(values, 0));
  return {rows.values, sum};
}
void FeatureTable::zero_grad() {
  const std::lock_guard lock(impl_->of_gradients);
  impl_->gradients.clear();
}

std::unique_ptr<RowStore> FeatureTable::make_rows_beside(DType dtype, double value) const {
  const Quiet quiet;
  const FeatureTableOptions& o = impl_->options;
  auto made = impl_->disk ? make_disk_rows(rows(), width(), dtype, impl_->disk, o.device.is_cuda())
                          : make_table_rows(rows(), width(), dtype, o.device, o.home);
  fill_rows(*made, value);
  return made;
}
void FeatureTable::write_rows(const Tensor& rows, const Tensor& values) {
  const std::lock_guard lock(impl_->mutex);
  impl_->enter();
  impl_->write(rows, values);
}
RowStore& FeatureTable::home() const {
  return *impl_->home;
}

}  // namespace strata::nn
