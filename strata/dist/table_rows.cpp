#include "strata/dist/table_rows_inl.h"

#include <algorithm>
#include <utility>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/cuda/graph.h"
#include "strata/dist/parts_inl.h"
#include "strata/memory/allocator.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/embedding/embedding.h"
#include "strata/ops/embedding/table_gradient_inl.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/index/index.h"
#include "strata/ops/join/join.h"
#include "strata/ops/view/view.h"

namespace strata::distributed {
namespace {

constexpr std::string_view kOp = "embedding";  // as which users know it

// Neither recorded nor observed: what calls again is nobody's to make, and parts are no parameters to watch.
struct Plainly {
  strata::detail::ThreadModeScope mode{{false, 0}};
  memory::TierScope tier{Tier()};
};

size_t place_of(const std::vector<int>& ranks, int rank) {
  return static_cast<size_t>(std::ranges::find(ranks, rank) - ranks.begin());
}

// In which sums are taken.
DType wide(DType dtype) {
  return dtype == DType::f64 ? dtype : DType::f32;
}

}  // namespace

TableRows::TableRows(std::string name, Tensor part, int64_t rows, Group& group, Group& all, const std::string& axis,
                     const std::string& replicas)
    : name_(std::move(name)), part_(std::move(part)), rows_(rows), group_(group), all_(all) {
  const int64_t each = rows / group.size(), more = rows % group.size();
  first_ = group.rank() * each + std::min<int64_t>(group.rank(), more);
  if (replicas.empty()) {
    order_.emplace_back();
    for (int r = 0; r < group.size(); ++r)
      order_[0].push_back(place_of(all.ranks(), group.ranks()[static_cast<size_t>(r)]));
    return;
  }
  const Mesh grid = mesh();
  const std::vector<int> copies = grid.ranks_of(replicas, rank());
  own_ = place_of(copies, rank());
  for (const int of : copies) {
    order_.emplace_back();
    for (const int r : grid.ranks_of(axis, of)) order_.back().push_back(place_of(all.ranks(), r));
  }
}

std::vector<int64_t> TableRows::agree(int64_t own, size_t number) {
  const auto rank = static_cast<size_t>(all_.rank());
  if (cuda::capturing()) {
    check<DeviceError>(number < counts_.size() && counts_[number][rank] == own, kOp, own, " rows of ", name_,
                       " are looked up in a call that asked for others before: a step must have run before one is "
                       "captured in a CUDA graph");
    return counts_[number];
  }
  std::vector<int64_t> counts(static_cast<size_t>(all_.size()));
  all_.run(cat("how many rows of ", name_),
           [&](Communicator& c) { c.all_gather(counts.data(), &own, sizeof(int64_t)); });
  if (counts_.size() <= number) counts_.resize(number + 1);
  counts_[number] = counts;
  return counts;
}

bool TableRows::pays(const std::vector<int64_t>& counts) const {
  return 2 * static_cast<int64_t>(counts.size()) * std::ranges::max(counts) < rows_;
}

TableRows::Asked TableRows::ask(const Tensor& ids, std::vector<int64_t> counts) const {
  const Plainly plainly;
  const Tensor own = ids.to(DType::i64).contiguous().view({ids.numel()});
  if (own.device().is_cpu()) {
    const auto* const at = static_cast<const int64_t*>(own.raw_data());
    for (int64_t i = 0; i < own.numel(); ++i)
      check<IndexError>(at[i] >= 0 && at[i] < rows_, kOp, "index ", at[i], " at position ", i,
                        " is out of range for a table of ", rows_, " rows");
  }
  Asked asked{.counts = std::move(counts)};
  asked.most = std::ranges::max(asked.counts);
  asked.ids = empty(TensorMeta{{all_.size(), asked.most}, DType::i64, part_.device(), std::nullopt});
  if (asked.most == 0) return asked;
  const Tensor mine = asked.ids.narrow(0, all_.rank(), 1).view({asked.most});
  if (own.numel() < asked.most) fill_elements(mine, 0);
  copy_elements(mine.narrow(0, 0, own.numel()), own);
  all_.run(part_.device(), cat("ids of ", name_, " [", all_.size(), ", ", asked.most, "]"), [&](Collectives& c) {
    c.all_gather(asked.ids.raw_data(), mine.raw_data(), static_cast<size_t>(asked.most) * sizeof(int64_t));
  });
  return asked;
}

Tensor TableRows::look_up(const Asked& asked) const {
  const Plainly plainly;
  const int64_t dim = part_.size(1), rows = part_.size(0), ranks = group_.size();
  const TensorMeta one{{asked.most, dim}, part_.dtype(), part_.device(), std::nullopt};
  Tensor found = empty(one);
  if (asked.most > 0) {
    TensorList of;
    for (const size_t r : order_[own_]) of.push_back(asked.ids.narrow(0, static_cast<int64_t>(r), 1));
    const Tensor ids = cat(of, 0).view({ranks * asked.most});
    // What others have is -0 here, which adds nothing to any number, -0 included, whatever lies in the part.
    Tensor mine;
    if (rows == 0) {
      mine = empty(TensorMeta{{ranks * asked.most, dim}, one.dtype, one.device, std::nullopt});
      fill_elements(mine, -0.0);
    } else {
      const Tensor local = ids - first_, held = local.clamp(0, rows - 1), own = eq(local, held);
      // What is in no part stays what it is on a card, for the kernel to tell of.
      const Tensor at = ids.device().is_cuda() ? where(logical_or(ids < 0, ids >= rows_), ids, held) : held;
      mine = masked_fill(embedding(at, part_), logical_not(own).unsqueeze(-1), -0.0);
    }
    group_.run(part_.device(), cat("rows of ", name_, " ", one.dtype, " [", ranks * asked.most, ", ", dim, "]"),
               [&](Collectives& c) {
                 c.reduce_scatter(found.raw_data(), mine.raw_data(), found.numel(), one.dtype, Reduction::sum);
               });
  }
  return found.narrow(0, 0, asked.counts[static_cast<size_t>(all_.rank())]);
}

// All ranks' gradients of a call's rows, [ranks, most, D].
Tensor TableRows::gathered(const Given& given) const {
  const int64_t most = given.asked->most, dim = part_.size(1);
  const Tensor all = empty(TensorMeta{{all_.size(), most, dim}, part_.dtype(), part_.device(), std::nullopt});
  if (most == 0) return all;
  const Tensor mine = all.narrow(0, all_.rank(), 1).view({most, dim});
  const int64_t own = given.asked->counts[static_cast<size_t>(all_.rank())];
  if (!given.gradient.defined() || own < most) fill_elements(mine, 0);
  if (given.gradient.defined()) copy_elements(mine.narrow(0, 0, own), given.gradient);
  all_.run(part_.device(),
           cat("gradients of rows of ", name_, " ", all.dtype(), " [", all_.size() * most, ", ", dim, "]"),
           [&](Collectives& c) { c.all_gather(all.raw_data(), mine.raw_data(), static_cast<size_t>(mine.nbytes())); });
  return all;
}

// What rank r of `all` gives this rank's rows. Its others go to a row behind them.
Tensor TableRows::of_rank(std::span<const Given> calls, const std::vector<Tensor>& all, size_t r) const {
  const int64_t rows = part_.size(0), dim = part_.size(1), at = static_cast<int64_t>(r);
  Tensor sum;
  for (size_t c = 0; c < calls.size(); ++c) {
    const TableRows::Asked& asked = *calls[c].asked;
    const std::optional<int64_t> padding = calls[c].padding;
    std::optional<int64_t> skipped;
    if (padding && *padding >= first_ && *padding < first_ + rows) skipped = *padding - first_;
    const int64_t count = asked.counts[r];
    const Tensor local = asked.ids.narrow(0, at, 1).view({asked.most}).narrow(0, 0, count) - first_;
    const Tensor held = where(logical_and(local >= 0, local < rows), local, rows);
    const Tensor gradient = all[c].narrow(0, at, 1).view({asked.most, dim}).narrow(0, 0, count);
    // As autograd adds up those of several calls (the record of embedding).
    if (sum.defined() && !padding)
      index_add_(sum, 0, held, gradient);
    else if (sum.defined())
      sum.add_(strata::detail::table_gradient(gradient, held, rows + 1, skipped));
    else
      sum = strata::detail::table_gradient(gradient, held, rows + 1, skipped);
  }
  return sum.narrow(0, 0, rows);
}

Tensor TableRows::gradient(std::span<const Given> calls) const {
  const Plainly plainly;
  const memory::TagScope tag(memory::Tag::gradient);
  std::vector<Tensor> all;
  for (const Given& g : calls) all.push_back(gathered(g));
  const DType dtype = part_.dtype(), sums = wide(dtype);
  // The average over ranks of `n` tensors, rounded once: what reduce_scatter and all_reduce give on the host.
  const auto average = [&](size_t n, const auto& each) {
    Tensor sum;
    for (size_t i = 0; i < n; ++i) {
      const Tensor next = each(i).to(sums);
      if (sum.defined())
        sum.add_(next);
      else
        sum = next;  // nobody else's
    }
    if (n > 1) sum = sum / Scalar(static_cast<int64_t>(n));
    return sum.to(dtype);
  };
  return average(order_.size(), [&](size_t k) {
    return average(order_[k].size(), [&](size_t a) { return of_rank(calls, all, order_[k][a]); });
  });
}

std::vector<uint8_t> TableRows::largest(std::vector<uint8_t> values) {
  if (cuda::capturing()) {
    check<DeviceError>(largest_.size() == values.size(), kOp, "gradients of rows of ", name_,
                       " are new: a step must have run before one is captured in a CUDA graph");
    return largest_;
  }
  all_.run(cat("which gradients of ", name_), [&](Communicator& c) {
    c.all_reduce(values.data(), static_cast<int64_t>(values.size()), DType::u8, Reduction::max);
  });
  return largest_ = std::move(values);
}

}  // namespace strata::distributed
