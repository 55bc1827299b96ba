#include "strata/train/mirror_inl.h"

#include <algorithm>
#include <vector>

#include "strata/core/backend.h"
#include "strata/core/error.h"
#include "strata/core/placement.h"
#include "strata/dist/group.h"
#include "strata/io/safetensors.h"
#include "strata/memory/allocator.h"
#include "strata/nn/fully_sharded.h"
#include "strata/ops/copy/copy.h"
#include "strata/train/run_files_inl.h"

namespace strata::detail {
namespace {

constexpr const char* kStep = "step";
constexpr const char* kMemory = "a mirror in memory";
constexpr std::string_view kPart = "part/", kWhole = "whole/";

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

Tensor on_host(const Tensor& t) {
  const memory::TierScope own{Tier()};
  return t.device().is_cpu() ? t.contiguous() : t.to(Device::cpu()).contiguous();
}

// What a rank says of one of its mirrors.
struct Has {
  int64_t step = -1, ranks = 0, rank = 0;
  uint64_t mine = 0, theirs = 0;  // bytes
};
using All = std::vector<std::array<Has, 2>>;  // by rank

// Of a rank the mirror of this step.
const Has* at_step(const All& all, size_t rank, int64_t step) {
  for (const Has& h : all[rank])
    if (h.step == step) return &h;
  return nullptr;
}

// Who gives a rank its state at a step: `own` its copy of its own, else that of the rank behind it; nobody: -1.
struct Source {
  int rank = -1;
  bool own = true;
  uint64_t bytes = 0;
};
Source source_of(const All& all, size_t rank, int64_t step, bool alike) {
  const size_t n = all.size();
  const auto as_now = [&](const Has* h, size_t r) {
    return h != nullptr && h->ranks == static_cast<int64_t>(n) && h->rank == static_cast<int64_t>(r);
  };
  const Has* const mine = at_step(all, rank, step);
  if (mine != nullptr && (alike || as_now(mine, rank))) return {static_cast<int>(rank), true, mine->mine};
  const size_t before = (rank + n - 1) % n;
  const Has* const neighbour = at_step(all, before, step);
  if (as_now(neighbour, before) && neighbour->theirs > 0) return {static_cast<int>(before), false, neighbour->theirs};
  for (size_t r = 0; alike && r < n; ++r)
    if (const Has* const h = at_step(all, r, step)) return {static_cast<int>(r), true, h->mine};
  return {};
}

// A group of all ranks that nothing else waits in: its name tells it from those of gradients.
distributed::Group& own_group() {
  const distributed::Mesh mesh = distributed::mesh();
  std::string axes;
  for (const distributed::Mesh::Axis& a : mesh.axes()) axes += (axes.empty() ? "" : "+") + a.name;
  return distributed::group(cat(axes, "+", axes, "+", axes, "+", axes));
}

}  // namespace

std::string encode_run(const RunState& state, const nn::Module& model, const optim::Optimizer& optimizer) {
  const NoGrad guard;
  io::TensorMap tensors;
  for (const auto& [file, all] : run_files(state, model, optimizer))
    for (const auto& [name, t] : all) tensors[cat(is_placed(t) ? kPart : kWhole, file, "/", name)] = on_host(here(t));
  io::Metadata texts = run_texts(state);
  texts[kStep] = std::to_string(state.step);
  return io::encode_safetensors(tensors, texts);
}

RunState decoded_state(const std::string& bytes) {
  const io::SafetensorsHeader header = io::parse_safetensors(bytes_of(bytes), kMemory);
  const auto step = header.metadata.find(kStep);
  check<IoError>(step != header.metadata.end(), "train", kMemory, " has no step");
  return run_state(header.metadata, std::stoll(step->second), kMemory);
}

void restore_run(const std::string& bytes, nn::Module& model, optim::Optimizer& optimizer) {
  const NoGrad guard;
  const RunState state = decoded_state(bytes);
  io::TensorMap found = io::read_safetensors(bytes_of(bytes), io::parse_safetensors(bytes_of(bytes), kMemory), kMemory);
  const nn::StateDict wanted = run_files(state, model, optimizer).at(kModelFile);
  for (const auto& [name, t] : wanted) {
    const auto it = found.find(cat(is_placed(t) ? kPart : kWhole, kModelFile, "/", name));
    check<IoError>(it != found.end(), "train", kMemory, " has no '", name, "' that lies as the model's");
    Tensor to = here(t);
    check<IoError>(it->second.shape() == to.shape() && it->second.dtype() == to.dtype(), "train", kMemory, " has '",
                   name, "' as ", it->second.dtype(), " ", it->second.shape(), ", the model as ", to.dtype(), " ",
                   to.shape());
    to.copy_(it->second);
    found.erase(it);
  }
  std::map<std::string, Tensor, std::less<>> parameters;
  for (const auto& [name, t] : optimizer.params()) parameters.emplace(name, t);
  const memory::TagScope tag(memory::Tag::optimizer);
  optim::StateDict states;
  for (auto& [key, t] : found) {
    const bool part = key.starts_with(kPart);
    std::string name = key.substr(part ? kPart.size() : kWhole.size());
    check<IoError>(name.starts_with(cat(kOptimizerFile, "/")), "train", kMemory, " has '", name,
                   "', for which the model has no place");
    name = name.substr(std::string_view(kOptimizerFile).size() + 1);
    const auto owner = parameters.find(std::string_view(name).substr(0, name.rfind('.')));
    check<IoError>(owner != parameters.end(), "train", kMemory, " has '", name, "' of a parameter that is not trained");
    const Tensor& p = owner->second;
    Tensor here_too = t.to(p.device());
    if (part) {
      check<IoError>(is_placed(p) && layout_of(p)->local_shape(p.shape()) == t.shape(), "train", kMemory, " has '",
                     name, "' as a part ", t.shape(), ", which is not this rank's");
      here_too = place(here_too, {p.shape(), t.dtype(), p.device()}, layout_of(p));
    }
    states.emplace(std::move(name), std::move(here_too));
  }
  optimizer.take_state_dict(std::move(states));
}

void Mirrors::begin(int64_t step, std::string bytes) {
  if (distributed::size() == 1) return;
  Mirror& m = mirrors_[0].step <= mirrors_[1].step ? mirrors_[0] : mirrors_[1];
  m.step = -1;
  m.ranks = distributed::size();
  m.rank = distributed::rank();
  m.mine = std::move(bytes);
  travels_ = true;
  // It waits for nobody: what fails is seen by the run's own collectives.
  own_group().start(cat("mirror of step ", step), [this, &m, step](distributed::Communicator& c) {
    const auto n = static_cast<size_t>(c.size()), mine = static_cast<size_t>(c.rank());
    const uint64_t size = m.mine.size();
    std::vector<uint64_t> sizes(n);
    c.all_gather(sizes.data(), &size, sizeof size);
    std::vector<size_t> out(n), in(n);
    out[(mine + 1) % n] = sizes[(mine + 1) % n];
    in[(mine + n - 1) % n] = size;
    m.theirs.resize(out[(mine + 1) % n]);
    c.all_to_all(m.theirs.data(), out, m.mine.data(), in);
    m.step = step;
    travels_ = false;
  });
}

const std::string* Mirrors::recover(bool alike) {
  if (distributed::size() == 1 && !alike) return nullptr;
  travels_ = false;  // what did was of groups that are gone
  distributed::Group& world = distributed::group("world");
  const auto n = static_cast<size_t>(world.size()), rank = static_cast<size_t>(world.rank());
  std::array<Has, 2> mine;
  for (size_t i = 0; i < 2; ++i) {
    const Mirror& m = mirrors_[i];
    if (m.step >= 0) mine[i] = {m.step, m.ranks, m.rank, m.mine.size(), m.theirs.size()};
  }
  All all(n);
  world.run("mirrors", [&](distributed::Communicator& c) { c.all_gather(all.data(), mine.data(), sizeof mine); });
  int64_t step = -1;
  for (const auto& one : all)
    for (const Has& h : one) {
      bool everybody = h.step > step;
      for (size_t r = 0; r < n && everybody; ++r) everybody = source_of(all, r, h.step, alike).rank >= 0;
      if (everybody) step = h.step;
    }
  if (step < 0) return nullptr;

  // Who has it gives it to those who have not.
  const auto mirror_at = [&](int64_t s) -> Mirror* {
    for (Mirror& m : mirrors_)
      if (m.step == s) return &m;
    return nullptr;
  };
  const Mirror* const have = mirror_at(step);
  std::vector<size_t> out(n), in(n);
  std::string sent, got;
  for (size_t r = 0; r < n; ++r) {
    const Source s = source_of(all, r, step, alike);
    if (s.rank == static_cast<int>(r)) continue;
    if (r == rank) out[static_cast<size_t>(s.rank)] = s.bytes;
    if (s.rank != static_cast<int>(rank)) continue;
    const std::string& bytes = s.own ? have->mine : have->theirs;
    in[r] = bytes.size();
    sent += bytes;
  }
  const bool needs = std::ranges::any_of(out, [](size_t b) { return b > 0; });
  for (const size_t b : out) got.resize(got.size() + b);
  world.run(cat("mirrors of step ", step),
            [&](distributed::Communicator& c) { c.all_to_all(got.data(), out, sent.data(), in); });
  if (!needs) got = have->mine;
  // Steps behind it are not the run's any more.
  for (Mirror& m : mirrors_)
    if (m.step != step) m.step = -1;
  if (n == 1) return &have->mine;
  // Beside what is kept until the new copies are there.
  const size_t free = have == &mirrors_[0] ? 1 : 0;
  mirrors_[free].step = -1;
  begin(step, std::move(got));
  return &mirrors_[free].mine;
}

}  // namespace strata::detail
