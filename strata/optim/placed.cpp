// Sharded parameters: parts, norms of the whole, and rules that look at more than a rank has.

#include <algorithm>
#include <cmath>
#include <set>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/core/placement.h"
#include "strata/cuda/graph.h"
#include "strata/cuda/magnitudes.h"
#include "strata/dist/group.h"
#include "strata/memory/allocator.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/view/view.h"
#include "strata/optim/grad_parts_inl.h"
#include "strata/optim/optimizer.h"
#include "strata/optim/record.h"
#include "strata/optim/whole_squares_inl.h"

namespace strata::optim {
namespace {

// The axes over which some parameters lie, and how many ranks they have.
class Axes {
 public:
  Axes(const TensorList& params, const std::string& more) : more_(more) {
    for (const Tensor& p : params)
      if (is_placed(p))
        for (const MeshPlace::Axis& a : layout_of(p)->mesh->axes) take(a.name);
    const std::string own = names_.contains("world") ? "world" : joined();
    if (!own.empty()) ranks_ = distributed::group(own).size();
  }
  // As groups are named; "" where there is nothing to communicate.
  std::string group() const {
    if (names_.contains("world")) return "world";
    const std::string s = joined();
    return more_.empty() ? s : cat(s, s.empty() ? "" : "+", more_);
  }
  // How many of them have the elements that this rank has of `p`.
  double copies(const Tensor& p) const {
    int parts = 1;
    if (is_placed(p)) {
      const Layout& l = *layout_of(p);
      for (size_t a = 0; a < l.placements.size(); ++a)
        if (l.placements[a].is_shard()) parts *= l.mesh->axes[a].size;
    }
    return static_cast<double>(ranks_) / parts;
  }

 private:
  // Several axes of the mesh may be one of a tensor's ("ep+tp"), and others of another's.
  void take(std::string_view axis) {
    while (!axis.empty()) {
      const size_t end = std::min(axis.find('+'), axis.size());
      names_.emplace(axis.substr(0, end));
      axis.remove_prefix(std::min(end + 1, axis.size()));
    }
  }
  std::string joined() const {
    std::string s;
    for (const std::string& name : names_) s += cat(s.empty() ? "" : "+", name);
    return s;
  }

  std::string more_;
  std::set<std::string> names_;
  int ranks_ = 1;
};

bool is_cut(const Tensor& p) {
  const std::vector<Placement>& all = layout_of(p)->placements;
  return std::ranges::any_of(all, [](const Placement& a) { return a.is_shard(); });
}

Tensor whole_of(const Tensor& part, const Tensor& like) {
  const Layout& from = *layout_of(like);
  return strata::detail::placement_room().relay(part, like.shape(), from,
                                                {from.mesh, std::vector<Placement>(from.placements.size())});
}

}  // namespace

std::optional<Device> device_of_all(std::span<const Slab> slabs) {
  if (slabs.empty() || !slabs[0].device.is_cuda()) return {};
  for (const Slab& s : slabs)
    if (!(s.device == slabs[0].device)) return {};
  return slabs[0].device;
}

Tensor gradient_part(const Tensor& param) {
  const Tensor g = param.grad();
  if (!g.defined() || !(is_placed(param) || is_placed(g))) return g;
  const NoGrad guard;
  const Tensor lying = strata::detail::as_leaf_lies(g.detach(), param);
  if (!is_placed(param)) return lying;
  if (is_placed(g) && *layout_of(g) == *layout_of(lying)) return local_part(g).detach();
  Tensor(param).set_grad(lying);
  return local_part(lying).detach();
}

Tensor part_of(const Tensor& t, const Tensor& like) {
  if (!is_placed(like)) return is_placed(t) ? strata::detail::placement_room().whole(t.detach()) : t;
  const Layout& to = *layout_of(like);
  const Layout whole{to.mesh, std::vector<Placement>(to.placements.size())};
  return contiguous(strata::detail::placement_room().relay(is_placed(t) ? local_part(t).detach() : t.detach(),
                                                           t.shape(), is_placed(t) ? *layout_of(t) : whole, to));
}

Tensor lying_as(const Tensor& part, const Tensor& like) {
  TensorMeta whole = part.meta();
  whole.shape = like.shape();
  whole.strides = std::nullopt;
  return strata::detail::place(part, whole, layout_of(like));
}

GradParts::GradParts(const TensorList& params, bool writable, std::string_view op, const std::string& more) {
  const Axes axes(params, more);
  group_ = axes.group();
  for (const Tensor& p : params) {
    Tensor g = gradient_part(p);
    if (!g.defined() || g.is_meta()) continue;
    g = writable ? g.detach() : contiguous(g.detach());
    check<ShapeError>(g.is_contiguous(), op, "needs row-major gradients; one of shape ", g.shape(), " has strides ",
                      g.strides());
    check<DTypeError>(is_floating(g.dtype()), op, "takes floating gradients, got ", g);
    keep_.push_back(g);
    given.push_back(is_placed(p) ? p.grad() : g);
    copies_.push_back(axes.copies(p));
    // What is only read is brought near by who reads it.
    const bool away = !writable && g.storage()->backend().bytes == memory::Bytes::movable;
    if (!away) pins_.hold(g, writable ? Access::write : Access::read);
    slabs.push_back(
        {.grad = away ? nullptr : g.raw_data(), .numel = g.numel(), .grad_dtype = g.dtype(), .device = g.device()});
    if (away || (t_mode.unusual & kObserved))
      slabs.back().tensors = std::make_shared<SlabTensors>(SlabTensors{.grad = g});
  }
}

template <class F>
void GradParts::for_copies(F&& sum) const {
  for (const double n : std::set<double>(copies_.begin(), copies_.end())) {
    std::vector<Slab> same;
    for (size_t i = 0; i < slabs.size(); ++i)
      if (copies_[i] == n) same.push_back(slabs[i]);
    sum(same, n);
  }
}

GradParts::Seen GradParts::look(double loss) const {
  if (group_.empty()) return {sum_of_squares(slabs), loss};
  // One message for both: whoever has a number that is not finite makes the sum so everywhere.
  double seen[2] = {0, loss};
  for_copies([&](const std::vector<Slab>& same, double copies) { seen[0] += sum_of_squares(same) / copies; });
  distributed::group(group_).run("squares of gradients, loss", [&](distributed::Communicator& c) {
    c.all_reduce(seen, 2, DType::f64, distributed::Reduction::sum);
  });
  return {seen[0], std::isfinite(seen[1]) ? loss : std::nan("")};
}

GradParts::OnDevice GradParts::look_on_device(const Tensor& loss) const {
  const Device device = *only_device();
  if (group_.empty()) return {sum_of_squares_cuda(slabs, device), loss};
  const Tensor seen = empty({{2}, DType::f64, device, std::nullopt});
  fill_elements(seen, 0);
  Tensor squares = seen.narrow(0, 0, 1), losses = seen.narrow(0, 1, 1);
  for_copies([&](const std::vector<Slab>& same, double copies) {
    squares.add_(sum_of_squares_cuda(same, device).reshape({1}) / copies);
  });
  if (loss.defined()) losses.copy_(loss.detach().reshape({1}));
  distributed::group(group_).run(device, "squares of gradients, loss", [&](distributed::Collectives& c) {
    c.all_reduce(seen.raw_data(), 2, DType::f64, distributed::Reduction::sum);
  });
  // Nothing is added but what is not finite.
  const Tensor same = loss.defined() ? loss.detach().reshape({1}).to(DType::f64) + losses * 0.0 : Tensor();
  return {squares.clone(), same};
}

WholeSquares::WholeSquares(std::vector<Gradient> gradients, const std::string& group)
    : gradients_(std::move(gradients)), group_(group) {
  const auto ranks = static_cast<size_t>(distributed::group(group).size());
  for (const Gradient& g : gradients_)
    check(g.begins.size() == ranks + 1, "WholeSquares", "a gradient of shape ", g.whole.shape(), " has ",
          g.begins.size(), " places, wanted one for each of the ", ranks, " ranks of '", group, "' and the end");
}

namespace {
// What of WholeSquares is to be added up, where its chunks' sums go, and which of them several ranks have a part of.
struct Summand {
  const WholeSquares::Gradient* of = nullptr;
  Tensor gradient;  // this rank's elements, one behind the other; undefined where there are none
  double copies = 1;
  int64_t at = 0;
  std::set<int64_t> shared;
};
}  // namespace

Tensor WholeSquares::sum() const {
  const NoGrad guard;
  const memory::TagScope tag(memory::Tag::workspace);
  distributed::Group& group = distributed::group(group_);
  const auto rank = static_cast<size_t>(group.rank());
  TensorList wholes;
  for (const Gradient& g : gradients_) wholes.push_back(g.whole);
  const Axes axes(wholes, "");
  std::vector<Summand> all;
  Device device;
  for (const Gradient& g : gradients_) {
    Summand s{.of = &g, .copies = axes.copies(g.whole)};
    Tensor part = g.of.defined() ? gradient_part(g.of) : Tensor();
    if (part.defined()) {
      device = part.device();
      s.gradient = contiguous(part.detach()).reshape({part.numel()});
    }
    all.push_back(std::move(s));
  }
  // The order of sum_of_squares(): on cards by dtype, without what has no gradient.
  constexpr DType kOrder[] = {DType::f32, DType::bf16, DType::f16, DType::f64};
  if (device.is_cuda()) {
    std::erase_if(all, [](const Summand& s) { return !s.gradient.defined(); });
    std::ranges::stable_sort(all, {}, [&](const Summand& s) { return std::ranges::find(kOrder, s.gradient.dtype()); });
  }
  std::ranges::stable_sort(all, {}, &Summand::copies);

  const int64_t chunk = device.is_cuda() ? cuda::kParameterChunk : kHostSquareChunk;
  int64_t chunks = 0;
  for (Summand& s : all) {
    const std::vector<int64_t>& begins = s.of->begins;
    s.at = chunks;
    chunks += square_parts(begins.back(), device);
    for (const int64_t b : begins)
      if (b % chunk != 0 && b < begins.back()) s.shared.insert(b / chunk);
  }
  const Tensor sums = empty({{chunks}, DType::f64, device, std::nullopt});
  fill_elements(sums, 0.0);
  auto* const to = static_cast<double*>(sums.raw_data());
  const auto square = [&](const Tensor& elements, double* into) {
    const strata::Pin pin(elements, Access::read);
    squares_of({.grad = elements.raw_data(),
                .numel = elements.numel(),
                .grad_dtype = elements.dtype(),
                .device = elements.device()},
               into);
  };
  for (const DType dtype : kOrder) {
    int64_t shared = 0;
    for (const Summand& s : all)
      if (s.gradient.defined() && s.gradient.dtype() == dtype)
        for (const int64_t c : s.shared) shared += std::min(chunk, s.of->begins.back() - c * chunk);
    Tensor together;
    if (shared > 0) {
      together = empty({{shared}, dtype, device, std::nullopt});
      fill_elements(together, 0.0);
    }
    // What others are to square, too; then what lies among this rank's elements.
    int64_t offset = 0;
    for (const Summand& s : all) {
      if (!s.gradient.defined() || s.gradient.dtype() != dtype) continue;
      const int64_t n = s.of->begins.back(), begin = s.of->begins[rank], end = s.of->begins[rank + 1];
      for (const int64_t c : s.shared) {
        const int64_t first = c * chunk, size = std::min(chunk, n - first);
        const int64_t from = std::max(begin, first), until = std::min(end, first + size);
        if (from < until)
          copy_elements(together.narrow(0, offset + from - first, until - from),
                        s.gradient.narrow(0, from - begin, until - from));
        offset += size;
      }
      const int64_t own = (begin + chunk - 1) / chunk, behind = end == n ? (n + chunk - 1) / chunk : end / chunk;
      if (begin < end && own < behind)
        square(s.gradient.narrow(0, own * chunk - begin, std::min(behind * chunk, n) - own * chunk), to + s.at + own);
    }
    if (shared == 0) continue;
    group.run(device, cat("chunks of gradients that ranks share ", dtype, " [", shared, "]"),
              [&](distributed::Collectives& c) {
                c.all_reduce(together.raw_data(), shared, dtype, distributed::Reduction::sum);
              });
    offset = 0;
    for (const Summand& s : all) {
      if (!s.gradient.defined() || s.gradient.dtype() != dtype) continue;
      for (const int64_t c : s.shared) {
        const int64_t first = c * chunk, size = std::min(chunk, s.of->begins.back() - first);
        if (s.of->begins[rank] <= first && first < s.of->begins[rank + 1])
          square(together.narrow(0, offset, size), to + s.at + c);
        offset += size;
      }
    }
  }
  group.run(device, cat("squares of gradients [", chunks, "]"), [&](distributed::Collectives& c) {
    c.all_reduce(sums.raw_data(), chunks, DType::f64, distributed::Reduction::sum);
  });

  Tensor total;
  for (size_t i = 0, next = 0; i < all.size(); i = next) {
    while (next < all.size() && all[next].copies == all[i].copies) ++next;
    const int64_t end = next < all.size() ? all[next].at : chunks;
    const Tensor same = total_of(sums.narrow(0, all[i].at, end - all[i].at)) / all[i].copies;
    total = total.defined() ? total + same : same;
  }
  if (!total.defined()) return empty({Shape{}, DType::f64, device, std::nullopt}).fill_(0.0);
  if (const std::string other = axes.group(); !other.empty())
    distributed::group(other).run(device, "squares of gradients", [&](distributed::Collectives& c) {
      c.all_reduce(total.raw_data(), 1, DType::f64, distributed::Reduction::sum);
    });
  return total;
}

GradParts Optimizer::gradients_of(const TensorList& holders, bool writable) const {
  return {norm_of_.empty() || writable ? holders : norm_of_, writable, name_, norm_group_};
}

void Optimizer::check_sharded(const Param& p) const {
  const std::string placements = text_of(layout_of(p.sharded)->placements);
  const auto wrong = [&](std::string_view why) {
    throw ValueError(name_, cat("parameter '", p.name, "' is sharded (", placements, "): ", why));
  };
  for (const Placement& a : layout_of(p.sharded)->placements)
    if (a.is_partial()) wrong("a sum that is still to be taken is no parameter");
  if (!local_part(p.sharded).is_contiguous()) wrong("this rank's part must be row-major");
  if (!is_cut(p.sharded)) return;
  if (!record_) wrong("this optimizer has no record that says what its rule looks at together");
  if (p.low.stochastic_rounding && p.tensor.dtype() == DType::bf16)
    wrong("stochastic_rounding draws by the place in one array; master_weights or compensated_weights keep as much");
  if (p.low.state_8bit && p.shape().product() >= p.low.min_8bit_size)
    wrong("state_8bit has scales of blocks of one array, which parts would cut; low_state goes with it");
}

bool Optimizer::is_gathered(const Param& p) const {
  using Unit = OptimizerRecord::Unit;
  if (!p.sharded.defined() || !record_ || !record_->unit || !is_cut(p.sharded)) return false;
  const Unit unit = record_->unit(raw_options(p.group), p.shape().size());
  if (unit != Unit::row) return unit == Unit::whole;
  return std::ranges::any_of(layout_of(p.sharded)->placements,
                             [](const Placement& a) { return a.is_shard() && a.dim != 0; });
}

void Optimizer::update_gathered(Param& p, double grad_scale) {
  check(!cuda::capturing(), name_, "'", p.name, "' is gathered for its update, which cannot be captured");
  const std::vector<StateSpec> spec = full_spec(p);
  Param all = p;
  all.sharded = {};
  all.renews_low = false;
  {
    memory::TagScope tag(memory::Tag::workspace);
    all.tensor = whole_of(p.tensor, p.sharded);
    all.grad = whole_of(p.grad, p.sharded);
    for (size_t i = 0; i < spec.size(); ++i)
      if (spec[i].lies) all.state[i] = whole_of(p.state[i], p.sharded);
  }
  update({&all}, grad_scale);
  copy_elements(p.tensor.detach(), part_of(all.tensor, p.sharded));
  for (size_t i = 0; i < spec.size(); ++i)
    if (spec[i].lies) copy_elements(p.state[i], part_of(all.state[i], p.sharded));
}

StateDict Optimizer::readable_state(const StateDict& given) const {
  if (std::ranges::none_of(given, [](const auto& entry) { return is_placed(entry.second); })) return given;
  // Only what lies as a parameter can be cut, and only in one tensor.
  std::set<std::string> lying;
  for (const Param& p : params_)
    for (const StateSpec& s : full_spec(p))
      if (s.lies && s.dtype != DType::u8) lying.insert(cat(p.name, '.', s.key));
  StateDict state = given;
  for (auto& [key, t] : state)
    if (is_placed(t) && (t.dtype() == DType::u8 || !lying.contains(key)))
      t = strata::detail::placement_room().whole(t.detach());
  return state;
}

}  // namespace strata::optim
