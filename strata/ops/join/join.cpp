// cat, stack, and their inverses split, split_with_sizes, chunk and unbind.

#include <algorithm>

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/core/sharding.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/join/join.h"
#include "strata/ops/join/join_kernels.h"
#include "strata/ops/join/join_reference_inl.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

// A tensor of shape [0] joins anything: loops can start from it.
bool is_skipped(const Tensor& t) {
  return t.dim() == 1 && t.shape()[0] == 0;
}

const Tensor& first_joined(const TensorList& tensors) {
  for (const Tensor& t : tensors)
    if (!is_skipped(t)) return t;
  return tensors[0];
}

TensorMeta cat_meta(const TensorList& tensors, int64_t dim) {
  check<ShapeError>(!tensors.empty(), "cat", "needs at least one tensor");
  const Tensor& first = first_joined(tensors);
  check<ShapeError>(first.dim() > 0, "cat", "0-dim tensors cannot be joined (use stack)");
  dim = wrap_dim(dim, first.dim(), "cat");
  TensorMeta m = like(first);
  m.shape[dim] = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& t = tensors[i];
    check<DTypeError>(t.dtype() == first.dtype(), "cat", "tensor ", i, " is ", t, ", the first ", first);
    if (is_skipped(t)) continue;
    bool fits = t.dim() == first.dim();
    for (int d = 0; fits && d < first.dim(); ++d) fits = d == dim || t.shape()[d] == first.shape()[d];
    check<ShapeError>(fits, "cat", "tensor ", i, " is ", t, ", the first ", first, ": all sizes but that of dimension ",
                      dim, " must agree");
    m.shape[dim] += t.shape()[dim];
  }
  return m;
}

Tensor zeros_as(const Tensor& g, const Shape& shape) {
  Tensor z = empty(like(g).with_shape(shape));
  return z.zero_();
}

double total_bytes(const TensorList& tensors) {
  double n = 0;
  for (const Tensor& t : tensors) n += static_cast<double>(t.nbytes());
  return n;
}

// ---- what is cut segment by segment: cat of parts is a part of cat ----

void shard_cat(Sharding& s) {
  detail::apply_rule("along dim", s);
  if (s.args.size() < 2) return;
  const int dim = (*s.dims("dim", s.results[0].size()))[0];
  Placement way;
  std::vector<int64_t> sizes;
  for (const Sharding::Arg& a : s.args) {
    if (a.shape.size() != s.results[0].size() || a.shape[dim] == 0) return;
    sizes.push_back(a.shape[dim]);
    if (a.now.is_shard() && a.now.dim == dim && a.now.segments.empty()) way = a.now;
  }
  const bool fits = std::all_of(sizes.begin(), sizes.end(), [&](int64_t n) { return n % way.unit == 0; });
  if (!way.is_shard() || !fits) return;
  Sharding::Possibility p = s.whole();
  for (Placement& a : p.args) a = way;
  p.results[0] = way;
  p.results[0].segments = sizes;
  s.add(std::move(p));
}

void shard_split(Sharding& s) {
  detail::apply_rule("along dim", s);
  const int dim = (*s.dims("dim", s.args[0].shape.size()))[0];
  const Placement& now = s.args[0].now;
  const std::vector<int> sizes = *s.dims("sizes", 0);
  if (!now.is_shard() || now.dim != dim ||
      !std::equal(sizes.begin(), sizes.end(), now.segments.begin(), now.segments.end()))
    return;
  Sharding::Possibility p = s.whole();
  p.args[0] = now;
  for (Placement& r : p.results) {
    r = now;
    r.segments.clear();
  }
  const int64_t size = s.args[0].shape[dim];
  p.before = [dim, size](LocalCall& c) {
    Dims here;
    for (const Stretch& part : c.layouts[0].stretches(dim, size, c.layouts[0].places())) here.push_back(part.length);
    c.arg("sizes") = Value(here);
  };
  p.repeats = true;
  s.add(std::move(p));
}

const Op<Tensor(const TensorList&, int64_t)> cat_op{{
    .schema = "cat(Tensor[] tensors, int dim=0) -> Tensor",
    .shard = shard_cat,
    .doc = "The tensors one after the other along dim. All other sizes must agree; tensors of shape [0] are skipped. "
           "The function cat converts to the common dtype first.",
    .example = "Tensor y = cat({arange(2), arange(3)}); assert(y.to_vector<int64_t>() == std::vector<int64_t>({0, 1, "
               "0, 1, 2}));",
    .infer = cat_meta,
    .kernels = on_each_device([](auto on, Tensor& y, const TensorList& tensors, int64_t dim) {
      dim = wrap_dim(dim, y.dim(), "cat");
      if constexpr (on.cuda)
        if (cat_at_once_cuda(y, tensors, dim)) return;
      if constexpr (!on.cuda)
        if (cat_columns_cpu(y, tensors, dim)) return;
      int64_t offset = y.storage_offset();
      for (const Tensor& t : tensors) {
        if (is_skipped(t)) continue;
        copy_elements(alias(y, t.shape(), y.strides(), offset), t);
        offset += t.shape()[dim] * y.strides()[dim];
      }
    }),
    .backward =
        [](Backward& b, const TensorList& tensors, int64_t dim) {
          dim = wrap_dim(dim, first_joined(tensors).dim(), "cat");
          int64_t start = 0;
          for (int i = 0; i < b.num_inputs(); ++i) {
            const Tensor& t = tensors[static_cast<size_t>(i)];
            const bool skipped = is_skipped(t) && b.gy().dim() != 1;
            const int64_t length = skipped ? 0 : t.shape()[dim];
            if (b.needs(i)) b.set(i, skipped ? zeros_as(b.gy(), t.shape()) : slice(b.gy(), dim, start, start + length));
            start += length;
          }
        },
    .dtypes = kAllTypes,
    .cost =
        [](const TensorList& tensors, int64_t) {
          return Cost{0, 2 * total_bytes(tensors)};
        },
    .samples =
        [](Samples& s) {
          s.add(TensorList{s.tensor({2, 3}), s.tensor({4, 3})}, 0);
          s.add(TensorList{s.tensor({2, 3}), s.tensor({2, 1}), s.tensor({2, 0})}, -1);
          s.add(TensorList{s.tensor({0}), s.tensor({2, 3})}, 1);
          for (const size_t columns : {2, 3, 4}) {
            TensorList one(columns, s.tensor({7, 11, 1}));
            one[1] = s.tensor({11, 7, 2}).slice(2, 1, 2).transpose(0, 1);
            s.add(one, 2).named("columns");
          }
          s.add(TensorList{s.tensor({5})});
          s.add(TensorList{s.tensor({3, 16}), s.tensor({3, 32})}, 1).named("whole vectors");
          s.add(TensorList{s.tensor({2, 3}), s.tensor({3, 2}).t(), s.tensor({2, 3})}).named("one turned");
          s.add(TensorList{s.tensor({2, 2, 3}), s.tensor({2, 1, 3}), s.tensor({2, 0, 3})}, 1).named("middle");
          s.add(TensorList(67, s.tensor({2, 3})), 1).named("many").not_differentiable();
          s.invalid<ShapeError>("at least one", TensorList{});
          s.invalid<ShapeError>("must agree", TensorList{s.tensor({2, 3}), s.tensor({2, 4})}, 0);
          s.invalid<ShapeError>("stack", TensorList{s.tensor({})});
          s.invalid<IndexError>("out of range", TensorList{s.tensor({2})}, 1);
          if (s.benchmarking()) s.bench(TensorList{s.tensor({2048, 1024}), s.tensor({2048, 512})}, 1);
        },
    .reference =
        [](const TensorList& tensors, int64_t dim) {
          Tensor y = empty(cat_meta(tensors, dim));
          int64_t at = 0;
          for (const Tensor& t : tensors) {
            if (is_skipped(t)) continue;
            for (int64_t i = 0; i < t.size(dim); ++i) select(y, dim, at++).copy_(select(t, dim, i));
          }
          return y;
        },
}};

const Op<Tensor(const TensorList&, int64_t)> stack_op{{
    .schema = "stack(Tensor[] tensors, int dim=0) -> Tensor",
    .doc = "Tensors of one shape as the slices of a new dimension dim.",
    .example = "Tensor y = stack({arange(2), arange(2)}, 1); assert(y.to_vector<int64_t>() == std::vector<int64_t>({0, "
               "0, 1, 1}));",
    .composed =
        [](const TensorList& tensors, int64_t dim) {
          check<ShapeError>(!tensors.empty(), "stack", "needs at least one tensor");
          const int64_t at = wrap_dim(dim, tensors[0].dim() + 1, "stack");
          TensorList rows;
          rows.reserve(tensors.size());
          for (size_t i = 0; i < tensors.size(); ++i) {
            check<ShapeError>(tensors[i].shape() == tensors[0].shape(), "stack", "tensor ", i, " is ", tensors[i],
                              ", the first ", tensors[0], ": all must have one shape");
            rows.push_back(unsqueeze(tensors[i], at));
          }
          return cat(rows, at);
        },
    .dtypes = kAllTypes,
    .cost =
        [](const TensorList& tensors, int64_t) {
          return Cost{0, 2 * total_bytes(tensors)};
        },
    .samples =
        [](Samples& s) {
          s.add(TensorList{s.tensor({2, 3}), s.tensor({2, 3})}, 0);
          s.add(TensorList{s.tensor({2, 3}), s.tensor({2, 3})}, -1);
          s.add(TensorList{s.tensor({}), s.tensor({}), s.tensor({})});
          s.invalid<ShapeError>("at least one", TensorList{});
          s.invalid<ShapeError>("one shape", TensorList{s.tensor({2}), s.tensor({3})});
        },
    .reference = by_loops::stacked,
}};

// Slices at `positions` (the first 0, the last the size of dim).
TensorList slices(const Tensor& x, int64_t dim, const std::vector<int64_t>& positions) {
  TensorList parts;
  parts.reserve(positions.size() - 1);
  for (size_t i = 0; i + 1 < positions.size(); ++i) {
    Shape shape = x.shape();
    shape[dim] = positions[i + 1] - positions[i];
    parts.push_back(alias(x, shape, x.strides(), x.storage_offset() + positions[i] * x.strides()[dim]));
  }
  return parts;
}

// The gradients of consecutive parts joined again; a part that nothing flowed into counts as zeros.
template <class PartShape>
Tensor join_gradients(Backward& b, int parts, int64_t dim, PartShape part_shape) {
  int known = 0;
  while (!b.has_gy(known)) ++known;
  TensorList all;
  for (int i = 0; i < parts; ++i) all.push_back(b.has_gy(i) ? b.gy(i) : zeros_as(b.gy(known), part_shape(i)));
  return cat(all, dim);
}

int64_t check_split_dim(const Tensor& x, int64_t dim, std::string_view op) {
  check<ShapeError>(x.dim() > 0, op, "a 0-dim tensor cannot be split");
  return wrap_dim(dim, x.dim(), op);
}

// Each is a tensor of its own: a dimension of a meta or expanded tensor may be longer than there is memory for.
void check_parts(int64_t parts, const Tensor& x, std::string_view op) {
  check(parts <= 1 << 20, op, "gives at most 2^20 tensors, but ", x, " would be ", parts);
}

std::vector<int64_t> equal_positions(const Tensor& x, int64_t size, int64_t dim) {
  const int64_t length = x.shape()[dim];
  std::vector<int64_t> p{0};
  size = std::clamp<int64_t>(size, 1, std::max<int64_t>(length, 1));
  do p.push_back(std::min(p.back() + size, length));
  while (p.back() < length);
  return p;
}

const Op<TensorList(const Tensor&, int64_t, int64_t)> split_op{{
    .schema = "split(Tensor x, int size, int dim=0) -> Tensor[]",
    .shard = "along dim",
    .doc = "Views of `size` elements along dim, the last one possibly shorter; at most 2^20. Of an empty dim one view, "
           "for which `size` may be 0.",
    .example = "TensorList parts = split(arange(5), 2); assert(parts.size() == 3 && parts[2].item() == 4);",
    .view =
        [](const Tensor& x, int64_t size, int64_t dim) {
          dim = check_split_dim(x, dim, "split");
          check(size >= 1 || (size == 0 && x.shape()[dim] == 0), "split", "size must be at least 1, got ", size);
          check_parts(x.shape()[dim] / std::max<int64_t>(size, 1), x, "split");
          return slices(x, dim, equal_positions(x, size, dim));
        },
    .backward =
        [](Backward& b, const Tensor& x, int64_t size, int64_t dim) {
          dim = wrap_dim(dim, x.dim(), "split");
          const std::vector<int64_t> p = equal_positions(x, size, dim);
          b.set(0, join_gradients(b, static_cast<int>(p.size()) - 1, dim, [&](int i) {
                  Shape s = x.shape();
                  s[dim] = p[static_cast<size_t>(i) + 1] - p[static_cast<size_t>(i)];
                  return s;
                }));
        },
    .dtypes = kAllTypes,
    .samples =
        [](Samples& s) {
          s.add(s.tensor({6, 2}), 2);
          s.add(s.tensor({2, 7}), 3, -1);
          s.add(s.tensor({0, 2}), 3);
          s.add(s.tensor({3, 0}), 0, 1).named("size 0 of an empty dimension");
          s.invalid<ValueError>("at least 1", s.tensor({3}), 0);
          s.invalid<ValueError>("at least 1", s.tensor({0}), -1);
          s.invalid<ShapeError>("0-dim", s.tensor({}), 1);
          s.invalid<ValueError>("2^20", expand(s.tensor({1}), {(1 << 21) + 2}), 2);
        },
    .reference = by_loops::split_by,
}};

const Op<TensorList(const Tensor&, const Dims&, int64_t)> split_with_sizes_op{{
    .schema = "split_with_sizes(Tensor x, int[] sizes, int dim=0) -> Tensor[]",
    .shard = shard_split,
    .doc = "Views of the given sizes along dim, which they must add up to. At most 8.",
    .example = "TensorList qk = split_with_sizes(zeros({2, 5}), {4, 1}, -1); assert(qk[1].shape() == Shape({2, 1}));",
    .view =
        [](const Tensor& x, const Dims& sizes, int64_t dim) {
          dim = check_split_dim(x, dim, "split_with_sizes");
          std::vector<int64_t> p{0};
          for (int64_t n : sizes)
            check<ShapeError>(n >= 0, "split_with_sizes", "sizes must not be negative, got ", sizes);
          for (int64_t n : sizes) {
            check<ShapeError>(n <= x.shape()[dim], "split_with_sizes", "sizes ", sizes,
                              " add up to more than dimension ", dim, " of ", x, " has");
            p.push_back(p.back() + n);
          }
          check<ShapeError>(p.back() == x.shape()[dim], "split_with_sizes", "sizes ", sizes, " add up to ", p.back(),
                            ", dimension ", dim, " of ", x, " has ", x.shape()[dim]);
          return slices(x, dim, p);
        },
    .backward =
        [](Backward& b, const Tensor& x, const Dims& sizes, int64_t dim) {
          dim = wrap_dim(dim, x.dim(), "split_with_sizes");
          b.set(0, join_gradients(b, sizes.size(), dim, [&](int i) {
                  Shape s = x.shape();
                  s[dim] = sizes[i];
                  return s;
                }));
        },
    .dtypes = kAllTypes,
    .samples =
        [](Samples& s) {
          s.add(s.tensor({6, 2}), Dims{1, 2, 3});
          s.add(s.tensor({2, 5}), Dims{5, 0}, -1);
          s.invalid<ShapeError>("add up", s.tensor({3}), Dims{1, 1});
          s.invalid<ShapeError>("negative", s.tensor({3}), Dims{4, -1});
        },
    .reference = by_loops::split_to,
}};

const Op<TensorList(const Tensor&, int64_t, int64_t)> chunk_op{{
    .schema = "chunk(Tensor x, int chunks, int dim=0) -> Tensor[]",
    .doc = "At most `chunks` views of equal size along dim, the last one possibly shorter; of an empty dim exactly so "
           "many, at most 2^20.",
    .composed =
        [](const Tensor& x, int64_t chunks, int64_t dim) {
          check(chunks >= 1, "chunk", "chunks must be at least 1, got ", chunks);
          dim = check_split_dim(x, dim, "chunk");
          if (x.shape()[dim] > 0) return split(x, (x.shape()[dim] - 1) / chunks + 1, dim);
          check_parts(chunks, x, "chunk");
          TensorList none;
          for (int64_t i = 0; i < chunks; ++i) none.push_back(slice(x, dim, 0, 0));
          return none;
        },
    .dtypes = kAllTypes,
    .samples =
        [](Samples& s) {
          s.add(s.tensor({6, 2}), 3);
          s.add(s.tensor({2, 7}), 3, -1);
          s.add(s.tensor({0, 3}), 3).named("an empty dimension");
          s.invalid<ValueError>("at least 1", s.tensor({3}), 0);
          s.invalid<ValueError>("2^20", s.tensor({0}), (1 << 20) + 1);
        },
    .reference = by_loops::chunked,
}};

const Op<TensorList(const Tensor&, int64_t)> unbind_op{{
    .schema = "unbind(Tensor x, int dim=0) -> Tensor[]",
    .shard = "along dim",
    .doc = "Views of the slices along dim, which disappears; at most 2^20.",
    .view =
        [](const Tensor& x, int64_t dim) {
          dim = check_split_dim(x, dim, "unbind");
          Shape shape = x.shape();
          Strides strides = x.strides();
          const int64_t n = shape[dim], step = strides[dim];
          check_parts(n, x, "unbind");
          shape.erase(dim);
          strides.erase(dim);
          TensorList parts;
          parts.reserve(static_cast<size_t>(n));
          for (int64_t i = 0; i < n; ++i) parts.push_back(alias(x, shape, strides, x.storage_offset() + i * step));
          return parts;
        },
    .backward =
        [](Backward& b, const Tensor& x, int64_t dim) {
          dim = wrap_dim(dim, x.dim(), "unbind");
          Shape part = x.shape();
          part.erase(dim);
          const int n = static_cast<int>(x.shape()[dim]);
          int known = 0;
          while (!b.has_gy(known)) ++known;
          TensorList all;
          for (int i = 0; i < n; ++i) all.push_back(b.has_gy(i) ? b.gy(i) : zeros_as(b.gy(known), part));
          b.set(0, stack(all, dim));
        },
    .dtypes = kAllTypes,
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 2}));
          s.add(s.tensor({3, 2}), -1);
          s.add(s.tensor({2, 0}), 0);
          s.invalid<ShapeError>("0-dim", s.tensor({}));
          s.invalid<ValueError>("2^20", expand(s.tensor({1}), {(1 << 20) + 1}));
        },
    .reference = by_loops::unbound,
}};

}  // namespace

Tensor cat(const TensorList& tensors, int64_t dim) {
  check<ShapeError>(!tensors.empty(), "cat", "needs at least one tensor");
  bool same = true;
  for (const Tensor& t : tensors) same = same && t.dtype() == tensors[0].dtype();
  if (same) [[likely]]
    return cat_op(tensors, dim);
  DType common = tensors[0].dtype();
  for (const Tensor& t : tensors) common = promote_types(common, t.dtype());
  TensorList converted;
  converted.reserve(tensors.size());
  for (const Tensor& t : tensors) converted.push_back(to(t, common));
  return cat_op(converted, dim);
}
Tensor stack(const TensorList& tensors, int64_t dim) {
  return stack_op(tensors, dim);
}
TensorList split(const Tensor& x, int64_t size, int64_t dim) {
  return split_op(x, size, dim);
}
TensorList split_with_sizes(const Tensor& x, const Dims& sizes, int64_t dim) {
  return split_with_sizes_op(x, sizes, dim);
}
TensorList chunk(const Tensor& x, int64_t chunks, int64_t dim) {
  return chunk_op(x, chunks, dim);
}
TensorList unbind(const Tensor& x, int64_t dim) {
  return unbind_op(x, dim);
}

}  // namespace strata
