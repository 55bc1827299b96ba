// The records of embedding and its gradient.

#include "strata/ops/embedding/embedding.h"

#include <vector>

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/core/sharding.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/embedding/embedding_kernel.h"
#include "strata/ops/embedding/table_gradient_inl.h"
#include "strata/ops/index/index.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

void check_indices(const Tensor& indices, std::string_view op) {
  check<DTypeError>(indices.dtype() == DType::i64 || indices.dtype() == DType::i32, op,
                    "needs i64 or i32 indices, got ", indices.dtype());
}

// As the kernels want them.
Tensor whole(const Tensor& indices) {
  return indices.to(DType::i64).contiguous();
}

int64_t wrap_padding(std::optional<int64_t> padding, int64_t rows, std::string_view op) {
  if (!padding) return -1;
  check<IndexError>(*padding >= -rows && *padding < rows, op, "padding_idx ", *padding,
                    " is out of range for a table of ", rows, " rows");
  return *padding < 0 ? *padding + rows : *padding;
}

// g with the rows at padding set to 0.
Tensor without_padding(const Tensor& g, const Tensor& indices, int64_t padding) {
  if (padding < 0) return g;
  const std::vector<int64_t> at = whole(indices).to_vector<int64_t>();
  std::vector<double> keep;
  keep.reserve(at.size());
  for (int64_t i : at) keep.push_back(i != padding ? 1 : 0);
  Shape s = indices.shape();
  s.push_back(1);
  return g * from_span<double>(keep, s).to(g.dtype()).to(g.device());
}

// ---- tables whose rows are sharded: each rank has what it owns, and zeros for the other rows ----

// Indices into this rank's rows, and which of them are its own ([.., 1]); the others point to some row. An index
// outside the table: the host reads none of a card's, which would end a graph that is being captured; it stays what it
// is, outside of this rank's rows too, so that the kernel tells of it as of any other.
std::pair<Tensor, Tensor> own_rows(const Tensor& indices, Stretch rows, int64_t all, std::string_view op) {
  const Tensor at = whole(indices);
  const Tensor local = at - rows.begin;
  Tensor held = local.clamp(0, rows.length - 1);
  const Tensor own = eq(local, held).unsqueeze(-1);
  if (at.device().is_cuda()) {
    held = where(logical_or(at < 0, at >= all), at, held);
  } else if (at.numel() > 0) {
    check<IndexError>(min(at).item<int64_t>() >= 0 && max(at).item<int64_t>() < all, op,
                      "an index is out of range for a table of ", all, " rows");
  }
  return {held, own};
}

// The table's padding row, where it is this rank's.
Value own_padding(const Value& padding, Stretch rows, int64_t all, std::string_view op) {
  const int64_t* given = std::get_if<int64_t>(&padding);
  if (!given) return {};
  const int64_t row = wrap_padding(*given, all, op) - rows.begin;
  return row >= 0 && row < rows.length ? Value(row) : Value();
}

void shard_embedding(Sharding& s) {
  detail::apply_rule("..., v! d -> ... d", s);
  const int64_t all = s.args[1].shape[0];
  Sharding::Possibility p = s.whole();
  p.args[1] = Placement::sharded(0);
  p.results[0] = Placement::partial_of("sum");
  const auto mine = std::make_shared<Tensor>();
  p.before = [all, mine](LocalCall& c) {
    Value& indices = c.arg("indices");
    const auto [local, own] = own_rows(std::get<Tensor>(indices), c.arg_rows[1], all, "embedding");
    indices = Value(local);
    *mine = own;
    c.arg("padding_idx") = Value();  // of the gradient alone
  };
  p.after = [mine](LocalCall& c) { c.results[0] = masked_fill(c.results[0], logical_not(*mine), 0); };
  s.add(std::move(p));
}

void shard_embedding_backward(Sharding& s) {
  detail::apply_rule("... d, ... -> v! d", s);
  const int64_t all = s.results[0][0];
  Sharding::Possibility p = s.whole();
  p.results[0] = Placement::sharded(0);
  p.before = [all](LocalCall& c) {
    Value &indices = c.arg("indices"), &gy = c.arg("gy"), &padding = c.arg("padding_idx");
    const auto [local, own] = own_rows(std::get<Tensor>(indices), c.rows, all, "embedding_backward");
    indices = Value(local);
    gy = Value(masked_fill(std::get<Tensor>(gy), logical_not(own), 0));
    padding = own_padding(padding, c.rows, all, "embedding_backward");
    c.arg("rows") = Value(c.rows.length);
  };
  p.repeats = true;
  s.add(std::move(p));
}

const Op<Tensor(const Tensor&, const Tensor&, int64_t, std::optional<int64_t>)> embedding_backward_op{{
    .schema = "embedding_backward(Tensor gy, Tensor indices, int rows, int? padding_idx=None) -> Tensor",
    .shard = shard_embedding_backward,
    .internal = true,
    .doc = "The gradient of embedding for its table of `rows` rows: row v is the sum of the rows of gy at the "
           "positions that "
           "hold index v, added in f32 in the order of the positions (on CUDA in parts, each in that order; the same "
           "bits in every call and for any number of threads); row padding_idx is 0. IndexError for an index outside "
           "the table.",
    .infer =
        [](const Tensor& gy, const Tensor& indices, int64_t rows, std::optional<int64_t> padding) {
          const std::string_view op = "embedding_backward";
          check_indices(indices, op);
          check<DTypeError>(is_floating(gy.dtype()), op, "needs a floating gradient, got ", gy.dtype());
          bool fits = gy.dim() == indices.dim() + 1;
          for (int64_t i = 0; fits && i < indices.dim(); ++i) fits = gy.shape()[i] == indices.shape()[i];
          check<ShapeError>(fits, op, "gy is ", gy, ", indices are ", indices);
          check(rows >= 0, op, "rows must not be negative, got ", rows);
          wrap_padding(padding, rows, op);
          return like(gy).with_shape({rows, gy.shape().back()});
        },
    .kernels = {.cpu =
                    [](Tensor& gw, const Tensor& gy, const Tensor& indices, int64_t rows,
                       std::optional<int64_t> padding) {
                      const Tensor gc = gy.contiguous(), ic = whole(indices);
                      embedding_backward_cpu(gy.dtype(), static_cast<const int64_t*>(ic.raw_data()), indices.numel(),
                                             gc.raw_data(), rows, gy.shape().back(),
                                             wrap_padding(padding, rows, "embedding_backward"), gw.raw_data());
                    },
                .cuda = STRATA_CUDA_KERNEL([](Tensor& gw, const Tensor& gy, const Tensor& indices, int64_t rows,
                                              std::optional<int64_t> padding) {
                  embedding_backward_cuda(gw, gy, whole(indices), rows, padding);
                })},
    .saves = "indices",
    .backward =
        [](Backward& b, const Tensor&, const Tensor& indices, int64_t rows, std::optional<int64_t> padding) {
          b.set(0, without_padding(embedding(indices, b.gy()), indices,
                                   wrap_padding(padding, rows, "embedding_backward")));
        },
    .cost =
        [](const Tensor& gy, const Tensor& indices, int64_t rows, std::optional<int64_t>) {
          return Cost{1.0 * gy.numel(), static_cast<double>(gy.nbytes() + indices.nbytes() +
                                                            rows * gy.shape().back() * size_of(gy.dtype()))};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({6, 3}), s.integers({6}, 0, 4), 5);
          s.add(s.tensor({2, 3, 20}), s.integers({2, 3}, 0, 4), 4, -1).named("padding");
          s.add(s.tensor({0, 3}), s.integers({0}, 0, 4), 4).named("no indices");
          s.invalid<ShapeError>("gy is", s.tensor({5, 3}), s.integers({6}, 0, 4), 5);
          s.invalid<IndexError>("out of range", s.tensor({2, 3}), s.integers({2}, 7, 8), 5);
          s.invalid<IndexError>("out of range", s.tensor({2, 3}), s.integers({2}, 0, 1), 0);
          if (s.benchmarking()) s.bench(s.tensor({32768, 512}), s.integers({32768}, 0, 8192), 8192);
        },
    .reference =
        [](const Tensor& gy, const Tensor& indices, int64_t rows, std::optional<int64_t> padding) {
          const std::vector<double> g = gy.to_vector<double>();
          const std::vector<int64_t> at = indices.to(DType::i64).to_vector<int64_t>();
          const int64_t d = gy.shape().back(), skip = wrap_padding(padding, rows, "embedding_backward");
          std::vector<double> w(static_cast<size_t>(rows * d));
          for (size_t i = 0; i < at.size(); ++i)
            for (int64_t j = 0; j < d && at[i] != skip; ++j) w[at[i] * d + j] += g[i * d + j];
          return from_span<double>(w, {rows, d});
        },
}};

const Op<Tensor(const Tensor&, const Tensor&, std::optional<int64_t>)> embedding_op{{
    .schema = "embedding(Tensor indices, Tensor weight, int? padding_idx=None) -> Tensor",
    .shard = shard_embedding,
    .doc =
        "Rows of weight [V, D] at indices (i64 or i32, of any shape): the result's shape is indices' followed by D. "
        "Row "
        "padding_idx, "
        "where given, gets no gradient; a negative one counts from the end. IndexError for an index outside the table.",
    .example = "Tensor w = from_span<float>(std::vector<float>{1, 2, 3, 4}, {2, 2}); "
               "Tensor y = embedding(from_span<int64_t>(std::vector<int64_t>{1}, {1}), w); "
               "assert(y.to_vector<float>() == std::vector<float>({3, 4}));",
    .infer =
        [](const Tensor& indices, const Tensor& weight, std::optional<int64_t> padding) {
          check_indices(indices, "embedding");
          check<ShapeError>(weight.dim() == 2, "embedding", "weight must be [V, D], got ", weight);
          wrap_padding(padding, weight.shape()[0], "embedding");
          Shape s = indices.shape();
          s.push_back(weight.shape()[1]);
          return like(weight).with_shape(s);
        },
    .kernels = {.cpu =
                    [](Tensor& y, const Tensor& indices, const Tensor& weight, std::optional<int64_t>) {
                      const Tensor ic = whole(indices), wc = weight.contiguous();
                      embedding_cpu(static_cast<const int64_t*>(ic.raw_data()), indices.numel(), wc.raw_data(),
                                    weight.shape()[0], weight.shape()[1] * size_of(weight.dtype()), y.raw_data());
                    },
                .cuda = STRATA_CUDA_KERNEL(
                    [](Tensor& y, const Tensor& indices, const Tensor& weight, std::optional<int64_t> padding) {
                      embedding_cuda(y, whole(indices), weight, padding);
                    })},
    .saves = "indices",
    .backward =
        [](Backward& b, const Tensor& indices, const Tensor& weight, std::optional<int64_t> padding) {
          // A table that is also a model's last layer has a gradient already: only the rows that are named change.
          if (Tensor* sum = padding ? nullptr : b.gathered(1)) {
            index_add_(*sum, 0, whole(indices).reshape({-1}), b.gy().reshape({-1, weight.shape()[1]}).to(sum->dtype()));
          } else {
            b.set(1, embedding_backward_op(b.gy(), indices, weight.shape()[0], padding));
          }
        },
    .cost =
        [](const Tensor& indices, const Tensor& weight, std::optional<int64_t>) {
          const double bytes = static_cast<double>(indices.numel() * weight.shape()[1] * size_of(weight.dtype()));
          return Cost{0, 2 * bytes + static_cast<double>(indices.nbytes())};
        },
    .samples =
        [](Samples& s) {
          s.add(s.integers({6}, 0, 5), s.tensor({5, 3}));
          s.add(s.integers({2, 3}, 0, 4), s.tensor({4, 20})).named("two dimensions");
          s.add(s.integers({0}, 0, 4), s.tensor({4, 2})).named("no indices");
          s.add(s.integers({6}, 0, 5, DType::i32), s.tensor({5, 3})).named("i32 indices");
          s.invalid<IndexError>("out of range", s.integers({2}, 5, 6), s.tensor({5, 3}));
          s.invalid<DTypeError>("i64", s.tensor({2}, DType::f32), s.tensor({5, 3}));
          s.invalid<ShapeError>("[V, D]", s.integers({2}, 0, 3), s.tensor({5}));
          s.invalid<IndexError>("padding_idx", s.integers({2}, 0, 3), s.tensor({5, 3}), 5);
          if (s.benchmarking()) s.bench(s.integers({32768}, 0, 8192), s.tensor({8192, 512}));
        },
    .reference =
        [](const Tensor& indices, const Tensor& weight, std::optional<int64_t>) {
          const std::vector<double> w = weight.to_vector<double>();
          const int64_t d = weight.shape()[1];
          std::vector<double> y;
          for (int64_t i : indices.to(DType::i64).to_vector<int64_t>())
            for (int64_t j = 0; j < d; ++j) y.push_back(w[i * d + j]);
          Shape s = indices.shape();
          s.push_back(d);
          return from_span<double>(y, s);
        },
}};

}  // namespace

Tensor embedding(const Tensor& indices, const Tensor& weight, std::optional<int64_t> padding_idx) {
  return embedding_op(indices, weight, padding_idx);
}

Tensor detail::table_gradient(const Tensor& gy, const Tensor& indices, int64_t rows, std::optional<int64_t> padding) {
  return embedding_backward_op(gy, indices, rows, padding);
}

}  // namespace strata
