// x[...] : Tensor::index, Tensor::index_put_, and the records index and index_put that they end in.

#include "strata/ops/index/indexing.h"

#include <algorithm>

#include "strata/core/op.h"
#include "strata/core/placement.h"
#include "strata/core/samples.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/index/index.h"
#include "strata/ops/index/index_kernels.h"
#include "strata/ops/index/index_reference_inl.h"
#include "strata/ops/view/view.h"

namespace strata {

IndexPlan plan_index(const Tensor& x, const TensorList& indices, std::string_view op) {
  check<IndexError>(static_cast<int64_t>(indices.size()) <= x.dim(), op, indices.size(), " indices for a tensor ", x,
                    " with ", x.dim(), " dimensions");
  IndexPlan plan;
  for (size_t d = 0; d < indices.size(); ++d) {
    if (!indices[d].defined()) continue;
    check<DTypeError>(indices[d].dtype() == DType::i64 || indices[d].dtype() == DType::i32, op,
                      "index tensors must be i64 or i32 (or bool masks, in x.index), got ", indices[d]);
    plan.broadcast =
        plan.indexed.empty() ? indices[d].shape() : broadcast_shapes(plan.broadcast, indices[d].shape(), op);
    plan.indexed.push_back(static_cast<int64_t>(d));
  }
  check(!plan.indexed.empty(), op, "needs at least one index tensor");
  const bool neighbours = plan.indexed.back() - plan.indexed[0] + 1 == plan.indexed.size();
  for (int64_t d = 0; d < x.dim(); ++d) {
    if (plan.indexed.contains(d)) continue;
    (neighbours && d < plan.indexed[0] ? plan.pre : plan.post).push_back(d);
  }
  for (int64_t d : plan.pre) plan.shape.push_back(x.shape()[d]);
  for (int64_t n : plan.broadcast) plan.shape.push_back(n);
  for (int64_t d : plan.post) plan.shape.push_back(x.shape()[d]);
  return plan;
}

namespace {

double bytes_of(const Tensor& x, const TensorList& indices, const Shape& moved) {
  double n = 2.0 * static_cast<double>(moved.product() * size_of(x.dtype()));
  for (const Tensor& t : indices)
    if (t.defined()) n += static_cast<double>(t.nbytes());
  return n;
}

Tensor zeros_as(const Tensor& g, const Shape& shape) {
  Tensor z = empty(like(g).with_shape(shape));
  return z.zero_();
}

const Op<Tensor(const Tensor&, const TensorList&)> index_op{{
    .schema = "index(Tensor x, Tensor[] indices) -> Tensor",
    .shard = "whole",
    .doc = "The elements that integer tensors name, one for each leading dimension (None for a whole dimension). "
           "Neighbouring "
           "tensors are replaced by their common shape in place, others by it in front. Negative indices count from "
           "the end. "
           "x.index({...}) also takes integers, slices, None, Ellipsis and masks.",
    .example = "Tensor x = arange(6).view({2, 3}); assert(x.index({1, Slice(0, 2)}).to_vector<int64_t>() == "
               "std::vector<int64_t>({3, 4}));"
               " assert(x.index({Ellipsis, arange(2)}).shape() == Shape({2, 2}));",
    .infer = [](const Tensor& x,
                const TensorList& indices) { return like(x).with_shape(plan_index(x, indices, "index").shape); },
    .kernels = {.cpu = index_cpu, .cuda = STRATA_CUDA_KERNEL(index_cuda)},
    .saves = "indices",
    .backward =
        [](Backward& b, const Tensor& x, const TensorList& indices) {
          Tensor g = zeros_as(b.gy(), x.shape());
          // In place, so that the zeros are not copied first; where a sharded gradient's parts lie is for the other
          // form.
          b.set(0, is_placed(b.gy()) ? index_put(g, indices, b.gy(), true) : index_put_(g, indices, b.gy(), true));
        },
    .dtypes = kAllTypes,
    .cost =
        [](const Tensor& x, const TensorList& indices) {
          return Cost{0, bytes_of(x, indices, plan_index(x, indices, "index").shape)};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({4, 3}), TensorList{s.integers({5}, -4, 4)});
          s.add(s.tensor({4, 3}), TensorList{s.integers({2, 1}, 0, 4), s.integers({3}, 0, 3)});
          s.add(s.tensor({2, 4, 3}), TensorList{Tensor(), s.integers({2}, 0, 4, DType::i32)});
          s.add(s.tensor({2, 4, 3}), TensorList{s.integers({2}, 0, 2), Tensor(), s.integers({2}, 0, 3)});
          s.add(s.tensor({4, 3}), TensorList{s.integers({0}, 0, 4)});
          s.invalid<IndexError>("index 4 is out of range for dimension 0 with size 4", s.tensor({4, 3}),
                                TensorList{s.integers({1}, 4, 5)});
          s.invalid<IndexError>("2 indices", s.tensor({4}), TensorList{s.integers({1}, 0, 1), s.integers({1}, 0, 1)});
          s.invalid<DTypeError>("i64 or i32", s.tensor({4}), TensorList{s.tensor({2}, DType::f32)});
          s.invalid<ShapeError>("do not broadcast", s.tensor({4, 3}),
                                TensorList{s.integers({2}, 0, 1), s.integers({3}, 0, 1)});
          if (s.benchmarking()) s.bench(s.tensor({50000, 256}), TensorList{s.integers({8192}, 0, 50000)});
        },
    .reference = by_loops::indexed,
}};

const Op<Tensor(const Tensor&, const TensorList&, const Tensor&, bool)> index_put_op{{
    .schema = "index_put(Tensor x, Tensor[] indices, Tensor value, bool accumulate=false) -> Tensor",
    .shard = "whole",
    .doc =
        "x with the elements that index names replaced by value (of the shape and dtype that index gives), or "
        "increased by "
        "it: then elements named twice are added up in order. Without accumulate the last one wins, and the gradient "
        "supposes that none is named twice.",
    .example = "Tensor x = zeros({3}); x.index_put_({Slice(1, 3)}, full({}, 2.0)); assert(x.to_vector<float>() == "
               "std::vector<float>({0, 2, 2}));",
    .infer =
        [](const Tensor& x, const TensorList& indices, const Tensor& value, bool) {
          const IndexPlan plan = plan_index(x, indices, "index_put");
          check<ShapeError>(value.shape() == plan.shape, "index_put", "value is ", value,
                            ", the indexed elements have shape ", plan.shape);
          check<DTypeError>(value.dtype() == x.dtype(), "index_put", "value is ", value, ", x is ", x);
          return like(x);
        },
    .kernels = {.cpu = index_put_cpu, .cuda = STRATA_CUDA_KERNEL(index_put_cuda)},
    .saves = "indices",
    .backward =
        [](Backward& b, const Tensor&, const TensorList& indices, const Tensor&, bool accumulate) {
          const int value = 1 + static_cast<int>(indices.size());
          if (b.needs(0)) b.set(0, accumulate ? b.gy() : index_put(b.gy(), indices, zeros_as(b.gy(), {})));
          if (b.needs(value)) b.set(value, index(b.gy(), indices));
        },
    .inplace = true,
    .dtypes = kAllTypes,
    .cost =
        [](const Tensor& x, const TensorList& indices, const Tensor& value, bool) {
          return Cost{0, 2.0 * static_cast<double>(x.nbytes()) + bytes_of(x, indices, value.shape())};
        },
    .samples =
        [](Samples& s) {
          const Tensor unique = from_span<int64_t>(std::vector<int64_t>{2, 0}, {2});
          s.add(s.tensor({4, 3}), TensorList{unique}, s.tensor({2, 3}));
          s.add(s.tensor({4, 3}), TensorList{s.integers({6}, -4, 4)}, s.tensor({6, 3}), true);
          s.add(s.tensor({2, 4, 3}), TensorList{Tensor(), s.integers({2}, 0, 4), s.integers({2}, 0, 3)},
                s.tensor({2, 2}), true);
          s.add(s.tensor({2, 4, 3}), TensorList{unique.slice(0, 1, 2), Tensor(), unique.slice(0, 0, 1)},
                s.tensor({1, 4}));
          s.invalid<ShapeError>("indexed elements have shape", s.tensor({4, 3}), TensorList{unique}, s.tensor({3}));
          s.invalid<IndexError>("out of range for dimension 1", s.tensor({4, 2}), TensorList{Tensor(), unique},
                                s.tensor({4, 2}));
          if (s.benchmarking())
            s.bench(s.tensor({50000, 256}), TensorList{s.integers({8192}, 0, 50000)}, s.tensor({8192, 256}), true);
        },
    .reference = by_loops::index_written,
}};

Tensor without_leading_ones(const Tensor& value, int rank) {
  Tensor v = value;
  while (v.dim() > rank && v.shape()[0] == 1) v = select(v, 0, 0);
  return v;
}

Tensor fit_value(const Tensor& value, const Tensor& x, const Shape& shape) {
  Tensor v = value.to(x.dtype());
  if (!(v.device() == x.device())) v = v.to(x.device());
  return expand(without_leading_ones(v, shape.size()), shape);
}

// Applies what makes views (integers, slices, None) and leaves the tensors, one place for each dimension of the view.
Tensor basic_index(const Tensor& x, const std::vector<TensorIndex>& indices, TensorList& tensors, std::string_view op) {
  using Kind = TensorIndex::Kind;
  int64_t consumed = 0, ellipses = 0;
  for (const TensorIndex& i : indices) {
    if (i.kind == Kind::integer || i.kind == Kind::slice) ++consumed;
    if (i.kind == Kind::tensor) consumed += i.tensor.dtype() == DType::boolean ? i.tensor.dim() : 1;
    ellipses += i.kind == Kind::ellipsis;
  }
  check<IndexError>(consumed <= x.dim(), op, "too many indices: ", consumed, " for a tensor ", x, " with ", x.dim(),
                    " dimensions");
  check<IndexError>(ellipses <= 1, op, "only one Ellipsis may stand in an index");
  Tensor v = x;
  int64_t dim = 0, source = 0;  // in the view so far, in x
  const auto put = [&](const Tensor& t) {
    tensors.resize(static_cast<size_t>(dim) + 1);
    tensors[static_cast<size_t>(dim++)] = t;
  };
  for (const TensorIndex& i : indices) {
    switch (i.kind) {
      case Kind::none:
        v = unsqueeze(v, dim++);
        break;
      case Kind::ellipsis:
        dim += x.dim() - consumed;
        source += x.dim() - consumed;
        break;
      case Kind::integer: {
        const int64_t size = x.shape()[source];
        check<IndexError>(i.integer >= -size && i.integer < size, op, "index ", i.integer,
                          " is out of range for dimension ", source, " with size ", size);
        v = select(v, dim, i.integer);
        ++source;
        break;
      }
      case Kind::slice: {
        const int64_t size = x.shape()[source];
        const int64_t start = i.slice.start.value_or(0), stop = i.slice.stop.value_or(size);
        check(i.slice.step >= 1, op, "the step of a slice must be at least 1, got ", i.slice.step, " for dimension ",
              source);
        if (start != 0 || stop != size || i.slice.step != 1) v = slice(v, dim, start, stop, i.slice.step);
        ++dim;
        ++source;
        break;
      }
      case Kind::tensor: {
        if (i.tensor.dtype() != DType::boolean) {
          put(i.tensor);
          ++source;
          break;
        }
        const int64_t rank = i.tensor.dim();
        for (int64_t d = 0; d < rank; ++d)
          check<IndexError>(i.tensor.shape()[d] == x.shape()[source + d], op, "the mask ", i.tensor, " does not fit ",
                            x, " at dimension ", source + d);
        if (rank == 0) {
          v = unsqueeze(v, dim);
          put(select(nonzero(reshape(i.tensor, {1})), 1, 0));
          break;
        }
        const Tensor positions = nonzero(i.tensor);
        for (int64_t d = 0; d < rank; ++d) put(select(positions, 1, d));
        source += rank;
        break;
      }
    }
  }
  return v;
}

// Indices on the processor may name elements of a tensor that is elsewhere, as in PyTorch.
void bring_beside(const Tensor& x, TensorList& indices) {
  for (Tensor& t : indices)
    if (t.defined() && t.device().is_cpu() && !x.device().is_cpu()) t = t.to(x.device());
}

}  // namespace

Tensor index(const Tensor& x, const TensorList& indices) {
  return index_op(x, indices);
}

Tensor index_put(const Tensor& x, const TensorList& indices, const Tensor& value, bool accumulate) {
  return index_put_op(x, indices, fit_value(value, x, plan_index(x, indices, "index_put").shape), accumulate);
}

Tensor& index_put_(Tensor& x, const TensorList& indices, const Tensor& value, bool accumulate) {
  return index_put_op.inplace(x, indices, fit_value(value, x, plan_index(x, indices, "index_put_").shape), accumulate);
}

Tensor Tensor::index(const std::vector<TensorIndex>& indices) const {
  TensorList tensors;
  const Tensor v = basic_index(*this, indices, tensors, "index");
  bring_beside(v, tensors);
  return tensors.empty() ? v : index_op(v, tensors);
}

Tensor& Tensor::index_put_(const std::vector<TensorIndex>& indices, const Tensor& value, bool accumulate) {
  if (indices.size() == 1 && indices[0].kind == TensorIndex::Kind::tensor &&
      indices[0].tensor.dtype() == DType::boolean && indices[0].tensor.shape() == shape() && value.numel() == 1 &&
      !value.requires_grad() && !accumulate && !value.is_meta())
    return masked_fill_(*this, indices[0].tensor, value.item_scalar());
  TensorList tensors;
  Tensor v = basic_index(*this, indices, tensors, "index_put_");
  bring_beside(v, tensors);
  if (!tensors.empty()) {
    strata::index_put_(v, tensors, value, accumulate);
  } else if (accumulate) {
    v.add_(without_leading_ones(value, static_cast<int>(v.dim())));
  } else {
    v.copy_(without_leading_ones(value, static_cast<int>(v.dim())));
  }
  return *this;
}

}  // namespace strata
