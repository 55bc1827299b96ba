// Ways to exchange gradients, over ranks that are threads: what each is must hold by its record.

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "strata/autograd/autograd.h"
#include "strata/core/error_test_util.h"
#include "strata/dist/collectives/collectives.h"
#include "strata/dist/collectives/placed.h"
#include "strata/dist/exchange/exchange_inl.h"
#include "strata/dist/rank_threads.h"
#include "strata/ops/ops.h"

namespace strata::distributed {
namespace {

using exchange::BlockCode;

void is(bool ok, const std::string& what) {
  if (!ok) throw std::runtime_error(what);
}
bool has(const std::string& text, const std::string& piece) {
  return text.find(piece) != std::string::npos;
}

Tensor numbers(uint64_t seed, const Shape& shape) {
  Generator g(seed);
  return randn(shape, DType::f32, g);
}
std::vector<float> values(const Tensor& t) {
  return t.detach().to(DType::f32).to_vector<float>();
}
double off(const Tensor& a, const Tensor& b) {
  const NoGrad guard;
  return (a - b).abs().max().item();
}

// A matrix, a vector, something of three dimensions, and what is not trained.
struct Net {
  explicit Net(uint64_t seed) {
    const std::vector<Shape> shapes{{160, 220}, {33}, {6, 5, 7}, {4}};
    for (size_t i = 0; i < shapes.size(); ++i) {
      Tensor t = numbers(seed + 10 * i, shapes[i]);
      t.set_requires_grad(i < 3);
      all.emplace_back(std::string(1, static_cast<char>('a' + i)), t);
    }
  }
  // Gradients of a rank at a step; every rank can say what the others' are.
  static Tensor gradient(int rank, int step, size_t i, const Shape& shape) {
    return numbers(7000 + 100 * static_cast<uint64_t>(rank) + 10 * static_cast<uint64_t>(step) + i, shape) * 0.1;
  }
  void set_gradients(int rank, int step) {
    for (size_t i = 0; i < 3; ++i) all[i].second.set_grad(gradient(rank, step, i, all[i].second.shape()));
  }
  void update(double lr = 0.1) {
    const NoGrad guard;
    for (size_t i = 0; i < 3; ++i)
      copy_elements(all[i].second.detach(), all[i].second - all[i].second.grad() * lr);
  }
  GradientExchange::Parameters all;
};

ExchangeOptions small() {
  ExchangeOptions o;
  o.rank = 8;
  o.warmup = 2;
  o.every = 3;
  return o;
}

int64_t sent_by(Group& g) {
  int64_t bytes = 0;
  g.run("bytes", [&](Communicator& c) { bytes = c.sent_bytes(); });
  return bytes;
}

class Exchanges : public testing::TestWithParam<std::string> {};

TEST_P(Exchanges, AllRanksHaveTheSameBitsAndCountTheirBytes) {
  for (const int n : {2, 3}) {
    run_as_ranks(Mesh(cat("dp=", n)), [&](int rank) {
      Net net(static_cast<uint64_t>(rank + 1));  // rank 0's begin
      Group& g = group("dp");
      const auto exchange = make_exchange(GetParam(), net.all, g, small());
      const bool parameters = exchange->record().gives == ExchangeRecord::Gives::parameters;
      double sent = 0;
      for (int step = 0; step < 6; ++step) {
        net.set_gradients(rank, step);
        const int64_t before = sent_by(g);
        exchange->finish();
        net.update();
        exchange->updated();
        const int64_t bytes = sent_by(g) - before;
        // DataParallel agrees on which gradients there are; the record counts what is theirs.
        const double all = static_cast<double>(exchange->step_bytes());
        is(std::fabs(static_cast<double>(bytes) - all) <= (GetParam() == "plain" ? 0.02 * all + 64 : 0),
           cat(bytes, " bytes were sent, ", exchange->step_bytes(), " counted"));
        if (step >= 3) sent += all / 3;
        if (parameters && (step + 1) % 3 != 0) continue;
        for (size_t i = 0; i < 3; ++i) {
          const Tensor own = net.all[i].second.detach().contiguous();
          const Tensor first = broadcast(own, 0, "dp");
          is(values(own) == values(first), cat("rank ", rank, " has other bits of ", net.all[i].first, " at step ", step));
          is(std::isfinite(sum(own).item()), "finite");
        }
      }
      std::vector<Shape> shapes;
      for (size_t i = 0; i < 3; ++i) shapes.push_back(net.all[i].second.shape());
      const double told = exchange->record().sent(shapes, n, small());
      is(std::fabs(sent - told) <= 0.05 * told + 16, cat("a step sends ", sent, " bytes, told are ", told));
      double kept = 0;
      for (const auto& [name, t] : exchange->state_dict())
        if (!name.ends_with(".own")) kept += static_cast<double>(t.nbytes());
      is(kept == exchange->record().kept(shapes, n, small()), cat(kept, " bytes are kept"));
      is(exchange->seconds() >= 0 && exchange->plain_seconds() > 0, "seconds");
      is(exchange->plain_bytes() == exchange_record("plain").sent(shapes, n, {}), "bytes of whole gradients");
    });
  }
}

TEST_P(Exchanges, GoOnFromTheirStateToTheSameBits) {
  run_as_ranks(Mesh("dp=2"), [&](int rank) {
    Net through(1), begun(1);
    const auto whole = make_exchange(GetParam(), through.all, group("dp"), small());
    const auto turn = [&](GradientExchange& e, Net& net, int step) {
      net.set_gradients(rank, step);
      e.finish();
      net.update();
      e.updated();
    };
    for (int step = 0; step < 7; ++step) turn(*whole, through, step);
    std::map<std::string, Tensor> state;
    {
      const auto first = make_exchange(GetParam(), begun.all, group("dp"), small());
      for (int step = 0; step < 4; ++step) turn(*first, begun, step);
      for (const auto& [name, t] : first->state_dict()) state[name] = t.clone();
    }
    Net next(5);
    {
      const auto then = make_exchange(GetParam(), next.all, group("dp"), small());
      const NoGrad guard;
      for (size_t i = 0; i < 3; ++i) copy_elements(next.all[i].second.detach(), begun.all[i].second.detach());
      then->load_state_dict(state);
      for (int step = 4; step < 7; ++step) turn(*then, next, step);
      for (size_t i = 0; i < 3; ++i)
        is(values(next.all[i].second) == values(through.all[i].second), cat("other bits of ", next.all[i].first));
      if (state.empty()) return;
      const std::string last = state.rbegin()->first;
      auto less = state;
      less.erase(last);
      is(has(message<ValueError>([&] { then->load_state_dict(less); }), cat("no '", last, "'")), "missing");
      less[last] = zeros({3, 3, 3});
      is(has(message<ShapeError>([&] { then->load_state_dict(less); }), last), "shape");
      // What is each rank's is left out for another number of them.
      std::erase_if(less, [](const auto& e) { return e.first.starts_with("rank-"); });
      if (!last.starts_with("rank-")) less[last] = state.at(last);
      then->load_common_state(less);
    }
  });
}

TEST_P(Exchanges, RefusePartsAndWhatIsOutOfRange) {
  run_as_ranks(Mesh("dp=2"), [&](int) {
    Tensor cut = distribute(ones({4, 2}), "S(0)");
    cut.set_requires_grad(true);
    is(has(message<ValueError>([&] {
             make_exchange(GetParam(), {{"w", cut}}, group("dp"));
           }),
           "w lies in parts"),
       "parts");
  });
  const ExchangeRecord& r = exchange_record(GetParam());
  for (const ExchangeOption& o : exchange_options()) {
    ExchangeOptions options;
    if (o.whole)
      *static_cast<int64_t*>(o.field(options)) = static_cast<int64_t>(o.max) + 1;
    else
      *static_cast<double*>(o.field(options)) = o.max + 1;
    if (!r.reads(o.name)) {
      EXPECT_NO_THROW(r.check(options)) << o.name;
      continue;
    }
    EXPECT_TRUE(has(message<ValueError>([&] { r.check(options); }), std::string(o.name))) << o.name;
  }
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const ExchangeRecord& r : exchange_records()) all.emplace_back(r.name);
  return all;
}
INSTANTIATE_TEST_SUITE_P(All, Exchanges, testing::ValuesIn(names()), [](const auto& info) { return info.param; });

TEST(ExchangeRecords, AreWholeAndNamedOnce) {
  std::set<std::string_view> seen;
  for (const ExchangeRecord& r : exchange_records()) {
    EXPECT_TRUE(seen.insert(r.name).second) << r.name;
    EXPECT_FALSE(r.doc.empty()) << r.name;
    EXPECT_NE(r.make, nullptr) << r.name;
    EXPECT_NE(r.sent, nullptr) << r.name;
    EXPECT_EQ(r.name == "plain", r.refuses.empty()) << r.name;
    for (const std::string_view o : r.options)
      EXPECT_NE(std::ranges::find(exchange_options(), o, &ExchangeOption::name), exchange_options().end()) << o;
    for (const ExchangeRefusal& f : r.refuses) EXPECT_FALSE(f.key.empty() || f.why.empty()) << r.name;
  }
  for (const ExchangeOption& o : exchange_options()) {
    const ExchangeOptions defaults;
    EXPECT_TRUE(o.value(defaults) >= o.min && o.value(defaults) <= o.max) << o.name;
    EXPECT_TRUE(std::ranges::any_of(exchange_records(), [&](const auto& r) { return r.reads(o.name); })) << o.name;
  }
  EXPECT_TRUE(has(message<ValueError>([] { exchange_record("int7"); }), "there is no 'int7': plain, int8"));
}

// Error feedback is exact: what is sent and what is kept are the number, without a rounding.
TEST(ExchangeCodes, WhatIsSentAndWhatIsKeptAreTheNumber) {
  for (const BlockCode code : {BlockCode{8, 256}, BlockCode{4, 64}, BlockCode{1, 64}}) {
    SCOPED_TRACE(code.bits);
    Tensor x = numbers(3, {4 * code.block});
    for (int64_t i = 0; i < code.block; ++i) x.data<float>()[code.block + i] *= 1e-20f;
    std::fill_n(x.data<float>() + 2 * code.block, code.block, 0.0f);
    const exchange::Codes c = exchange::encode(x, code);
    EXPECT_EQ(c.codes.nbytes() + c.scales.nbytes(), code.bytes(x.numel()));
    const Tensor sent = exchange::decode(c, code), kept = x - sent;
    ASSERT_EQ(sent.shape(), x.shape());
    double most = 0;
    for (int64_t i = 0; i < x.numel(); ++i) {
      const double v = x.data<float>()[i], s = sent.data<float>()[i], e = kept.data<float>()[i];
      if (code.bits > 1) {
        ASSERT_EQ(s + e, v) << i;
      }
      if (i < code.block) most = std::max(most, std::fabs(e));
      if (i >= 2 * code.block && i < 3 * code.block) {
        ASSERT_EQ(s, 0) << i;
      }
    }
    const Tensor size = abs(x.narrow(0, 0, code.block));
    const double largest = amax(size).item(), usual = mean(size).item();
    if (code.bits > 1) {
      EXPECT_LE(most, 0.5001 * largest / ((1 << (code.bits - 1)) - 1));
    }
    for (int64_t i = 0; i < code.block && code.bits == 1; ++i)
      ASSERT_NEAR(sent.data<float>()[i], x.data<float>()[i] < 0 ? -usual : usual, 1e-6) << i;
    x.data<float>()[0] = NAN;
    EXPECT_TRUE(std::isnan(exchange::decode(exchange::encode(x, code), code).data<float>()[0]));
  }
}

// Over steps, what updates were given and what is kept is what the ranks had.
class ErrorFeedback : public testing::TestWithParam<std::string> {};
TEST_P(ErrorFeedback, NothingIsLost) {
  run_as_ranks(Mesh("dp=2"), [&](int rank) {
    constexpr int kSteps = 5;
    Net net(1);
    const auto e = make_exchange(GetParam(), net.all, group("dp"), small());
    TensorList given, had;
    for (size_t i = 0; i < 3; ++i) {
      given.push_back(zeros_like(net.all[i].second, DType::f64));
      had.push_back(zeros_like(net.all[i].second, DType::f64));
    }
    double lost_first = 0;
    for (int step = 0; step < kSteps; ++step) {
      net.set_gradients(rank, step);
      e->finish();
      for (size_t i = 0; i < 3; ++i) {
        const Shape& shape = net.all[i].second.shape();
        given[i] = given[i] + net.all[i].second.grad();
        for (int r = 0; r < 2; ++r) had[i] = had[i] + Net::gradient(r, step, i, shape) * 0.5;
      }
      if (step == 0) lost_first = off(given[0], had[0]);
    }
    is(lost_first > 1e-5, cat("something is kept: ", lost_first));
    // What is kept, of both ranks.
    std::map<std::string, Tensor> state = e->state_dict();
    const auto kept = [&](const std::string& name) {
      return all_reduce(state.at(cat("rank-", rank, ".", name)).clone(), "avg", "dp");
    };
    if (GetParam() == "powersgd") {
      is(off(given[0] + kept("a.error"), had[0]) < 1e-5, "the matrix");
      is(off(given[1], had[1]) < 1e-6, "a vector travels as it is");
      return;
    }
    const Tensor sums = all_gather(state.at(cat("rank-", rank, ".sum_error.0")), 0, "dp");
    const Tensor all = kept("error.0") + sums;
    int64_t at = 0;
    for (size_t i = 0; i < 3; ++i) {
      const Shape& shape = given[i].shape();
      const Tensor rest = all.narrow(0, at, shape.product()).view(shape);
      is(off(given[i] + rest, had[i]) < 1e-6, cat(net.all[i].first, " is off by ", off(given[i] + rest, had[i])));
      at += shape.product();
    }
  });
}
INSTANTIATE_TEST_SUITE_P(All, ErrorFeedback, testing::Values("int8", "int4", "powersgd"),
                         [](const auto& info) { return info.param; });

// A matrix of the factors' rank is what it is after a step of the power method or two.
TEST(PowerSgd, FindsAMatrixOfItsRank) {
  run_as_ranks(Mesh("dp=2"), [](int rank) {
    const Tensor one = matmul(numbers(1, {40, 2}), numbers(2, {2, 30})), two = matmul(numbers(3, {40, 1}), numbers(4, {1, 30}));
    Tensor w = zeros({40, 30});
    w.set_requires_grad(true);
    const auto e = make_exchange("powersgd", {{"w", w}}, group("dp"), {.rank = 4});
    for (const Tensor& had : {one, two}) {  // of rank 2, and then 1: some directions are empty
      for (int step = 0; step < 3; ++step) {
        w.set_grad(had * (rank == 0 ? 0.5 : 1.5));
        e->finish();
        is(off(w.grad(), had) < 2e-5 * amax(abs(had)).item(), cat("step ", step, " is off by ", off(w.grad(), had)));
      }
    }
    // Nothing for a while, then something: directions are not lost.
    w.set_grad(zeros({40, 30}));
    e->finish();
    w.set_grad(one.clone());
    e->finish();
    is(off(w.grad(), one) < 1e-3 * amax(abs(one)).item(), cat("after zeros off by ", off(w.grad(), one)));
  });
}

// The momentum after a step and what was sent are the momentum before it, and directions are signs.
TEST(DeMo, WhatIsNotSentStaysInTheMomentum) {
  run_as_ranks(Mesh("dp=2"), [](int rank) {
    // Of all of a chunk's components nothing is kept but what 8 bits lose; of half of them, the larger ones, a little; of
    // few, much. The direction is the sign of what left the ranks' momenta, on average.
    for (const auto& [keep, least, most] : {std::tuple(4096, 0.0, 0.02), std::tuple(2048, 0.05, 0.4), std::tuple(24, 0.8, 0.999)}) {
      Tensor w = zeros({100, 70});  // in chunks that are filled up
      w.set_requires_grad(true);
      ExchangeOptions o;
      o.decay = 0.5;
      o.keep = keep;
      const auto e = make_exchange("demo", {{"w", w}}, group("dp"), o);
      const Tensor momentum = e->state_dict().at(cat("rank-", rank, ".w.momentum"));
      const auto real = [&] { return momentum.narrow(0, 0, 100).narrow(1, 0, 70).clone(); };
      Tensor before = zeros({100, 70});
      for (uint64_t step = 0; step < 3; ++step) {
        const Tensor g = numbers(step + 100 * static_cast<uint64_t>(rank), {100, 70});
        w.set_grad(g.clone());
        e->finish();
        const Tensor had = before * 0.5 + g, after = real();
        const double kept = norm(after).item() / norm(had).item();
        is(kept >= least && kept <= most, cat("of ", keep, " components ", kept, " is kept at step ", step));
        const Tensor left = all_reduce(had - after, "avg", "dp");
        // Where it is no rounding.
        const Tensor clear = abs(left) > Scalar(1e-4);
        is(sum(where(clear, abs(w.grad() - sign(left)), 0.0)).item() == 0, cat("signs at step ", step));
        is(sum(clear.to(DType::f32)).item() > 5000, "most are clear");
        before = after;
      }
    }
  });
}

std::vector<Shape> gpt2() {
  std::vector<Shape> all{{50257, 768}, {1024, 768}, {768}, {768}};
  for (int i = 0; i < 12; ++i)
    for (const Shape& s : std::vector<Shape>{{768}, {768}, {2304, 768}, {2304}, {768, 768}, {768}, {768}, {768}, {3072, 768},
                                             {3072}, {768, 3072}, {768}})
      all.push_back(s);
  return all;
}
// The guide's table.
TEST(ExchangeRecords, SendWhatTheGuideSays) {
  const std::vector<Shape> shapes = gpt2();
  const auto fewer = [&](std::string_view name, int64_t ranks) {
    return exchange_record("plain").sent(shapes, ranks, {}) / exchange_record(name).sent(shapes, ranks, {});
  };
  for (const auto& [name, times] : std::map<std::string, double>{
           {"plain", 1}, {"int8", 3.9}, {"int4", 7.1}, {"powersgd", 135}, {"onebit", 31}, {"demo", 102},
           {"local_sgd", 16}, {"diloco", 500}})
    EXPECT_NEAR(fewer(name, 4), times, 0.02 * times) << name;
  for (const int64_t ranks : {2, 4}) EXPECT_GE(fewer("demo", ranks), 100) << ranks;
}

// Whole gradients in the warm-up, and then momenta by signs, over second moments that stay.
TEST(OneBitAdam, IsAdamInTheWarmUpAndNearItThen) {
  run_as_ranks(Mesh("dp=2"), [](int rank) {
    Net net(1);
    ExchangeOptions o;
    o.warmup = 4;
    const auto e = make_exchange("onebit", net.all, group("dp"), o);
    TensorList m, v;
    for (size_t i = 0; i < 3; ++i) m.push_back(zeros_like(net.all[i].second)), v.push_back(m[i].clone());
    double near = 0, size = 0;
    for (int step = 1; step <= 12; ++step) {
      net.set_gradients(rank, step);
      TensorList g;
      Tensor squares = zeros({});
      for (size_t i = 0; i < 3; ++i) {
        g.push_back((Net::gradient(0, step, i, m[i].shape()) + Net::gradient(1, step, i, m[i].shape())) * 0.5);
        squares = squares + sum(square(g[i]));
      }
      const double factor = std::min(1.0, 2.0 / std::sqrt(squares.item()));
      is(factor < 1, "gradients are clipped");
      e->finish(2.0);
      for (size_t i = 0; i < 3; ++i) {
        m[i] = m[i] * 0.9 + g[i] * (0.1 * factor);
        if (step <= 4) v[i] = v[i] * 0.95 + square(g[i] * factor) * 0.05;
        const double c1 = 1 - std::pow(0.9, step), c2 = 1 - std::pow(0.95, std::min(step, 4));
        const Tensor want = (m[i] / c1) / (sqrt(v[i] / c2) + 1e-8), got = net.all[i].second.grad();
        if (step <= 4) {
          is(off(got, want) < 1e-3, cat("step ", step, " is off by ", off(got, want)));
        } else if (i == 0) {
          near += sum(got * want).item();
          size += norm(got).item() * norm(want).item();
        }
      }
    }
    is(near / size > 0.5, cat("directions agree by ", near / size));
  });
}

// A parameter without a gradient counts as one of zeros.
TEST(LowBitExchange, WhatHasNoGradientGetsOne) {
  run_as_ranks(Mesh("dp=2"), [](int rank) {
    Net net(1);
    const auto e = make_exchange("int8", net.all, group("dp"));
    net.set_gradients(rank, 0);
    if (rank == 0) net.all[1].second.set_grad(Tensor());
    e->finish();
    is(off(net.all[1].second.grad(), Net::gradient(1, 0, 1, {33}) * 0.5) < 1e-2, "half of the other rank's");
    // What is not finite is seen everywhere.
    net.set_gradients(rank, 1);
    if (rank == 1) net.all[0].second.grad().data<float>()[5] = INFINITY;
    e->finish();
    is(!std::isfinite(sum(net.all[0].second.grad()).item()), "not finite");
  });
}

}  // namespace
}  // namespace strata::distributed
