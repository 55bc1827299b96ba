#include "strata/lab/growth.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include "strata/core/error.h"
#include "strata/lab/compare.h"

namespace strata::lab {
namespace {

// What sizes are multiplied by to see whether the op takes them: more than an image is larger than its kernel. Where
// the op is really called, less.
constexpr int64_t kDryProbe = 64, kRealProbe = 3;
// The op is really called with no more elements than these.
constexpr int64_t kMostReal = 4096;
// Sizes of large samples shrink down to this.
constexpr int64_t kLeastUnit = 8;

bool is_number(const Tensor& t) {
  return !t.defined() || t.impl().wrapped_number;
}

std::vector<Tensor> defined_tensors(std::span<const Value> args) {
  std::vector<Tensor> r = tensors_of(args);
  std::erase_if(r, [](const Tensor& t) { return !t.defined(); });
  return r;
}

int64_t total(std::span<const Value> args) {
  int64_t n = 0;
  for (const Tensor& t : defined_tensors(args)) n += t.numel();
  return n;
}

Tensor meta(const Shape& shape, DType dtype) {
  return empty({shape, dtype, Device::meta(), std::nullopt});
}

bool runs_dry(const OpBase& op, std::span<const Value> args) {
  try {
    NoGrad guard;
    DeviceScope device(Device::meta());
    std::vector<Value> dry = map(args, [](const Tensor& t) { return is_number(t) ? t : meta(t.shape(), t.dtype()); });
    for (Value& v : dry)
      if (Device* d = std::get_if<Device>(&v)) *d = Device::meta();
    op.call_boxed(dry);
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

Growth::Growth(const OpBase& op, std::vector<Value> args) : op_(op), args_(std::move(args)) {
  dry_ = !op_.is_dynamic() && runs_dry(op_, args_);
  // What it refuses as it is, or what would have to be called with large tensors, stays as it is.
  if (!dry_ && (total(args_) > kMostReal || !accepts(args_))) return;
  list_sizes();
  const Chosen all = first_choice();
  if (!all.empty()) find_groups(all);
}

void Growth::list_sizes() {
  // Larger numbers are no sizes: the end of a slice that has none.
  const auto is_size = [](int64_t n) { return n > 1 && n < (int64_t{1} << 32); };
  int index = 0;
  visit(args_, [&](const Tensor& t) {
    if (!t.defined()) return;  // map() does not see these
    if (!is_number(t))
      for (int d = 0; d < t.dim(); ++d)
        if (t.shape()[d] > 1)
          sizes_.push_back({index, -1, d, static_cast<int>(t.dim()) - d, t.shape()[d], is_integral(t.dtype())});
    ++index;
  });
  for (size_t i = 0; i < args_.size(); ++i) {
    const int arg = static_cast<int>(i);
    if (const Dims* d = std::get_if<Dims>(&args_[i])) {
      for (int k = 0; k < d->size(); ++k)
        if (is_size((*d)[k])) sizes_.push_back({-1, arg, k, d->size() - k, (*d)[k], false});
    } else if (const int64_t* n = std::get_if<int64_t>(&args_[i])) {
      if (is_size(*n)) sizes_.push_back({-1, arg, -1, -1, *n, false});
    }
  }
}

std::vector<Value> Growth::with(const std::vector<int64_t>& values) const {
  int index = 0;
  std::vector<Value> r = map(args_, [&](const Tensor& t) {
    Shape shape = t.shape();
    for (size_t i = 0; i < sizes_.size(); ++i)
      if (sizes_[i].tensor == index) shape[sizes_[i].at] = values[i];
    ++index;
    return is_number(t) ? t : meta(shape, t.dtype());
  });
  for (size_t i = 0; i < sizes_.size(); ++i) {
    const Size& s = sizes_[i];
    if (s.arg < 0) continue;
    Value& v = r[static_cast<size_t>(s.arg)];
    if (Dims* d = std::get_if<Dims>(&v)) {
      (*d)[s.at] = values[i];
    } else {
      v = values[i];
    }
  }
  return r;
}

bool Growth::accepts(std::span<const Value> args) const {
  if (dry_) return runs_dry(op_, args);
  try {
    NoGrad guard;
    const std::vector<Tensor> own = defined_tensors(args_);
    size_t index = 0;
    op_.call_boxed(map(args, [&](const Tensor& t) {
      const Tensor& from = own[index++];
      return is_number(t) ? t : tiled(from, t.shape());
    }));
    return true;
  } catch (const Error&) {
    return false;
  }
}

bool Growth::takes(const Chosen& chosen) const {
  std::vector<int64_t> values;
  for (size_t i = 0; i < sizes_.size(); ++i)
    values.push_back(sizes_[i].value * (chosen[i] ? dry_ ? kDryProbe : kRealProbe : 1));
  return accepts(with(values));
}

// A set of sizes, as large as possible, that can grow together; empty where there is none.
Growth::Chosen Growth::first_choice() const {
  const auto of = [&](auto&& wanted) {
    Chosen c;
    for (const Size& s : sizes_) c.push_back(wanted(s));
    return c;
  };
  const auto is_tensors = [&](int64_t n) {
    return std::any_of(sizes_.begin(), sizes_.end(), [&](const Size& s) { return s.tensor >= 0 && s.value == n; });
  };
  const bool tensors = std::any_of(sizes_.begin(), sizes_.end(), [](const Size& s) { return s.tensor >= 0; });
  std::vector<Chosen> tries;
  if (tensors) {
    tries.push_back(of([](const Size& s) { return s.tensor >= 0; }));
    tries.push_back(of([&](const Size& s) { return s.tensor >= 0 || is_tensors(s.value); }));
  }
  tries.push_back(of([&](const Size& s) { return s.tensor >= 0 || s.at >= 0; }));
  tries.push_back(of([](const Size&) { return true; }));
  for (const Size& one : sizes_)
    tries.push_back(of([&](const Size& s) { return s.value == one.value && (s.tensor >= 0 || s.at >= 0); }));
  for (const Size& one : sizes_) tries.push_back(of([&](const Size& s) { return &s == &one && s.tensor >= 0; }));
  for (const Chosen& c : tries)
    if (std::find(c.begin(), c.end(), true) != c.end() && takes(c)) return c;
  return {};
}

// A least set of sizes with `i` that the op takes. Sizes that must grow together cannot be left out one by one, so it
// begins with small sets: the size alone, with one other, with those of equal value at the same place.
Growth::Chosen Growth::least_with(size_t i, const Chosen& all) const {
  const size_t n = sizes_.size();
  Chosen alone(n, false);
  alone[i] = true;
  if (takes(alone)) return alone;
  for (size_t u = 0; u < n; ++u) {
    if (u == i || !all[u]) continue;
    Chosen pair = alone;
    pair[u] = true;
    if (takes(pair)) return pair;
  }
  const Size& own = sizes_[i];
  const auto equal = [&](auto&& place) {
    Chosen c(n, false);
    for (size_t u = 0; u < n; ++u) c[u] = all[u] && sizes_[u].value == own.value && place(sizes_[u]);
    return c;
  };
  const std::vector<Chosen> starts{equal([&](const Size& s) { return s.at == own.at; }),
                                   equal([&](const Size& s) { return s.from_end == own.from_end; }),
                                   equal([](const Size&) { return true; }), all};
  for (Chosen set : starts) {
    if (!takes(set)) continue;
    for (size_t u = 0; u < n; ++u) {
      if (u == i || !set[u]) continue;
      set[u] = false;
      if (!takes(set)) set[u] = true;
    }
    return set;
  }
  return {};
}

// Every size's least set; sets that share an unbound size become one group.
void Growth::find_groups(const Chosen& all) {
  std::vector<Chosen> least(sizes_.size());
  const auto count = [](const Chosen& c) { return std::count(c.begin(), c.end(), true); };
  for (size_t i = 0; i < sizes_.size(); ++i) {
    least[i] = all[i] ? least_with(i, all) : Chosen();
    if (least[i].empty()) least[i].assign(sizes_.size(), false);
  }
  // Others' sets that only came along leave it as wholes.
  for (size_t i = 0; i < sizes_.size(); ++i)
    for (size_t j = 0; j < sizes_.size(); ++j) {
      if (!least[i][i] || !least[j][j] || !least[i][j] || least[j][i]) continue;
      Chosen set = least[i];
      for (size_t u = 0; u < sizes_.size(); ++u) set[u] = set[u] && !least[j][u];
      if (takes(set)) least[i] = set;
    }
  std::vector<size_t> group(sizes_.size());
  std::iota(group.begin(), group.end(), size_t{0});
  const std::function<size_t(size_t)> root = [&](size_t i) { return group[i] == i ? i : root(group[i]); };
  Chosen grows(sizes_.size(), false);
  for (size_t i = 0; i < sizes_.size(); ++i) {
    if (!least[i][i]) continue;
    // Bound by another size that can grow without this one: a kernel by its image. An index tensor grows with it.
    bool bound = false;
    for (size_t u = 0; u < sizes_.size(); ++u) bound = bound || (least[i][u] && count(least[u]) < count(least[i]));
    if (bound && !sizes_[i].index) continue;
    for (size_t u = 0; u < sizes_.size(); ++u) {
      if (!least[i][u]) continue;
      grows[u] = true;
      group[root(u)] = root(i);
    }
  }
  for (size_t i = 0; i < sizes_.size(); ++i) {
    if (!grows[i] || root(i) != i) continue;
    Group g;
    g.unit = 0;
    for (size_t u = 0; u < sizes_.size(); ++u) {
      if (!grows[u] || root(u) != i) continue;
      g.sizes.push_back(u);
      g.unit = std::gcd(g.unit, sizes_[u].value);
    }
    groups_.push_back(std::move(g));
  }
}

std::vector<int64_t> Growth::targets(double factor, Round round) const {
  std::vector<int64_t> values;
  for (const Size& s : sizes_) values.push_back(s.value);
  for (const Group& g : groups_) {
    const int64_t least = std::min(g.unit, kLeastUnit);
    const double wanted = static_cast<double>(g.unit) * factor;
    int64_t target;
    if (dry_) {
      target = int64_t{1} << std::max(0, static_cast<int>(std::lround(std::log2(wanted))));
      if (round == Round::odd && target > 2) --target;
      target = std::max(target, least);
    } else {
      int64_t times = std::max<int64_t>(1, static_cast<int64_t>(factor));
      if (round == Round::odd) times -= times > 1 && times % 2 == 0;
      target = g.unit * times;
    }
    for (const size_t u : g.sizes) values[u] = sizes_[u].value / g.unit * target;
  }
  return values;
}

// In floating numbers: what is tried may be past any memory. Without tensors the numbers say how large the result is.
double Growth::largest(const std::vector<int64_t>& values) const {
  std::vector<double> elements;
  visit(args_, [&](const Tensor& t) {
    if (t.defined()) elements.push_back(is_number(t) ? 1 : static_cast<double>(t.numel()));
  });
  double numbers = 1, most = 1;
  for (size_t i = 0; i < sizes_.size(); ++i) {
    const Size& s = sizes_[i];
    double& product = s.tensor >= 0 ? elements[static_cast<size_t>(s.tensor)] : numbers;
    product *= static_cast<double>(values[i]) / (s.tensor >= 0 ? static_cast<double>(s.value) : 1);
  }
  for (const double n : elements) most = std::max(most, n);
  return elements.empty() ? numbers : most;
}

std::vector<Value> Growth::sized(double elements, Round round) const {
  std::vector<int64_t> own;
  for (const Size& s : sizes_) own.push_back(s.value);
  if (groups_.empty()) return round == Round::odd ? std::vector<Value>() : with(own);
  double factor = std::max(1.0, std::min(elements, 1e9));
  while (factor > 1e-6 && largest(targets(factor, round)) > elements) factor /= 1.05;
  std::vector<Value> args = with(targets(factor, round));
  if (!dry_ || accepts(args)) return args;
  if (round == Round::odd) return {};
  // Sizes that must be whole multiples of what they are.
  std::vector<int64_t> values = own;
  for (int64_t times = static_cast<int64_t>(std::min(factor, 1e6)); times > 1; times = times * 19 / 20) {
    for (const Group& g : groups_)
      for (const size_t u : g.sizes) values[u] = sizes_[u].value * times;
    args = with(values);
    if (largest(values) <= elements && accepts(args)) return args;
  }
  return with(own);
}

double Growth::factor(std::span<const Value> args, size_t group) const {
  const std::vector<Tensor> tensors = defined_tensors(args);
  for (const size_t u : groups_[group].sizes) {
    const Size& s = sizes_[u];
    if (s.tensor < 0) continue;
    const int64_t now = tensors[static_cast<size_t>(s.tensor)].shape()[s.at];
    return static_cast<double>(now) / static_cast<double>(s.value);
  }
  return 1;
}

}  // namespace strata::lab
