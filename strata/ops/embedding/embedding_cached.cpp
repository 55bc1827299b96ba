// The record of a lookup through a cache of rows: what nn::FeatureTable gathers with.

#include <algorithm>
#include <cstring>
#include <vector>

#include "strata/core/op.h"
#include "strata/core/parallel.h"
#include "strata/core/samples.h"
#include "strata/ops/embedding/embedding_cached_kernel.h"

namespace strata {
namespace {
using Rows = std::tuple<Tensor, Tensor>;

constexpr std::string_view kName = "embedding_cached";

void embedding_cached_cpu(Tensor& y, Tensor& hits, const Tensor& indices, const Tensor& table, const Tensor& cache,
                          const Tensor& slots) {
  const Tensor index = indices.contiguous(), rows = table.contiguous(), near = cache.contiguous(),
               at = slots.contiguous();
  const auto* i = index.data<int64_t>();
  const auto* slot = at.data<int32_t>();
  const int64_t n = index.numel(), size = table.size(0), bytes = table.size(1) * size_of(table.dtype());
  const auto cached = [&](int64_t row) { return slot[row] >= 0 && slot[row] < cache.size(0); };
  int64_t found = 0;
  for (int64_t k = 0; k < n; ++k) {
    check<IndexError>(i[k] >= 0 && i[k] < size, kName, "index ", i[k], " at position ", k,
                      " is out of range for a table of ", size, " rows");
    found += cached(i[k]);
  }
  *hits.data<int64_t>() = found;
  if (n * bytes == 0) return;
  const auto *far = static_cast<const std::byte*>(rows.raw_data()),
             *kept = static_cast<const std::byte*>(near.numel() == 0 ? nullptr : near.raw_data());
  auto* to = static_cast<std::byte*>(y.raw_data());
  parallel_for(0, n, std::max<int64_t>(1, 65536 / bytes), [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k)
      std::memcpy(to + k * bytes, cached(i[k]) ? kept + slot[i[k]] * bytes : far + i[k] * bytes,
                  static_cast<size_t>(bytes));
  });
}

const Op<Rows(const Tensor&, const Tensor&, const Tensor&, const Tensor&)> embedding_cached_op{{
    .schema =
        "embedding_cached(Tensor indices, Tensor table, Tensor cache, Tensor slots) -> (Tensor rows, Tensor hits)",
    .shard = "whole",
    .internal = true,
    .doc = "Rows of table [V, D] at indices (i64, of any shape), [..., D], of which some have a copy: where slots[i] "
           "(i32 [V]) is not negative, row i is read from row slots[i] of cache [S, D]. And how many were, i64 []. "
           "Not differentiable. IndexError for an index outside the table.",
    .infer =
        [](const Tensor& indices, const Tensor& table, const Tensor& cache, const Tensor& slots) {
          check<DTypeError>(indices.dtype() == DType::i64 && slots.dtype() == DType::i32, kName,
                            "needs i64 indices and i32 slots, got ", indices, " and ", slots);
          check<ShapeError>(table.dim() == 2 && cache.dim() == 2 && cache.size(1) == table.size(1), kName,
                            "needs a table [V, D] and a cache [S, D], got ", table, " and ", cache);
          check<DTypeError>(cache.dtype() == table.dtype(), kName, "the table is ", table, ", the cache ", cache);
          check<ShapeError>(slots.dim() == 1 && slots.size(0) == table.size(0), kName, "needs a slot for each of ",
                            table.size(0), " rows, got ", slots);
          Shape s = indices.shape();
          s.push_back(table.size(1));
          return std::array{like(table).with_shape(s), like(indices).with_shape({})};
        },
    .kernels = {.cpu = embedding_cached_cpu, .cuda = STRATA_CUDA_KERNEL(embedding_cached_cuda)},
    .dtypes = kAllTypes,
    .cost =
        [](const Tensor& indices, const Tensor& table, const Tensor&, const Tensor&) {
          const double bytes = static_cast<double>(indices.numel() * table.size(1) * size_of(table.dtype()));
          return Cost{0, 2 * bytes + static_cast<double>(indices.nbytes())};
        },
    .samples =
        [](Samples& s) {
          s.add(s.integers({6}, 0, 5), s.tensor({5, 3}), s.tensor({2, 3}), s.integers({5}, -1, 2, DType::i32));
          s.add(s.integers({2, 40}, 0, 9), s.tensor({9, 67}), s.tensor({4, 67}), s.integers({9}, -4, 4, DType::i32))
              .named("long rows");
          s.add(s.integers({7}, 0, 3), s.tensor({3, 1}), s.tensor({0, 1}), s.integers({3}, -1, 0, DType::i32))
              .named("an empty cache");
          s.add(s.integers({0}, 0, 3), s.tensor({3, 2}), s.tensor({1, 2}), s.integers({3}, -1, 1, DType::i32))
              .named("no indices");
          s.invalid<IndexError>("out of range", s.integers({2}, 5, 6), s.tensor({5, 3}), s.tensor({2, 3}),
                                s.integers({5}, -1, 2, DType::i32));
          s.invalid<ShapeError>("[S, D]", s.integers({2}, 0, 5), s.tensor({5, 3}), s.tensor({2, 4}),
                                s.integers({5}, -1, 2, DType::i32));
          s.invalid<ShapeError>("a slot for each", s.integers({2}, 0, 5), s.tensor({5, 3}), s.tensor({2, 3}),
                                s.integers({4}, -1, 2, DType::i32));
          s.invalid<DTypeError>("i32 slots", s.integers({2}, 0, 5), s.tensor({5, 3}), s.tensor({2, 3}),
                                s.integers({5}, -1, 2));
          if (s.benchmarking())
            s.bench(s.integers({32768}, 0, 8192), s.tensor({8192, 512}), s.tensor({2048, 512}),
                    s.integers({8192}, -6144, 2048, DType::i32));
        },
    .reference =
        [](const Tensor& indices, const Tensor& table, const Tensor& cache, const Tensor& slots) {
          const std::vector<double> far = table.to_vector<double>(), near = cache.to_vector<double>();
          const std::vector<int64_t> slot = slots.to_vector<int64_t>();
          const int64_t d = table.size(1);
          std::vector<double> y;
          int64_t hits = 0;
          for (const int64_t i : indices.to_vector<int64_t>()) {
            const bool hit = slot[static_cast<size_t>(i)] >= 0;
            hits += hit;
            for (int64_t j = 0; j < d; ++j)
              y.push_back(hit ? near[static_cast<size_t>(slot[static_cast<size_t>(i)] * d + j)]
                              : far[static_cast<size_t>(i * d + j)]);
          }
          Shape s = indices.shape();
          s.push_back(d);
          return Rows(from_span<double>(y, s), from_span<int64_t>(std::vector<int64_t>{hits}, {}));
        },
}};

}  // namespace

std::tuple<Tensor, Tensor> embedding_cached(const Tensor& indices, const Tensor& table, const Tensor& cache,
                                            const Tensor& slots) {
  return embedding_cached_op(indices, table, cache, slots);
}

}  // namespace strata
