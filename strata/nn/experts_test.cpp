// Experts: values and gradients beside one token after the other in f64, capacities, losses, and experts on several
// ranks (threads here).

#include "strata/nn/experts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "strata/autograd/autograd.h"
#include "strata/core/autocast.h"
#include "strata/core/error_test_util.h"
#include "strata/core/placement.h"
#include "strata/core/rng.h"
#include "strata/dist/collectives/collectives.h"
#include "strata/dist/collectives/placed.h"
#include "strata/dist/data_parallel.h"
#include "strata/dist/rank_threads.h"
#include "strata/dist/recorder.h"
#include "strata/nn/fully_sharded_test_util.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/ops.h"
#include "strata/optim/optim.h"

namespace strata::nn {
namespace {

using distributed::Mesh;
using distributed::run_as_ranks;

constexpr int64_t kDim = 6, kTime = 16;

ExpertsSpec spec_of(double capacity, bool reroute = false) {
  return {.count = 8,
          .per_token = 2,
          .width = 5,
          .normalise = true,
          .capacity = capacity,
          .reroute = reroute,
          .balance_loss = 0.5,
          .z_loss = 0.1};
}

Experts make(const ExpertsSpec& spec, DType dtype) {
  manual_seed(11);
  Experts e(kDim, spec, Activation::silu);
  const NoGrad guard;
  init::normal_(e.router, 0, 1);  // uneven
  e.to(dtype);
  return e;
}

// The same layer, one token and expert after the other. How many choices are left out is added to `dropped`.
Tensor token_by_token(const Experts& m, const Tensor& x, Tensor& loss, int64_t& dropped) {
  const ExpertsSpec& s = m.spec();
  const Tensor rows = x.reshape({-1, kDim}), logits = matmul(rows, m.router.t()), p = softmax(logits, 1);
  const Tensor wanted = std::get<1>(topk(p, s.per_token, 1));
  const int64_t n = rows.size(0), k = s.per_token;
  Tensor experts = wanted, slots = zeros_like(wanted);
  if (s.capacity > 0) {
    const double even = static_cast<double>(kTime * k) / static_cast<double>(s.count);
    std::tie(experts, slots) =
        expert_slots(wanted, logits, kTime, static_cast<int64_t>(std::ceil(s.capacity * even)), s.reroute);
  }
  const std::vector<int64_t> at = experts.to_vector<int64_t>(), slot = slots.to_vector<int64_t>(),
                             first = wanted.to_vector<int64_t>();
  TensorList out;
  std::vector<double> counts(static_cast<size_t>(s.count));
  for (const int64_t e : first) counts[static_cast<size_t>(e)] += 1.0 / static_cast<double>(n * k);
  for (int64_t t = 0; t < n; ++t) {
    Tensor y = zeros({kDim}, x.dtype()), total = zeros({}, x.dtype());
    for (int64_t j = 0; j < k; ++j) total = total + p[t][at[static_cast<size_t>(t * k + j)]];
    for (int64_t j = 0; j < k; ++j) {
      const int64_t e = at[static_cast<size_t>(t * k + j)];
      dropped += slot[static_cast<size_t>(t * k + j)] < 0;
      if (slot[static_cast<size_t>(t * k + j)] < 0) continue;
      const Tensor both = matmul(m.gate_up[e], rows[t]);
      const Tensor inside = silu(both.narrow(0, 0, s.width)) * both.narrow(0, s.width, s.width);
      y = y + matmul(m.down[e], inside) * (p[t][e] / total);
    }
    out.push_back(y);
  }
  const Tensor share = from_span<double>(counts, {s.count});
  const Tensor z = log(sum(exp(logits), {1}));
  loss = sum(mean(p, {0}) * share) * (0.5 * static_cast<double>(s.count)) + mean(z * z) * 0.1;
  return stack(out).view(x.shape());
}

using Gradients = std::map<std::string, std::vector<double>>;

Gradients gradients_of(const Module& m, const Tensor& x) {
  Gradients g;
  for (const auto& [name, p] : m.named_parameters()) g[name] = distributed::full_tensor(p.grad()).to_vector<double>();
  g["x"] = x.grad().to_vector<double>();
  return g;
}

void expect_near(const Gradients& got, const Gradients& want, double most) {
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, w] : want) {
    double largest = 0, off = 0;
    for (size_t i = 0; i < w.size(); ++i) {
      largest = std::max(largest, std::abs(w[i]));
      off = std::max(off, std::abs(w[i] - got.at(name)[i]));
    }
    EXPECT_GT(largest, 0) << name;
    EXPECT_LE(off, most * largest) << name;
  }
}

Tensor input(int64_t batch, DType dtype) {
  manual_seed(21);
  return randn({batch, kTime, kDim}, DType::f64).to(dtype).set_requires_grad();
}

class ExpertsTraining : public testing::TestWithParam<std::pair<double, bool>> {
 protected:
  ExpertsSpec spec() const { return spec_of(GetParam().first, GetParam().second); }
};

TEST_P(ExpertsTraining, ValuesLossesAndGradientsAreThoseOfTokensOneByOneInDouble) {
  const Experts exact = make(spec(), DType::f64);
  const Tensor xs = input(3, DType::f64);
  Tensor more;
  int64_t dropped = 0;
  const Tensor want = token_by_token(exact, xs, more, dropped);
  (sum(want * want) + more).backward();
  const Gradients wanted = gradients_of(exact, xs);
  EXPECT_EQ(dropped > 0, spec().capacity > 0 && !spec().reroute) << dropped;

  for (const DType dtype : {DType::f64, DType::f32}) {
    const double most = dtype == DType::f64 ? 1e-12 : 1e-5;
    const Experts m = make(spec(), dtype);
    const Tensor x = input(3, dtype);
    Tensor loss;
    const Tensor y = m(x, &loss);
    EXPECT_LE((y.to(DType::f64) - want).abs().max().item(), most * want.abs().max().item());
    EXPECT_NEAR(loss.item(), more.item(), 10 * most);
    (sum(y * y) + loss).backward();
    expect_near(gradients_of(m, x), wanted, most);
  }
}
INSTANTIATE_TEST_SUITE_P(All, ExpertsTraining,
                         testing::Values(std::pair(0.0, false), std::pair(1.0, false), std::pair(1.0, true),
                                         std::pair(1.3, true)));

TEST(Experts, CapacitiesAreOfSequencesAndOfTrainingAlone) {
  const Experts m = make(spec_of(1.0), DType::f64), free = make(spec_of(0), DType::f64);
  const NoGrad guard;
  const Tensor x = input(3, DType::f64);
  const Tensor all = m(x);
  for (int64_t b = 0; b < 3; ++b) EXPECT_LE((m(x.narrow(0, b, 1)) - all.narrow(0, b, 1)).abs().max().item(), 1e-14);
  EXPECT_GT((free(x) - all).abs().max().item(), 1e-3);
  Experts still = m;
  still.eval();
  Tensor loss;
  EXPECT_LE((still(x, &loss) - free(x)).abs().max().item(), 1e-14);
  EXPECT_FALSE(loss.defined());
}

// 1.001 is 1 in bf16: a router in that precision takes the first of the two.
TEST(Experts, APreciseRouterIsSoUnderAutocast) {
  for (const bool precise : {true, false}) {
    const Experts m(2, {.count = 2, .per_token = 1, .width = 1, .precise_router = precise}, Activation::relu);
    const NoGrad guard;
    const auto fill = [](const Tensor& t, std::vector<float> v) { copy_elements(t, from_span<float>(v, t.shape())); };
    fill(m.router, {1, 0, 1.001f, 0});
    fill(m.gate_up, {1, 0, 1, 0, 1, 0, 1, 0});
    fill(m.down, {1, 1, -1, -1});
    const AutocastScope low;
    EXPECT_EQ(m(from_span<float>(std::vector<float>{1, 0}, {1, 2})).to_vector<float>()[0] < 0, precise);
  }
}

TEST(Experts, RefuseFactorsBelowZero) {
  ExpertsSpec s = spec_of(1);
  s.z_loss = -1;
  EXPECT_NE(message<ValueError>([&] { Experts(kDim, s, Activation::silu); }).find("z_loss -1"), std::string::npos);
}

// What `ranks` ranks with `batch` sequences each compute, beside all sequences in one process.
struct Spread {
  std::string mesh = "ep=4";
  int ranks = 4;
  std::string experts_along = "ep", batch_along = "ep";
  int64_t batch = 2;
};

Tensor rows_of(const Tensor& all, int rank, int64_t batch) {
  return all.detach().narrow(0, rank * batch, batch).clone();
}

class SpreadExperts : public testing::TestWithParam<std::tuple<int, double, bool>> {
 protected:
  Spread way() const {
    constexpr const char* kMeshes[] = {"ep=4", "dp=2 ep=2"};
    return {.mesh = kMeshes[std::get<0>(GetParam())], .batch_along = std::get<0>(GetParam()) == 0 ? "ep" : "dp+ep"};
  }
};

TEST_P(SpreadExperts, GiveValuesAndGradientsOfOneProcess) {
  const Spread w = way();
  const ExpertsSpec spec = spec_of(std::get<1>(GetParam()), std::get<2>(GetParam()));
  const Experts whole = make(spec, DType::f64);
  const Tensor x = input(w.ranks * w.batch, DType::f64);
  Tensor loss;
  const Tensor want = whole(x, &loss);
  (mean(want * want) + loss).backward();
  const double wanted_loss = loss.item();
  const Gradients gradients = gradients_of(whole, x);
  const StateDict state = whole.state_dict();

  run_as_ranks(Mesh(w.mesh), [&](int rank) {
    const init::SkipDraws copied;
    Experts m(kDim, spec, Activation::silu);
    m.to(DType::f64);
    m.load_state_dict(state);
    m.spread(w.experts_along);
    m.balance_over(w.batch_along);
    is(distributed::placements_of(m.gate_up).find("S(0)") != std::string::npos, "gate_up is whole");
    NamedTensors dense, parts;
    for (const auto& [name, p] : m.named_parameters()) (is_placed(p) ? parts : dense).emplace_back(name, p);
    is(parts.size() == 2, "parameters in parts");
    distributed::DataParallel all(dense, distributed::group(w.batch_along));
    std::optional<distributed::DataParallel> some;
    if (w.batch_along != "ep") some.emplace(parts, distributed::group("dp"));
    const Tensor own = rows_of(x, rank, w.batch).set_requires_grad();
    Tensor more;
    const Tensor y = m(own, &more);
    (mean(y * y) + more).backward();
    all.finish();
    if (some) some->finish();
    const auto off = [](const Tensor& a, const Tensor& b) { return (a - b).abs().max().item(); };
    is(off(y, rows_of(want, rank, w.batch)) < 1e-13, "values");
    const double mean_loss = distributed::all_reduce(more.detach(), "avg").item();
    is(std::abs(mean_loss - wanted_loss) < 1e-12, cat("the losses' mean is ", mean_loss, ", not ", wanted_loss));
    for (const auto& [name, p] : m.named_parameters()) {
      const std::vector<double> got = distributed::full_tensor(p.grad()).to_vector<double>();
      for (size_t i = 0; i < got.size(); ++i)
        is(std::abs(got[i] - gradients.at(name)[i]) < 1e-13, cat(name, " ", i, ": ", got[i]));
    }
    const std::vector<double> gx = own.grad().to_vector<double>();
    for (size_t i = 0; i < gx.size(); ++i)  // of the mean over this rank's rows alone
      is(std::abs(gx[i] / w.ranks - gradients.at("x")[static_cast<size_t>(rank) * gx.size() + i]) < 1e-13, "x");
  });
}
INSTANTIATE_TEST_SUITE_P(All, SpreadExperts,
                         testing::Combine(testing::Values(0, 1), testing::Values(0.0, 1.0), testing::Bool()));

// Four times the experts on four ranks, each with a quarter of them: as many a rank as one process has.
TEST(SpreadExpertsOf, FourTimesAsManyAreStillExactInF32) {
  ExpertsSpec spec = spec_of(0);
  spec.count = 32;
  const Experts whole = make(spec, DType::f32);
  const Tensor x = input(4, DType::f32);
  const Tensor want = whole(x);
  mean(want * want).backward();
  const StateDict state = whole.state_dict();
  const std::vector<float> down = whole.down.grad().to_vector<float>();
  run_as_ranks(Mesh("ep=4"), [&](int rank) {
    const init::SkipDraws copied;
    Experts m(kDim, spec, Activation::silu);
    m.load_state_dict(state);
    m.spread("ep");
    is(local_part(m.down).size(0) == 8, "a rank has a quarter");
    const Tensor y = m(rows_of(x, rank, 1));
    is((y - rows_of(want, rank, 1)).abs().max().item() <= 1e-6 * want.abs().max().item(), "values");
    mean(y * y).backward();
    const std::vector<float> got = distributed::full_tensor(m.down.grad()).to_vector<float>();
    for (size_t i = 0; i < got.size(); ++i) is(std::abs(got[i] - down[i]) < 1e-7f, "gradients");
  });
}

// Bytes that the exchanges of one forward take, by what the ranks agree on of them.
std::vector<std::string> exchanges_of(bool reroute) {
  const ExpertsSpec spec = spec_of(1, reroute);
  const StateDict state = make(spec, DType::f32).state_dict();
  std::vector<std::string> calls;
  run_as_ranks(Mesh("ep=4"), [&](int rank) {
    const init::SkipDraws copied;
    Experts m(kDim, spec, Activation::silu);
    m.load_state_dict(state);
    m.spread("ep");
    distributed::group("world").barrier();
    double before = 0;
    for (const auto& e : distributed::recorder().entries()) before = std::max(before, e.begun);
    distributed::group("world").barrier();
    const NoGrad guard;
    m(rows_of(input(4, DType::f32), rank, 1));
    distributed::group("world").barrier();
    if (rank != 0) return;
    for (const auto& e : distributed::recorder().entries())
      if (e.group == "ep" && e.begun > before) calls.push_back(e.what);
  });
  return calls;
}

TEST(SpreadExpertsOf, ReroutingLeavesNothingOutAndSendsNoMore) {
  const std::vector<std::string> plain = exchanges_of(false), again = exchanges_of(true);
  EXPECT_EQ(plain, again);
  ASSERT_FALSE(again.empty());
  for (const std::string& what : again) EXPECT_TRUE(what.starts_with("all_to_all(")) << what;
}

TEST(SpreadExpertsOf, AnUnevenNumberIsRefused) {
  const ExpertsSpec spec = spec_of(0);
  const std::string said = message<ValueError>([&] {
    run_as_ranks(Mesh("ep=3"), [&](int) {
      const init::SkipDraws undrawn;
      Experts(kDim, spec, Activation::silu).spread("ep");
    });
  });
  EXPECT_NE(said.find("3 ranks along 'ep' do not share 8 experts evenly"), std::string::npos) << said;
}

// Ranks that share positions (tensor parallelism) give theirs, or within capacities some sequences, to experts on these
// and other ranks: two losses on four ranks.
void expect_positions_in_parts(ExpertsSpec spec, int64_t time, const std::string& lies) {
  SCOPED_TRACE(cat("capacity ", spec.capacity, ", ", time, " positions, ", lies));
  spec.shared_width = 3;
  const Experts whole = make(spec, DType::f64);
  const Tensor x = input(4, DType::f64).detach().narrow(1, 0, time).clone().set_requires_grad();
  Tensor wanted_loss;
  const Tensor want = whole(x, &wanted_loss);
  (mean(want * want) + wanted_loss).backward();
  const Gradients gradients = gradients_of(whole, x);
  const StateDict state = whole.state_dict();
  run_as_ranks(Mesh("ep=2 tp=2"), [&](int rank) {
    const init::SkipDraws copied;
    Experts m(kDim, spec, Activation::silu);
    m.to(DType::f64);
    m.load_state_dict(state);
    m.spread("ep+tp");
    m.balance_over("ep+tp");
    is(local_part(m.gate_up).size(0) == 2, "a rank has a quarter");
    NamedTensors dense;
    for (const auto& [name, p] : m.named_parameters())
      if (!is_placed(p)) dense.emplace_back(name, p);
    distributed::DataParallel all(dense, distributed::group("ep"));
    const Tensor own = rows_of(x, rank / 2, 2).set_requires_grad();
    Tensor more;
    const Tensor y = m(distributed::distribute(own, lies, "tp"), &more);
    is(distributed::placements_of(y) == lies, "results lie as what came");
    (mean(y * y) + more).backward();
    all.finish();
    const auto off = [](const Tensor& a, const Tensor& b) { return (a - b).abs().max().item(); };
    is(off(distributed::full_tensor(y), rows_of(want, rank / 2, 2)) < 1e-13, "values");
    const double mean_loss = distributed::all_reduce(distributed::full_tensor(more).detach(), "avg", "ep").item();
    is(std::abs(mean_loss - wanted_loss.item()) < 1e-12, cat("the losses' mean is ", mean_loss));
    for (const auto& [name, p] : m.named_parameters()) {
      const std::vector<double> got = distributed::full_tensor(p.grad()).to_vector<double>();
      for (size_t i = 0; i < got.size(); ++i)
        is(std::abs(got[i] - gradients.at(name)[i]) < 1e-13, cat(name, " ", i, ": ", got[i]));
    }
    const std::vector<double> gx = own.grad().to_vector<double>();
    for (size_t i = 0; i < gx.size(); ++i)
      is(std::abs(gx[i] / 2 - gradients.at("x")[static_cast<size_t>(rank / 2) * gx.size() + i]) < 1e-13, "x");
  });
}

TEST(SpreadExpertsOf, PositionsInPartsGiveValuesAndGradientsOfOneProcess) {
  for (const char* const lies : {"S(1)", "R"}) expect_positions_in_parts(spec_of(0), kTime, lies);
  expect_positions_in_parts(spec_of(0), kTime - 1, "S(1)");
  expect_positions_in_parts(spec_of(1), kTime, "S(1)");
  expect_positions_in_parts(spec_of(1, true), kTime, "R");
}

TEST(SpreadExpertsOf, PositionsInPartsWantTheirRanksAmongTheExperts) {
  const ExpertsSpec spec = spec_of(1);
  const auto said_of = [&](const char* group, int64_t batch) {
    return message<ValueError>([&] {
      run_as_ranks(Mesh("ep=2 tp=2"), [&](int) {
        const init::SkipDraws undrawn;
        Experts m(kDim, spec, Activation::silu);
        m.to(DType::f64);
        m.spread(group);
        m(distributed::distribute(input(batch, DType::f64).detach(), "S(1)", "tp"));
      });
    });
  };
  const std::string other = said_of("ep", 2), uneven = said_of("ep+tp", 3);
  EXPECT_NE(other.find("wanted positions in parts along an axis that shares the experts"), std::string::npos) << other;
  EXPECT_NE(uneven.find("do not share 3 sequences evenly"), std::string::npos) << uneven;
}

// Steps with an optimizer, clipped: weights after them are those of one process.
TEST(SpreadExpertsOf, TrainAsInOneProcess) {
  const ExpertsSpec spec = spec_of(1, true);
  Experts whole = make(spec, DType::f64);
  const StateDict state = [&] {
    StateDict copies;
    for (const auto& [name, t] : whole.state_dict()) copies[name] = t.clone();
    return copies;
  }();
  const Tensor x = input(4, DType::f64).detach();
  const auto step = [&](const Experts& m, optim::Optimizer& o, const Tensor& rows, const auto& finish) {
    o.zero_grad();
    Tensor more;
    const Tensor y = m(rows, &more);
    (mean(square(y - 1.0)) + more).backward();
    finish();
    o.step_clipped(0.1);
  };
  optim::AdamW one(whole.named_parameters(), {.lr = 0.05});
  for (int i = 0; i < 4; ++i) step(whole, one, x, [] {});
  run_as_ranks(Mesh("dp=2 ep=2"), [&](int rank) {
    const init::SkipDraws copied;
    Experts m(kDim, spec, Activation::silu);
    m.to(DType::f64);
    m.load_state_dict(state);
    m.spread("ep");
    m.balance_over("ep+dp");
    NamedTensors dense, parts;
    for (const auto& [name, p] : m.named_parameters()) (is_placed(p) ? parts : dense).emplace_back(name, p);
    distributed::DataParallel all(dense, distributed::group("dp+ep")), some(parts, distributed::group("dp"));
    optim::AdamW own(m.named_parameters(), {.lr = 0.05});
    for (int i = 0; i < 4; ++i) {
      step(m, own, rows_of(x, rank, 1), [&] {
        all.finish();
        some.finish();
      });
    }
    for (const auto& [name, p] : m.named_parameters()) {
      const Tensor want = whole.state_dict().at(name);
      is((distributed::full_tensor(p.detach()) - want).abs().max().item() < 1e-10, name);
    }
  });
}

}  // namespace
}  // namespace strata::nn
