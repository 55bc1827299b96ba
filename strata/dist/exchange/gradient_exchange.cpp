#include "strata/dist/gradient_exchange.h"

#include <algorithm>
#include <chrono>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/core/placement.h"
#include "strata/cuda/graph.h"
#include "strata/cuda/runtime.h"
#include "strata/dist/exchange/exchange_inl.h"
#include "strata/dist/parts_inl.h"
#include "strata/memory/allocator.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/view/view.h"

namespace strata::distributed {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point t) {
  return std::chrono::duration<double>(Clock::now() - t).count();
}

}  // namespace

GradientExchange::GradientExchange(const ExchangeRecord& record, const Parameters& parameters, Group& group,
                                   const ExchangeOptions& options)
    : record_(record), group_(group), options_(options) {
  record.check(options);
  Parameters trained;
  for (const auto& [name, t] : parameters) {
    if (!t.requires_grad()) continue;
    strata::check(!is_placed(t), record.name, name, " lies in parts on several ranks: whole gradients are exchanged");
    if (trained.empty()) device_ = t.device();
    strata::check<DeviceError>(t.device() == device_, record.name, name, " is on ", t.device(), ", ", trained.empty() ? name : trained[0].first,
                       " on ", device_, ": all parameters of a rank must be on one device");
    trained.emplace_back(name, t);
    parameters_.push_back({name, t});
  }
  check_same_parameters(record.name, trained, group);
  broadcast_parameters(trained, group);
}

void GradientExchange::finish(double max_norm) {
  const NoGrad guard;
  const auto begin = Clock::now();
  before_ = sent_;
  exchange(max_norm);
  seconds_ = seconds_since(begin);
  step_sent_ = sent_ - before_;
}

void GradientExchange::updated() {
  const NoGrad guard;
  const auto begin = Clock::now();
  after_update();
  seconds_ += seconds_since(begin);
  step_sent_ = sent_ - before_;
}

std::map<std::string, Tensor> GradientExchange::state_dict() {
  std::map<std::string, Tensor> all;
  for (const State& s : states()) all[s.own ? cat("rank-", group_.rank(), ".", s.name) : s.name] = s.tensor;
  return all;
}

void GradientExchange::load(const std::map<std::string, Tensor>& state, bool own) {
  const NoGrad guard;
  std::vector<std::pair<Tensor, Tensor>> copies;
  for (const State& s : states()) {
    if (s.own && !own) continue;
    const std::string name = s.own ? cat("rank-", group_.rank(), ".", s.name) : s.name;
    const auto found = state.find(name);
    strata::check(found != state.end(), record_.name, "the state has no '", name, "'");
    strata::check<ShapeError>(found->second.shape() == s.tensor.shape(), record_.name, name, " is ", found->second, ", wanted ",
                      s.tensor.shape());
    copies.emplace_back(s.tensor, found->second);
  }
  for (const auto& [to, from] : copies) copy_elements(to, from.to(to.device()).to(to.dtype()));
  loaded();
}

void GradientExchange::load_state_dict(const std::map<std::string, Tensor>& state) {
  load(state, true);
}
void GradientExchange::load_common_state(const std::map<std::string, Tensor>& state) {
  load(state, false);
}

double GradientExchange::plain_bytes() const {
  int64_t bytes = 0;
  for (const Parameter& p : parameters_) bytes += p.tensor.nbytes();
  return exchange::ring_bytes(static_cast<double>(bytes), ranks());
}

double GradientExchange::plain_seconds() {
  constexpr int64_t kPiece = int64_t{25} << 20, kPieces = 4;
  int64_t bytes = 0;
  for (const Parameter& p : parameters_) bytes += p.tensor.nbytes();
  const int64_t piece = std::min(bytes, kPiece) / 4, pieces = std::min(kPieces, (bytes + kPiece - 1) / kPiece);
  if (piece == 0) return 0;
  const Tensor room = exchange::zeros_on(device_, {piece});
  const auto send = [&] {
    group_.run(device_, cat("gradients as they are [", piece, "]"),
               [&](Collectives& c) { c.all_reduce(Tensor(room).raw_data(), piece, DType::f32, Reduction::avg); });
    if (device_.is_cuda()) cuda::synchronize(device_.index);
  };
  send();  // connects
  const auto begin = Clock::now();
  for (int64_t i = 0; i < pieces; ++i) send();
  return seconds_since(begin) * static_cast<double>(bytes) / static_cast<double>(4 * piece * pieces);
}

void GradientExchange::mean_of_ranks(const Tensor& flat, const std::string& what) {
  Tensor t = flat;
  if (t.numel() == 0) return;
  group_.run(device_, cat(record_.name, " ", what, " ", t.dtype(), " ", t.shape()),
             [&](Collectives& c) { c.all_reduce(t.raw_data(), t.numel(), t.dtype(), Reduction::avg); });
  count(exchange::reduced_bytes(t.numel(), static_cast<int64_t>(size_of(t.dtype())), ranks(), group_.rank(),
                                device_.is_cpu()));
}

Tensor GradientExchange::to_ranks(const Tensor& parts, const std::string& what) {
  Tensor in = parts.contiguous(), out = empty(TensorMeta{in.shape(), in.dtype(), device_, std::nullopt});
  const std::vector<size_t> bytes(static_cast<size_t>(ranks()), static_cast<size_t>(in.nbytes() / ranks()));
  group_.run(device_, cat(record_.name, " ", what, " ", in.dtype(), " ", in.shape()),
             [&](Collectives& c) { c.all_to_all(out.raw_data(), bytes, in.raw_data(), bytes); });
  count(in.nbytes() / ranks() * (ranks() - 1));
  return out;
}

Tensor GradientExchange::from_ranks(const Tensor& own, const std::string& what) {
  Tensor in = own.contiguous();
  Shape shape{ranks()};
  for (int i = 0; i < in.dim(); ++i) shape.push_back(in.size(i));
  Tensor out = empty(TensorMeta{shape, in.dtype(), device_, std::nullopt});
  group_.run(device_, cat(record_.name, " ", what, " ", in.dtype(), " ", in.shape()), [&](Collectives& c) {
    c.all_gather(out.raw_data(), in.raw_data(), static_cast<size_t>(in.nbytes()));
  });
  count(in.nbytes() * (ranks() - 1));
  return out;
}

std::unique_ptr<GradientExchange> make_exchange(std::string_view name, const GradientExchange::Parameters& parameters,
                                                Group& group, const ExchangeOptions& options) {
  return exchange_record(name).make(parameters, group, options);
}

namespace exchange {

double ring_bytes(double bytes, int64_t ranks) {
  return 2 * bytes * static_cast<double>(ranks - 1) / static_cast<double>(ranks);
}

Tensor zeros_on(Device device, const Shape& shape, DType dtype) {
  const Tensor t = empty(TensorMeta{shape, dtype, device, std::nullopt});
  fill_elements(t, 0);
  return t;
}

std::vector<Bucket> make_buckets(const std::vector<int64_t>& numels, int64_t multiple) {
  std::vector<Bucket> all;
  for (size_t i = 0; i < numels.size(); ++i) {
    if (all.empty() || (all.back().numel > 0 && all.back().numel + numels[i] > kBucket)) all.emplace_back();
    Bucket& b = all.back();
    b.members.push_back(i);
    b.offsets.push_back(b.numel);
    b.numel += numels[i];
  }
  for (Bucket& b : all) b.padded = (b.numel + multiple - 1) / multiple * multiple;
  return all;
}

}  // namespace exchange

}  // namespace strata::distributed
