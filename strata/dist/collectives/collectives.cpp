// The records of collectives.

#include "strata/dist/collectives/collectives.h"

#include <charconv>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "strata/core/dims.h"
#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/dist/group.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/view/view.h"

namespace strata::distributed {
namespace {

using Text = const std::string&;

// What the ranks must agree on. Shapes do where every rank's is the same.
std::string call_text(std::string_view op, std::string_view detail, const Tensor& x, bool shape = true) {
  std::string s = cat(op);
  if (!detail.empty()) s += cat("(", detail, ")");
  s += cat(" ", x.dtype());
  if (shape) s += cat(" ", x.shape());
  return s;
}

int64_t rank_in(std::string_view op, int64_t rank, const Group& g) {
  check<IndexError>(rank >= 0 && rank < g.size(), op, "there is no rank ", rank, " in group ", g.name(), " of ",
                    g.size());
  return rank;
}

double size_of_group(Text group) {
  return static_cast<double>(distributed::group(group).size());
}

// Bytes that a rank of n sends of x where each is to get all but its own part.
Cost cost_of(const Tensor& x, double share, double flops = 0) {
  return {flops, static_cast<double>(x.nbytes()) * (2 + share)};
}

// NCCL has no 16-bit integers: they are reduced as wider ones, whose low bits are the same, and cut again.
bool widens(const Tensor& x) {
  return x.device().is_cuda() && x.dtype() == DType::i16;
}
// Where y is reduced: itself, filled with x, or a wider tensor.
Tensor reduced_in(const Tensor& y, const Tensor& x) {
  Tensor room = widens(x) ? empty(like(y).with_dtype(DType::i32)) : y;
  copy_elements(room, x);
  return room;
}
void cut_to(const Tensor& y, const Tensor& room) {
  if (room.dtype() != y.dtype()) copy_elements(y, room);
}

void all_reduce_there(Tensor& y, const Tensor& x, Text reduction, Text group) {
  Group& g = distributed::group(group);
  const Reduction r = reduction_named("all_reduce", reduction);
  Tensor room = reduced_in(y, x);
  g.run(x.device(), call_text("all_reduce", reduction, x),
        [&](Collectives& c) { c.all_reduce(room.raw_data(), room.numel(), room.dtype(), r); });
  cut_to(y, room);
}

const Op<Tensor(const Tensor&, Text, Text)> all_reduce_op{{
    .schema = "all_reduce(Tensor x, str reduction=\"sum\", str group=\"world\") -> Tensor",
    .shard = "unplaced",
    .doc =
        "The x of every rank of the group, reduced elementwise: sum, avg (floating), min, max or product; bool takes min "
        "(all) and max (any). Every rank gets the same bits, in every run. The CPU adds in the order of the ranks, f16 and "
        "bf16 in f32, rounded once; cards add as NCCL does, which rounds f16 and bf16 from rank to rank. The gradient of "
        "sum and avg is the same reduction of the ranks' gradients; the others have none. A group is text: axes of the "
        "mesh (\"dp\", \"dp+cp\") or \"world\".",
    .example = "assert(distributed::all_reduce(ones({2})).to_vector<float>() == std::vector<float>({1, 1}));  // a job of one",
    .infer =
        [](const Tensor& x, Text reduction, Text group) {
          check_reduction("all_reduce", reduction_named("all_reduce", reduction), x.dtype());
          distributed::group(group);
          return like(x);
        },
    .kernels = {.cpu = all_reduce_there, .cuda = STRATA_CUDA_KERNEL(all_reduce_there)},
    .backward =
        [](Backward& b, const Tensor&, Text reduction, Text group) {
          check<AutogradError>(reduction == "sum" || reduction == "avg", "all_reduce", reduction, " has no gradient");
          b.set(0, all_reduce(b.gy(), reduction, group));
        },
    .dtypes = kAllTypes,
    .cost =
        [](const Tensor& x, Text, Text group) {
          const double n = size_of_group(group);
          return cost_of(x, 2 * (n - 1) / n, static_cast<double>(x.numel()));
        },
    .samples =
        [](Samples& s) {
          for (const char* r : {"max", "min"}) s.add(s.tensor({3, 5}), r).not_differentiable();
          if (s.dtype() != DType::boolean) s.add(s.tensor({7}), "sum");
          if (s.dtype() != DType::boolean) s.add(s.tensor({0, 2}), "product", "world").not_differentiable();
          if (is_floating(s.dtype())) s.add(s.tensor({4, 3}), "avg");
          s.invalid<ValueError>("a reduction is", s.tensor({2}), "median");
          s.invalid<ValueError>("there is no group", s.tensor({2}), "max", "sideways");
          if (!is_floating(s.dtype())) s.invalid<DTypeError>("avg needs", s.tensor({2}), "avg");
        },
    .reference = [](const Tensor& x, Text, Text) { return x.clone(); },
}};

void reduce_there(Tensor& y, const Tensor& x, int64_t root, Text reduction, Text group) {
  Group& g = distributed::group(group);
  const Reduction r = reduction_named("reduce", reduction);
  Tensor room = reduced_in(y, x);
  g.run(x.device(), call_text("reduce", cat(reduction, " to ", root), x), [&](Collectives& c) {
    c.reduce(room.raw_data(), room.numel(), room.dtype(), r, static_cast<int>(root));
  });
  if (g.rank() == root) {
    cut_to(y, room);
  } else {
    fill_elements(y, 0.0);
  }
}

const Op<Tensor(const Tensor&, int64_t, Text, Text)> reduce_op{{
    .schema = "reduce(Tensor x, int root=0, str reduction=\"sum\", str group=\"world\") -> Tensor",
    .shard = "unplaced",
    .doc =
        "all_reduce at one rank of the group, `root`: the others get zeros. The gradient of sum is the root's, in every "
        "rank; avg divides it by the number of ranks; the other reductions have none.",
    .example = "assert(distributed::reduce(ones({2})).to_vector<float>() == std::vector<float>({1, 1}));  // a job of one",
    .infer =
        [](const Tensor& x, int64_t root, Text reduction, Text group) {
          check_reduction("reduce", reduction_named("reduce", reduction), x.dtype());
          rank_in("reduce", root, distributed::group(group));
          return like(x);
        },
    .kernels = {.cpu = reduce_there, .cuda = STRATA_CUDA_KERNEL(reduce_there)},
    .backward =
        [](Backward& b, const Tensor&, int64_t root, Text reduction, Text group) {
          check<AutogradError>(reduction == "sum" || reduction == "avg", "reduce", reduction, " has no gradient");
          const Tensor g = broadcast(b.gy(), root, group);
          b.set(0, reduction == "sum" ? g : g * (1.0 / size_of_group(group)));
        },
    .dtypes = kAllTypes,
    .cost = [](const Tensor& x, int64_t, Text, Text) { return cost_of(x, 1, static_cast<double>(x.numel())); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}), 0, "max").not_differentiable();
          if (s.dtype() != DType::boolean) s.add(s.tensor({7}));
          s.invalid<IndexError>("there is no rank 1", s.tensor({2}), 1, "max");
        },
    .reference = [](const Tensor& x, int64_t, Text, Text) { return x.clone(); },
}};

void broadcast_there(Tensor& y, const Tensor& x, int64_t root, Text group) {
  Group& g = distributed::group(group);
  copy_elements(y, x);
  g.run(x.device(), call_text("broadcast", cat("from ", root), x), [&](Collectives& c) {
    c.broadcast(y.raw_data(), static_cast<size_t>(y.nbytes()), static_cast<int>(root));
  });
}

const Op<Tensor(const Tensor&, int64_t, Text)> broadcast_op{{
    .schema = "broadcast(Tensor x, int root=0, str group=\"world\") -> Tensor",
    .shard = "unplaced",
    .doc = "The x of the group's rank `root`, in every rank. All have the same shape and dtype. The gradient is the sum of "
           "the ranks', at the root; zeros elsewhere.",
    .example = "assert(distributed::broadcast(ones({2})).to_vector<float>() == std::vector<float>({1, 1}));  // a job of one",
    .infer =
        [](const Tensor& x, int64_t root, Text group) {
          rank_in("broadcast", root, distributed::group(group));
          return like(x);
        },
    .kernels = {.cpu = broadcast_there, .cuda = STRATA_CUDA_KERNEL(broadcast_there)},
    .backward = [](Backward& b, const Tensor&, int64_t root, Text group) { b.set(0, reduce(b.gy(), root, "sum", group)); },
    .dtypes = kAllTypes,
    .cost = [](const Tensor& x, int64_t, Text) { return cost_of(x, 1); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}));
          s.add(s.tensor({0}), 0);
          s.invalid<IndexError>("there is no rank -1", s.tensor({2}), -1);
        },
    .reference = [](const Tensor& x, int64_t, Text) { return x.clone(); },
}};

void all_gather_there(Tensor& y, const Tensor& x, int64_t dim, Text group) {
  Group& g = distributed::group(group);
  const Tensor own = x.contiguous();
  const auto bytes = static_cast<size_t>(own.nbytes());
  dim = wrap_dim(dim, x.dim(), "all_gather");
  // Along the first dimension the ranks' parts lie one behind the other already.
  const bool first = dim == 0;
  Tensor room = first ? y : empty(like(own).with_shape({g.size() * own.numel()}));
  g.run(x.device(), call_text("all_gather", cat("dim ", dim), x),
        [&](Collectives& c) { c.all_gather(room.raw_data(), own.raw_data(), bytes); });
  if (first) return;
  for (int64_t r = 0; r < g.size(); ++r) {
    copy_elements(y.narrow(dim, r * x.size(dim), x.size(dim)),
                  room.narrow(0, r * own.numel(), own.numel()).view(own.shape()));
  }
}

const Op<Tensor(const Tensor&, int64_t, Text)> all_gather_op{{
    .schema = "all_gather(Tensor x, int dim=0, str group=\"world\") -> Tensor",
    .shard = "unplaced",
    .doc = "The ranks' x, one behind the other along `dim` in the order of the ranks. All have the same shape and dtype. The "
           "gradient is this rank's part of the sum of the ranks' (reduce_scatter).",
    .example = "assert(distributed::all_gather(ones({2, 3}), 1).shape() == Shape({2, 3}));  // a job of one",
    .infer =
        [](const Tensor& x, int64_t dim, Text group) {
          check<ShapeError>(x.dim() >= 1, "all_gather", "needs at least one dimension, got ", x);
          dim = wrap_dim(dim, x.dim(), "all_gather");
          Shape shape = x.shape();
          shape[static_cast<size_t>(dim)] *= distributed::group(group).size();
          return like(x).with_shape(shape);
        },
    .kernels = {.cpu = all_gather_there, .cuda = STRATA_CUDA_KERNEL(all_gather_there)},
    .backward =
        [](Backward& b, const Tensor&, int64_t dim, Text group) { b.set(0, reduce_scatter(b.gy(), dim, "sum", group)); },
    .dtypes = kAllTypes,
    .cost = [](const Tensor& x, int64_t, Text group) { return cost_of(x, 2 * (size_of_group(group) - 1)); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}));
          s.add(s.tensor({2, 0, 4}), -1);
          s.invalid<ShapeError>("at least one dimension", s.tensor({}));
          s.invalid<IndexError>("", s.tensor({2}), 1);
        },
    .reference = [](const Tensor& x, int64_t, Text) { return x.clone(); },
}};

void reduce_scatter_there(Tensor& y, const Tensor& x, int64_t dim, Text reduction, Text group) {
  Group& g = distributed::group(group);
  const Reduction r = reduction_named("reduce_scatter", reduction);
  dim = wrap_dim(dim, x.dim(), "reduce_scatter");
  Tensor room = x.contiguous();
  if (dim != 0) {
    room = empty(like(x).with_shape({x.numel()}));
    const int64_t each = x.size(dim) / g.size(), count = x.numel() / g.size();
    for (int64_t p = 0; p < g.size(); ++p) {
      copy_elements(room.narrow(0, p * count, count).view(y.shape()), x.narrow(dim, p * each, each));
    }
  }
  Tensor out = y;
  if (widens(x)) {
    room = to(room, DType::i32);
    out = empty(like(y).with_dtype(DType::i32));
  }
  g.run(x.device(), call_text("reduce_scatter", cat(reduction, ", dim ", dim), x), [&](Collectives& c) {
    c.reduce_scatter(out.raw_data(), room.raw_data(), out.numel(), out.dtype(), r);
  });
  cut_to(y, out);
}

const Op<Tensor(const Tensor&, int64_t, Text, Text)> reduce_scatter_op{{
    .schema = "reduce_scatter(Tensor x, int dim=0, str reduction=\"sum\", str group=\"world\") -> Tensor",
    .shard = "unplaced",
    .doc = "This rank's part along `dim` of the ranks' x, reduced as by all_reduce: 1/n of x, whose size there is a multiple "
           "of the group's. The gradient of sum is the ranks' gradients, one behind the other (all_gather); avg divides it "
           "by the number of ranks; the other reductions have none.",
    .example = "assert(distributed::reduce_scatter(ones({4})).shape() == Shape({4}));  // a job of one",
    .infer =
        [](const Tensor& x, int64_t dim, Text reduction, Text group) {
          constexpr std::string_view kOp = "reduce_scatter";
          check<ShapeError>(x.dim() >= 1, kOp, "needs at least one dimension, got ", x);
          check_reduction(kOp, reduction_named(kOp, reduction), x.dtype());
          dim = wrap_dim(dim, x.dim(), kOp);
          const int64_t n = distributed::group(group).size();
          check<ShapeError>(x.size(dim) % n == 0, kOp, "dimension ", dim, " of ", x, " is no multiple of the ", n,
                            " ranks of ", group);
          Shape shape = x.shape();
          shape[static_cast<size_t>(dim)] /= n;
          return like(x).with_shape(shape);
        },
    .kernels = {.cpu = reduce_scatter_there, .cuda = STRATA_CUDA_KERNEL(reduce_scatter_there)},
    .backward =
        [](Backward& b, const Tensor&, int64_t dim, Text reduction, Text group) {
          check<AutogradError>(reduction == "sum" || reduction == "avg", "reduce_scatter", reduction, " has no gradient");
          const Tensor g = all_gather(b.gy(), dim, group);
          b.set(0, reduction == "sum" ? g : g * (1.0 / size_of_group(group)));
        },
    .dtypes = kAllTypes,
    .cost =
        [](const Tensor& x, int64_t, Text, Text group) {
          const double n = size_of_group(group);
          return cost_of(x, (n - 1) / n, static_cast<double>(x.numel()));
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}), 1, "max").not_differentiable();
          if (s.dtype() != DType::boolean) s.add(s.tensor({7}));
          s.invalid<ShapeError>("at least one dimension", s.tensor({}), 0, "max");
        },
    .reference = [](const Tensor& x, int64_t, Text, Text) { return x.clone(); },
}};

Shape exchanged(std::string_view op, const Tensor& x, int64_t& split, int64_t& concat, int64_t n) {
  check<ShapeError>(x.dim() >= 1, op, "needs at least one dimension, got ", x);
  split = wrap_dim(split, x.dim(), op);
  concat = wrap_dim(concat, x.dim(), op);
  check<ShapeError>(x.size(split) % n == 0, op, "dimension ", split, " of ", x, " is no multiple of the group's ", n,
                    " ranks");
  Shape shape = x.shape();
  shape[static_cast<size_t>(split)] /= n;
  shape[static_cast<size_t>(concat)] *= n;
  return shape;
}

void all_to_all_there(Tensor& y, const Tensor& x, int64_t split, int64_t concat, Text group) {
  Group& g = distributed::group(group);
  const int64_t n = g.size();
  exchanged("all_to_all", x, split, concat, n);
  const int64_t count = x.numel() / n, each = x.size(split) / n;
  Tensor out = split == 0 ? x.contiguous() : empty(like(x).with_shape({x.numel()}));
  Shape part = x.shape();
  part[static_cast<size_t>(split)] = each;
  if (split != 0) {
    for (int64_t p = 0; p < n; ++p) {
      copy_elements(out.narrow(0, p * count, count).view(part), x.narrow(split, p * each, each));
    }
  }
  Tensor in = concat == 0 ? y : empty(like(y).with_shape({y.numel()}));
  const std::vector<size_t> bytes(static_cast<size_t>(n), static_cast<size_t>(count) * size_of(x.dtype()));
  g.run(x.device(), call_text("all_to_all", cat("split ", split, ", concat ", concat), x),
        [&](Collectives& c) { c.all_to_all(in.raw_data(), bytes, out.raw_data(), bytes); });
  if (concat == 0) return;
  const int64_t step = part[static_cast<size_t>(concat)];
  for (int64_t p = 0; p < n; ++p) {
    copy_elements(y.narrow(concat, p * step, step), in.narrow(0, p * count, count).view(part));
  }
}

const Op<Tensor(const Tensor&, int64_t, int64_t, Text)> all_to_all_op{{
    .schema = "all_to_all(Tensor x, int split_dim=0, int concat_dim=0, str group=\"world\") -> Tensor",
    .shard = "unplaced",
    .doc = "Cuts x along split_dim into a part for each rank of the group, and joins the parts that come from each, in the "
           "order of the ranks, along concat_dim. With two dimensions it moves a cut from one to the other (Ulysses, "
           "arXiv:2309.14509). The gradient is the same exchange back.",
    .example = "assert(distributed::all_to_all(ones({2, 4}), 1, 0).shape() == Shape({2, 4}));  // a job of one",
    .infer =
        [](const Tensor& x, int64_t split, int64_t concat, Text group) {
          return like(x).with_shape(exchanged("all_to_all", x, split, concat, distributed::group(group).size()));
        },
    .kernels = {.cpu = all_to_all_there, .cuda = STRATA_CUDA_KERNEL(all_to_all_there)},
    .backward = [](Backward& b, const Tensor&, int64_t split, int64_t concat,
                   Text group) { b.set(0, all_to_all(b.gy(), concat, split, group)); },
    .dtypes = kAllTypes,
    .cost =
        [](const Tensor& x, int64_t, int64_t, Text group) {
          const double n = size_of_group(group);
          return cost_of(x, (n - 1) / n);
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}));
          s.add(s.tensor({2, 3, 4}), 1, -1);
          s.invalid<ShapeError>("at least one dimension", s.tensor({}));
        },
    .reference = [](const Tensor& x, int64_t, int64_t, Text) { return x.clone(); },
}};

std::vector<int64_t> counts_of(const Tensor& counts, const Group& g, std::string_view which) {
  constexpr std::string_view kOp = "all_to_all_rows";
  check<DTypeError>(counts.dtype() == DType::i64, kOp, which, " must be i64, got ", counts);
  check<ShapeError>(counts.dim() == 1 && counts.size(0) == g.size(), kOp, which, " is ", counts, ", wanted [", g.size(),
                    "]");
  std::vector<int64_t> values = counts.to_vector<int64_t>();
  for (const int64_t v : values) check(v >= 0, kOp, which, " has ", v, " rows");
  return values;
}

using Counts = std::vector<int64_t>;

int64_t total(const Counts& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}
// A record's lists of numbers are as long as a tensor has dims; ranks may be more.
std::string text_of_counts(const Counts& counts) {
  std::string text;
  for (const int64_t v : counts) text += cat(text.empty() ? "" : " ", v);
  return text;
}
Counts counts_in(Text text, const Group& g, std::string_view which) {
  constexpr std::string_view kOp = "exchange_rows";
  Counts counts;
  for (const char *p = text.data(), *const end = p + text.size(); p < end;) {
    int64_t v = 0;
    const auto [after, error] = std::from_chars(p, end, v);
    check(error == std::errc() && (after == end || *after == ' '), kOp, which, " is '", text,
          "', wanted numbers with a blank between");
    check(v >= 0, kOp, which, " has ", v, " rows");
    counts.push_back(v);
    p = after + (after < end);
  }
  check<ShapeError>(counts.size() == static_cast<size_t>(g.size()), kOp, which, " has ", counts.size(), " numbers for ",
                    g.size(), " ranks");
  return counts;
}

// What one rank sends must be what the other receives: on cards other counts would never end.
void agree_on_counts(const Tensor& x, const Counts& gives, const Counts& gets, Group& g) {
  constexpr std::string_view kOp = "all_to_all_rows";
  if (!x.device().is_cuda() || g.size() == 1) return;
  Counts theirs(gets.size());
  const std::vector<size_t> each(gets.size(), sizeof(int64_t));
  g.run(call_text(kOp, "counts", x, false),
        [&](Communicator& c) { c.all_to_all(theirs.data(), each, gives.data(), each); });
  for (size_t r = 0; r < theirs.size(); ++r) {
    check<DistributedError>(theirs[r] == gets[r], kOp, "rank ", r, " of group ", g.name(), " sends ", theirs[r],
                            " rows, receive_counts says ", gets[r]);
  }
}

void exchange_rows_there(Tensor& y, const Tensor& x, Text send_counts, Text receive_counts, Text group) {
  Group& g = distributed::group(group);
  auto row_bytes = static_cast<int64_t>(size_of(x.dtype()));
  for (int d = 1; d < x.dim(); ++d) row_bytes *= x.size(d);
  const Tensor own = x.contiguous();
  std::vector<size_t> in_bytes, out_bytes;
  for (const int64_t v : counts_in(send_counts, g, "send_counts")) in_bytes.push_back(static_cast<size_t>(v * row_bytes));
  for (const int64_t v : counts_in(receive_counts, g, "receive_counts"))
    out_bytes.push_back(static_cast<size_t>(v * row_bytes));
  g.run(x.device(), call_text("exchange_rows", {}, x, false),
        [&](Collectives& c) { c.all_to_all(y.raw_data(), out_bytes, own.raw_data(), in_bytes); });
}

const Op<Tensor(const Tensor&, Text, Text, Text)> exchange_rows_op{{
    .schema = "exchange_rows(Tensor x, str send_counts, str receive_counts, str group=\"world\") -> Tensor",
    .shard = "unplaced",
    .doc = "all_to_all_rows with counts that the host has and that the ranks have told each other, as numbers with a blank "
           "between, '3 0 5': nothing is read or asked for, so that nobody waits. On cards the exchange does not end where "
           "what one sends is not what the other receives.",
    .example = "assert(distributed::exchange_rows(ones({2, 3}), {2}, {2}).shape() == Shape({2, 3}));  // a job of one",
    .infer =
        [](const Tensor& x, Text send_counts, Text receive_counts, Text group) {
          constexpr std::string_view kOp = "exchange_rows";
          const Group& g = distributed::group(group);
          check<ShapeError>(x.dim() >= 1, kOp, "needs at least one dimension, got ", x);
          const int64_t sent = total(counts_in(send_counts, g, "send_counts"));
          check<ShapeError>(sent == x.size(0), kOp, "send_counts add up to ", sent, " rows, x has ", x.size(0));
          Shape shape = x.shape();
          shape[0] = total(counts_in(receive_counts, g, "receive_counts"));
          return like(x).with_shape(shape);
        },
    .kernels = {.cpu = exchange_rows_there, .cuda = STRATA_CUDA_KERNEL(exchange_rows_there)},
    .backward = [](Backward& b, const Tensor&, Text send_counts, Text receive_counts,
                   Text group) { b.set(0, exchange_rows_op(b.gy(), receive_counts, send_counts, group)); },
    .dtypes = kAllTypes,
    .cost = [](const Tensor& x, Text, Text, Text) { return cost_of(x, 1); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}), "3", "3");
          s.add(s.tensor({0, 2}), "0", "0");
          s.invalid<ShapeError>("add up to", s.tensor({3}), "2", "2");
          s.invalid<ShapeError>("numbers for", s.tensor({3}), "2 1", "3");
          s.invalid<ValueError>("has -1 rows", s.tensor({3}), "-1", "2");
          s.invalid<ValueError>("wanted numbers", s.tensor({3}), "3", "three");
        },
    .reference = [](const Tensor& x, Text, Text, Text) { return x.clone(); },
}};

Tensor all_to_all_rows_there(const Tensor& x, const Tensor& send_counts, const Tensor& receive_counts, Text group) {
  constexpr std::string_view kOp = "all_to_all_rows";
  Group& g = distributed::group(group);
  check<ShapeError>(x.dim() >= 1, kOp, "needs at least one dimension, got ", x);
  check<DeviceError>(!x.is_meta(), kOp, "the rows of a meta tensor travel nowhere, got ", x);
  const Counts gives = counts_of(send_counts, g, "send_counts"), gets = counts_of(receive_counts, g, "receive_counts");
  check<ShapeError>(total(gives) == x.size(0), kOp, "send_counts add up to ", total(gives), " rows, x has ", x.size(0));
  agree_on_counts(x, gives, gets, g);
  return exchange_rows(x, gives, gets, group);
}

const Op<Tensor(const Tensor&, const Tensor&, const Tensor&, Text)> all_to_all_rows_op{{
    .schema = "all_to_all_rows(Tensor x, Tensor send_counts, Tensor receive_counts, str group=\"world\") -> Tensor",
    .shard = "unplaced",
    .doc = "The first send_counts[0] rows of x go to the group's rank 0, the next send_counts[1] to rank 1, and so on; the "
           "result has receive_counts[0] rows of rank 0, and so on. Counts are i64 with an element for each rank; what one "
           "sends must be what the other receives. They are read on the host, so on cards this cannot be captured in a "
           "graph. The gradient is the exchange back.",
    .example = "Tensor n = from_span<int64_t>(std::vector<int64_t>{2}, {1});\n"
               "assert(distributed::all_to_all_rows(ones({2, 3}), n, n).shape() == Shape({2, 3}));  // a job of one",
    .dynamic = {.cpu = all_to_all_rows_there, .cuda = STRATA_CUDA_KERNEL(all_to_all_rows_there)},
    .saves = "send_counts receive_counts",
    .backward = [](Backward& b, const Tensor&, const Tensor& send_counts, const Tensor& receive_counts,
                   Text group) { b.set(0, all_to_all_rows(b.gy(), receive_counts, send_counts, group)); },
    .dtypes = kAllTypes,
    .cost = [](const Tensor& x, const Tensor&, const Tensor&, Text) { return cost_of(x, 1); },
    .samples =
        [](Samples& s) {
          const auto count = [](int64_t n) { return from_span<int64_t>(std::vector<int64_t>{n}, {1}); };
          s.add(s.tensor({3, 5}), count(3), count(3));
          s.add(s.tensor({0, 2}), count(0), count(0));
          s.invalid<ShapeError>("add up to", s.tensor({3}), count(2), count(2));
          s.invalid<ValueError>("has -1 rows", s.tensor({3}), count(-1), count(2));
        },
    .reference = [](const Tensor& x, const Tensor&, const Tensor&, Text) { return x.clone(); },
}};

void ring_shift_there(Tensor& y, const Tensor& x, int64_t by, Text group) {
  Group& g = distributed::group(group);
  const Tensor own = x.contiguous();
  const int64_t n = g.size(), step = (by % n + n) % n;
  g.run(x.device(), call_text("ring_shift", cat("by ", by), x), [&](Collectives& c) {
    c.shift(y.raw_data(), own.raw_data(), static_cast<size_t>(y.nbytes()), static_cast<int>((c.rank() + step) % n),
            static_cast<int>((c.rank() - step + n) % n));
  });
}

const Op<Tensor(const Tensor&, int64_t, Text)> ring_shift_op{{
    .schema = "ring_shift(Tensor x, int by=1, str group=\"world\") -> Tensor",
    .shard = "unplaced",
    .doc = "The x of the rank that stands `by` places before this one in the group's ring; negative: behind it. All have the "
           "same shape and dtype. The gradient goes the other way.",
    .example = "assert(distributed::ring_shift(ones({2})).to_vector<float>() == std::vector<float>({1, 1}));  // a job of one",
    .infer =
        [](const Tensor& x, int64_t, Text group) {
          distributed::group(group);
          return like(x);
        },
    .kernels = {.cpu = ring_shift_there, .cuda = STRATA_CUDA_KERNEL(ring_shift_there)},
    .backward = [](Backward& b, const Tensor&, int64_t by, Text group) { b.set(0, ring_shift(b.gy(), -by, group)); },
    .dtypes = kAllTypes,
    .cost = [](const Tensor& x, int64_t, Text) { return cost_of(x, 1); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}));
          s.add(s.tensor({2}), -3);
          s.invalid<ValueError>("there is no group", s.tensor({2}), 1, "sideways");
        },
    .reference = [](const Tensor& x, int64_t, Text) { return x.clone(); },
}};

}  // namespace

Tensor all_reduce(const Tensor& x, Text reduction, Text group) {
  return all_reduce_op(x, reduction, group);
}
Tensor reduce(const Tensor& x, int64_t root, Text reduction, Text group) {
  return reduce_op(x, root, reduction, group);
}
Tensor broadcast(const Tensor& x, int64_t root, Text group) {
  return broadcast_op(x, root, group);
}
Tensor all_gather(const Tensor& x, int64_t dim, Text group) {
  return all_gather_op(x, dim, group);
}
Tensor reduce_scatter(const Tensor& x, int64_t dim, Text reduction, Text group) {
  return reduce_scatter_op(x, dim, reduction, group);
}
Tensor all_to_all(const Tensor& x, int64_t split_dim, int64_t concat_dim, Text group) {
  return all_to_all_op(x, split_dim, concat_dim, group);
}
Tensor all_to_all_rows(const Tensor& x, const Tensor& send_counts, const Tensor& receive_counts, Text group) {
  return all_to_all_rows_op(x, send_counts, receive_counts, group);
}
Tensor exchange_rows(const Tensor& x, const std::vector<int64_t>& send_counts,
                     const std::vector<int64_t>& receive_counts, Text group) {
  return exchange_rows_op(x, text_of_counts(send_counts), text_of_counts(receive_counts), group);
}
Tensor ring_shift(const Tensor& x, int64_t by, Text group) {
  return ring_shift_op(x, by, group);
}

void send(const Tensor& x, int64_t to, Text group) {
  Group& g = distributed::group(group);
  check(rank_in("send", to, g) != g.rank(), "send", "a rank cannot send to itself");
  const Tensor own = x.detach().contiguous();
  g.message(x.device(), call_text("message", {}, x), [&](Collectives& c) {
    c.send(own.raw_data(), static_cast<size_t>(own.nbytes()), static_cast<int>(to));
  });
}
Tensor receive(const Tensor& like_this, int64_t from, Text group) {
  Group& g = distributed::group(group);
  check(rank_in("receive", from, g) != g.rank(), "receive", "a rank cannot receive from itself");
  Tensor y = empty(like(like_this).with_shape(like_this.shape()));
  g.message(y.device(), call_text("message", {}, y), [&](Collectives& c) {
    c.receive(y.raw_data(), static_cast<size_t>(y.nbytes()), static_cast<int>(from));
  });
  return y;
}
void barrier(Text group) {
  distributed::group(group).barrier();
}

}  // namespace strata::distributed
