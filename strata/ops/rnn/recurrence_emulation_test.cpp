// The kernels of all steps on the processor (strata/cuda/tile/emulation.cuh), from their own sources: layers against
// the CPU's kernels, the sLSTM against its steps in double precision; in one launch, whose blocks wait for each other,
// and with a launch for each iteration.

#define STRATA_TILE_EMULATION
#include "strata/ops/rnn/slstm_walk.cuh"

#include <random>

#include <gtest/gtest.h>

#include "strata/ops/rnn/recurrence_alone.cuh"
#include "strata/ops/rnn/recurrence_products.cuh"
#include "strata/ops/rnn/walk_of.cuh"

namespace strata::recurrent {
namespace {

namespace emulation = cuda::tile::emulation;

// Kernels with a type of this file are not those of the library.
template <class Step>
struct Own : Step {};

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  template <class T>
  std::vector<T> operator()(int64_t n, double most) {
    std::uniform_real_distribution<double> drawn(-most, most);
    std::vector<T> all(static_cast<size_t>(n));
    for (T& v : all) v = static_cast<T>(static_cast<float>(drawn(engine_)));
    return all;
  }

 private:
  std::mt19937_64 engine_;
};

template <class T>
double difference(const std::vector<T>& a, const std::vector<T>& b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = std::fabs(static_cast<double>(static_cast<float>(a[i])) - static_cast<float>(b[i]));
    if (!(d <= most)) most = d;  // NaN too
  }
  return most;
}

template <class P, class Step, bool Resident, int Rows, int Width>
std::string run_kernel(const RecurrencePlan& plan, const Walk& walk, const Step& step, int64_t iterations,
                       bool together, uint64_t seed) {
  const auto kernel = walk_kernel<P, Own<Step>, Rows, Width, Resident>;
  const auto blocks = static_cast<unsigned>(plan.groups * plan.parts);
  const auto bytes = static_cast<size_t>(plan.shared_bytes);
  if (together)
    return emulation::launch_together(kernel, blocks, kWalkThreads, bytes, seed, walk, Own<Step>{step}, int64_t{0},
                                      iterations);
  std::string failure;
  for (int64_t i = 0; i < iterations && failure.empty(); ++i)
    failure = emulation::launch(kernel, blocks, kWalkThreads, bytes, seed, walk, Own<Step>{step}, i, i + 1);
  return failure;
}
template <class P, class Step>
std::string run_plan(const RecurrencePlan& p, const Walk& w, const Step& step, int64_t n, bool together,
                     uint64_t seed) {
  constexpr bool kCores = kTensorCores<P>;
  if (!together) {
    if (kCores && p.tile == 32) return run_kernel < P, Step, false, kCores ? 32 : 16, 64 > (p, w, step, n, false, seed);
    return run_kernel < P, Step, false, 16, kCores ? 64 : 32 > (p, w, step, n, false, seed);
  }
  if constexpr (kCores) {
    if (p.tile == 32 && p.width == 16) return run_kernel<P, Step, true, 32, 16>(p, w, step, n, true, seed);
    if (p.tile == 32) return run_kernel<P, Step, true, 32, 64>(p, w, step, n, true, seed);
    if (p.width == 64) return run_kernel<P, Step, true, 16, 64>(p, w, step, n, true, seed);
  }
  if (p.width == 8) return run_kernel<P, Step, true, 16, 8>(p, w, step, n, true, seed);
  return run_kernel<P, Step, true, 16, 32>(p, w, step, n, true, seed);
}

// The memory of a launch, as WalkCall lays it out.
template <class P>
struct Memory {
  using T = stored_t<P>;
  RecurrencePlan plan;
  Walk walk{};
  std::vector<uint4> weight, states;
  std::vector<unsigned> arrivals;

  Memory(const StepProduct& p, const CardLimits& card) : plan(plan_recurrence(p, card)) {
    const int64_t bytes = plan.groups * plan.rows * plan.depth_bytes;
    weight.resize(static_cast<size_t>(plan.parts * plan.columns * plan.depth_bytes / 16));
    states.resize(static_cast<size_t>(2 * bytes / 16));
    arrivals.resize(static_cast<size_t>(plan.groups) * kArrivalBytes / sizeof(unsigned));
    walk = walk_of(p, plan, reinterpret_cast<const unsigned char*>(weight.data()),
                   reinterpret_cast<unsigned char*>(states.data()), arrivals.data());
  }
  void take(const std::vector<T>& w, int64_t gates, bool transposed, const T* h) {
    const int64_t H = walk.hidden;
    for (int64_t row = 0; row < gates * H; ++row)
      for (int64_t column = 0; column < H; ++column) {
        const int64_t unit = row % H;
        const int64_t to =
            transposed ? column : unit / plan.units * plan.columns + row / H * plan.units + unit % plan.units;
        auto* const at = reinterpret_cast<unsigned char*>(weight.data()) + to * plan.depth_bytes;
        reinterpret_cast<T*>(at)[transposed ? row : column] =
            operand_of<P>(cuda::widen(w[static_cast<size_t>(row * H + column)]));
      }
    for (int64_t e = 0; h != nullptr && e < walk.batch * H; ++e)
      reinterpret_cast<T*>(walk.states + e / H * plan.depth_bytes)[e % H] = operand_of<P>(cuda::widen(h[e]));
  }
};

struct Case {
  int64_t steps, batch, hidden, multiprocessors;
  std::vector<int64_t> counts = {};
  bool reverse = false, together = true;
  uint64_t seed = 0;
  std::string text() const {
    return cat(steps, " x ", batch, " x ", hidden, " on ", multiprocessors, counts.empty() ? "" : ", lengths",
               reverse ? ", reverse" : "", together ? "" : ", one by one", ", seed ", seed);
  }
  CardLimits card() const { return {multiprocessors, 232448}; }
};

template <class P>
constexpr double kBound = std::is_same_v<P, float>      ? 5e-6
                          : std::is_same_v<P, BFloat16> ? 2e-2
                                                        : 2e-3;

// A step is a product that stands for the library's, a [batch, depth] by the transpose of w [columns, depth], or by w
// [depth, columns], and a launch of the cell.
template <class T, class Step, class Operand>
std::string run_products(const Step& step, const std::vector<T>& w, int64_t iterations, int64_t batch, int64_t hidden,
                         int64_t columns, int64_t depth, bool transposed, uint64_t seed, Operand&& operand) {
  const int64_t width = columns * hidden;
  std::vector<float> sums(static_cast<size_t>(batch * width));
  std::string failure;
  for (int64_t i = 0; i < iterations && failure.empty(); ++i) {
    const T* const a = operand(i);
    for (int64_t b = 0; a != nullptr && b < batch; ++b)
      for (int64_t n = 0; n < width; ++n) {
        double sum = 0;
        for (int64_t k = 0; k < depth; ++k)
          sum += static_cast<double>(static_cast<float>(a[b * depth + k])) *
                 static_cast<float>(w[static_cast<size_t>(transposed ? n * depth + k : k * width + n)]);
        sums[static_cast<size_t>(b * width + n)] = static_cast<float>(sum);
      }
    failure = emulation::launch(cell_kernel<float, Own<Step>>, static_cast<unsigned>(cell_blocks(batch, hidden)),
                                kCellThreads, 0, seed, Own<Step>{step}, i, hidden, columns,
                                static_cast<const float*>(sums.data()));
  }
  return failure;
}

template <class P>
void check_layer(Cell cell, const Case& of) {
  SCOPED_TRACE(cat(static_cast<int>(cell), ": ", of.text()));
  using T = stored_t<P>;
  Random drawn(7 + of.seed);
  const int64_t H = of.hidden, G = gates(cell), kept = kept_gates(cell), states = of.steps * of.batch * H;
  int64_t rows = of.counts.empty() ? of.steps * of.batch : 0;
  std::vector<int64_t> firsts;
  for (const int64_t n : of.counts) firsts.push_back(rows), rows += n;
  const bool lstm = cell == Cell::lstm, gru = cell == Cell::gru;
  const bool bare = of.batch == 1;  // neither biases nor gates: what a call without gradients has
  const auto x = drawn.operator()<T>(rows * G * H, 1), h = drawn.operator()<T>(of.batch * H, 1),
             c = drawn.operator()<T>(of.batch * H, 1), w = drawn.operator()<T>(G * H * H, 1.5 / std::sqrt(H)),
             bias = drawn.operator()<T>(G * H, 0.5), gy = drawn.operator()<T>(states, 1),
             gstates = drawn.operator()<T>(states, 1);
  struct Results {
    std::vector<T> y, states, gates, gx, gfrom_h, gh, gc;
  };
  const auto results = [&] {
    const auto made = [](int64_t n) { return std::vector<T>(static_cast<size_t>(n), static_cast<T>(-3.0f)); };
    return Results{made(states),       made(states),       made(rows * kept * H), made(rows * G * H),
                   made(rows * G * H), made(of.batch * H), made(of.batch * H)};
  };
  const auto forward_call = [&](Results& r) {
    return RecurrenceCall{.cell = cell,
                          .t = std::is_same_v<T, float> ? DType::f32 : DType::bf16,
                          .steps = of.steps,
                          .batch = of.batch,
                          .hidden = H,
                          .reverse = of.reverse,
                          .tf32 = std::is_same_v<P, Tf32>,
                          .counts = of.counts.empty() ? nullptr : of.counts.data(),
                          .firsts = of.counts.empty() ? nullptr : firsts.data(),
                          .rows = rows,
                          .from_x = x.data(),
                          .h = h.data(),
                          .c = lstm ? c.data() : nullptr,
                          .w = w.data(),
                          .bias = bare ? nullptr : bias.data(),
                          .y = r.y.data(),
                          .states = r.states.data(),
                          .gates = kept > 0 && !bare ? r.gates.data() : nullptr};
  };
  const auto backward_call = [&](Results& r) {
    return RecurrenceBackwardCall{.forward = forward_call(r),
                                  .gy = gy.data(),
                                  .gstates = lstm ? gstates.data() : nullptr,
                                  .gfrom_x = r.gx.data(),
                                  .gfrom_h = gru ? r.gfrom_h.data() : nullptr,
                                  .gh = r.gh.data(),
                                  .gc = lstm ? r.gc.data() : nullptr};
  };
  Results want = results(), got = results();
  recurrence_cpu(forward_call(want));
  const auto size = static_cast<int64_t>(sizeof(T));
  {
    Memory<P> memory({of.batch, H, G, H, size, std::is_same_v<P, Tf32>}, of.card());
    memory.take(w, G, false, h.data());
    std::vector<float> carry(static_cast<size_t>(of.batch * H));
    for (size_t i = 0; i < carry.size(); ++i) carry[i] = static_cast<float>(c[i]);
    const ForwardStep<T> step{forward_call(got), carry.data(), static_cast<int>(G)};
    ASSERT_EQ(run_plan<P>(memory.plan, memory.walk, step, of.steps, of.together, of.seed), "");
  }
  EXPECT_LE(difference(got.y, want.y), kBound<P>);
  EXPECT_LE(difference(got.states, want.states), kBound<P>);
  EXPECT_LE(difference(got.gates, want.gates), kBound<P>);
  if (bare) return;
  got.y = want.y, got.states = want.states, got.gates = want.gates;
  recurrence_backward_cpu(backward_call(want));
  {
    Memory<P> memory({of.batch, H, 1, G * H, size, std::is_same_v<P, Tf32>}, of.card());
    memory.take(w, G, true, nullptr);
    std::vector<float> carry(static_cast<size_t>(2 * of.batch * H));
    const BackwardStep<T> step{backward_call(got), carry.data(), static_cast<int>(G), gru || !of.counts.empty()};
    ASSERT_EQ(run_plan<P>(memory.plan, memory.walk, step, of.steps + 1, of.together, of.seed), "");
  }
  EXPECT_LE(difference(got.gx, want.gx), kBound<P>);
  EXPECT_LE(difference(got.gfrom_h, want.gfrom_h), kBound<P>);
  EXPECT_LE(difference(got.gh, want.gh), 2 * kBound<P>);
  EXPECT_LE(difference(got.gc, want.gc), kBound<P>);
  if (!of.counts.empty() || std::is_same_v<P, Tf32>) return;  // the library would round to TF32 itself
  got = results();
  std::vector<float> carry(static_cast<size_t>(of.batch * H));
  for (size_t i = 0; i < carry.size(); ++i) carry[i] = static_cast<float>(c[i]);
  const auto time_of = [&](int64_t i) { return of.reverse ? of.steps - 1 - i : i; };
  const ForwardStep<T> forward{forward_call(got), carry.data(), static_cast<int>(G)};
  ASSERT_EQ(run_products(forward, w, of.steps, of.batch, H, G, H, true, of.seed,
                         [&](int64_t i) { return i == 0 ? h.data() : got.y.data() + time_of(i - 1) * of.batch * H; }),
            "");
  EXPECT_LE(difference(got.y, want.y), kBound<P>);
  EXPECT_LE(difference(got.states, want.states), kBound<P>);
  EXPECT_LE(difference(got.gates, want.gates), kBound<P>);
  got.y = want.y, got.states = want.states, got.gates = want.gates;
  carry.assign(static_cast<size_t>(2 * of.batch * H), 0);
  const BackwardStep<T> backward{backward_call(got), carry.data(), static_cast<int>(G), gru};
  const std::vector<T>& of_gates = gru ? got.gfrom_h : got.gx;
  ASSERT_EQ(run_products(backward, w, of.steps + 1, of.batch, H, 1, G * H, false, of.seed,
                         [&](int64_t i) -> const T* {
                           return i == 0 ? nullptr : of_gates.data() + time_of(of.steps - i) * of.batch * G * H;
                         }),
            "");
  EXPECT_LE(difference(got.gx, want.gx), kBound<P>);
  EXPECT_LE(difference(got.gfrom_h, want.gfrom_h), kBound<P>);
  EXPECT_LE(difference(got.gh, want.gh), 2 * kBound<P>);
  EXPECT_LE(difference(got.gc, want.gc), kBound<P>);
}

// Whether tiles of a layer are as many as expected, and its results the CPU's.
template <class P, Cell cell, int Units>
void check_alone(const Case& of, bool bare = false) {
  constexpr int64_t Gates = gates(cell);
  SCOPED_TRACE(cat(static_cast<int>(cell), " alone: ", of.text()));
  using T = stored_t<P>;
  constexpr DType t = std::is_same_v<T, float> ? DType::f32 : std::is_same_v<T, Half> ? DType::f16 : DType::bf16;
  ASSERT_EQ(units_alone(cell, t, true, of.hidden), Units);
  Random drawn(11 + of.seed);
  const int64_t H = of.hidden, kept = bare ? 0 : kept_gates(cell), states = of.steps * of.batch * H;
  const auto x = drawn.operator()<T>(of.steps * of.batch * Gates * H, 1), h = drawn.operator()<T>(of.batch * H, 1),
             c = drawn.operator()<T>(of.batch * H, 1), w = drawn.operator()<T>(Gates * H * H, 1.5 / std::sqrt(H)),
             bias = drawn.operator()<T>(Gates * H, 0.5);
  struct Results {
    std::vector<T> y, states, gates;
  };
  const auto run = [&](const auto& kernel) {
    const auto made = [](int64_t n) { return std::vector<T>(static_cast<size_t>(n), static_cast<T>(-3.0f)); };
    Results r{made(states), made(states), made(of.steps * of.batch * kept * H)};
    kernel(RecurrenceCall{.cell = cell,
                          .t = t,
                          .steps = of.steps,
                          .batch = of.batch,
                          .hidden = H,
                          .reverse = of.reverse,
                          .tf32 = t == DType::f32,
                          .counts = nullptr,
                          .firsts = nullptr,
                          .rows = of.steps * of.batch,
                          .from_x = x.data(),
                          .h = h.data(),
                          .c = cell == Cell::lstm ? c.data() : nullptr,
                          .w = w.data(),
                          .bias = bare ? nullptr : bias.data(),
                          .y = r.y.data(),
                          .states = r.states.data(),
                          .gates = kept > 0 ? r.gates.data() : nullptr});
    return r;
  };
  const Results want = run(recurrence_cpu),
                got = run([&](const RecurrenceCall&call) {
                  ASSERT_EQ(emulation::launch(alone_kernel<P, cell, Units>, static_cast<unsigned>((of.batch + 15) / 16),
                                              kWalkThreads, kAloneBytes<T, Units>, of.seed, call),
                            "");
                });
  EXPECT_LE(difference(got.y, want.y), kBound<P>);
  EXPECT_LE(difference(got.states, want.states), kBound<P>);
  EXPECT_LE(difference(got.gates, want.gates), kBound<P>);
}

template <class P>
void check_slstm(const Case& of) {
  SCOPED_TRACE(of.text());
  using T = stored_t<P>;
  Random drawn(9 + of.seed);
  const int64_t H = of.hidden, own = of.batch * H, all = of.steps * own;
  const auto x = drawn.operator()<T>(4 * all, 1), h = drawn.operator()<T>(own, 1),
             w = drawn.operator()<T>(4 * H * H, 1.5 / std::sqrt(H)), bias = drawn.operator()<T>(4 * H, 0.5),
             gy = drawn.operator()<T>(all, 1);
  const auto c = drawn.operator()<float>(own, 1), l = drawn.operator()<float>(own, 1),
             gcs = drawn.operator()<float>(all, 1), gls = drawn.operator()<float>(all, 1);
  std::vector<T> y(static_cast<size_t>(all)), sums(4 * y.size()), gsums(4 * y.size()), gh(static_cast<size_t>(own));
  std::vector<float> cs(y.size()), ls(y.size()), gc(gh.size()), gl(gh.size());
  const SlstmCall call{.t = std::is_same_v<T, float> ? DType::f32 : DType::bf16,
                       .tf32 = std::is_same_v<P, Tf32>,
                       .steps = of.steps,
                       .batch = of.batch,
                       .hidden = H,
                       .from_x = x.data(),
                       .h = h.data(),
                       .c = c.data(),
                       .l = l.data(),
                       .w = w.data(),
                       .bias = bias.data(),
                       .y = y.data(),
                       .c_each = cs.data(),
                       .l_each = ls.data(),
                       .sums = sums.data()};
  const auto size = static_cast<int64_t>(sizeof(T));
  {
    Memory<P> memory({of.batch, H, 4, H, size, call.tf32}, of.card());
    memory.take(w, 4, false, h.data());
    ASSERT_EQ(run_plan<P>(memory.plan, memory.walk, SlstmForwardStep<T>{call}, of.steps, of.together, of.seed), "");
  }
  const auto number = [](const auto& v, int64_t i) {
    return static_cast<double>(static_cast<float>(v[static_cast<size_t>(i)]));
  };
  double most = 0;
  const auto near = [&](double a, double b) {
    const double d = std::fabs(a - b);
    if (!(d <= most)) most = d;
  };
  // Each step from the states that the kernel gave the step before: what it rounds is not added up.
  for (int64_t t = 0; t < of.steps; ++t)
    for (int64_t b = 0; b < of.batch; ++b)
      for (int64_t j = 0; j < H; ++j) {
        const int64_t at = t * of.batch + b, e = at * H + j, before = e - own;
        double sum[4];
        for (int64_t g = 0; g < 4; ++g) {
          sum[g] = number(x, (at * 4 + g) * H + j) + number(bias, g * H + j);
          for (int64_t k = 0; k < H; ++k)
            sum[g] += number(w, (g * H + j) * H + k) * (t == 0 ? number(h, b * H + k) : number(y, before - j + k));
          near(number(sums, (at * 4 + g) * H + j), sum[g]);
        }
        const SlstmState<double> s = slstm_unit<double>(
            {sum[0], sum[1], sum[2], sum[3]}, t == 0 ? c[static_cast<size_t>(b * H + j)] : number(cs, before),
            t == 0 ? l[static_cast<size_t>(b * H + j)] : number(ls, before));
        near(number(y, e), s.h), near(number(cs, e), s.c), near(number(ls, e), s.l);
      }
  EXPECT_LE(most, kBound<P>);

  const SlstmBackwardCall back{.forward = call,
                               .gy = gy.data(),
                               .gc_each = gcs.data(),
                               .gl_each = gls.data(),
                               .gsums = gsums.data(),
                               .gh = gh.data(),
                               .gc = gc.data(),
                               .gl = gl.data()};
  {
    Memory<P> memory({of.batch, H, 1, 4 * H, size, call.tf32}, of.card());
    memory.take(w, 4, true, nullptr);
    std::vector<float> carry(static_cast<size_t>(2 * own));
    ASSERT_EQ(run_plan<P>(memory.plan, memory.walk, SlstmBackwardStep<T>{back, carry.data()}, of.steps + 1, of.together,
                          of.seed),
              "");
  }
  most = 0;
  std::vector<double> of_c(gh.size()), of_l(gh.size());
  for (int64_t t = of.steps - 1; t >= -1; --t) {
    for (int64_t b = 0; b < of.batch; ++b)
      for (int64_t j = 0; j < H; ++j) {
        const int64_t mine = b * H + j, at = t * of.batch + b, e = at * H + j;
        const auto i = static_cast<size_t>(mine);
        double of_h = 0;
        for (int64_t k = 0; t + 1 < of.steps && k < 4 * H; ++k)
          of_h += number(gsums, (at + of.batch) * 4 * H + k) * number(w, k * H + j);
        if (t < 0) {
          near(number(gh, mine), of_h), near(number(gc, mine), of_c[i]), near(number(gl, mine), of_l[i]);
          continue;
        }
        double gc_now = of_c[i] + gcs[static_cast<size_t>(e)], gl_now = of_l[i] + gls[static_cast<size_t>(e)];
        const auto sum = [&](int64_t g) { return number(sums, (at * 4 + g) * H + j); };
        const SlstmSums<double> g =
            slstm_unit_backward<double>({sum(0), sum(1), sum(2), sum(3)}, t == 0 ? c[i] : number(cs, e - own),
                                        t == 0 ? l[i] : number(ls, e - own), of_h + number(gy, e), gc_now, gl_now);
        of_c[i] = gc_now, of_l[i] = gl_now;
        near(number(gsums, at * 4 * H + j), g.i), near(number(gsums, (at * 4 + 1) * H + j), g.f);
        near(number(gsums, (at * 4 + 2) * H + j), g.z), near(number(gsums, (at * 4 + 3) * H + j), g.o);
      }
  }
  EXPECT_LE(most, 2 * kBound<P>);
}

class Walks : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!emulation::kRuns) GTEST_SKIP() << "no fibers under the thread sanitizer";
  }
};

// Several blocks a group; passes of 8, 32 and 64 columns, two of them; sequences of 16 and 32, several a group.
const Case kCases[] = {{3, 5, 21, 5},
                       {2, 21, 40, 6},
                       {2, 37, 19, 2, {}, false, true, 3},
                       {3, 6, 13, 3, {6, 5, 1}, true, true, 2},
                       {3, 19, 9, 2, {19, 17, 3}},
                       {2, 5, 21, 5, {}, true, false},
                       {2, 37, 10, 2, {37, 20}, true, false}};

TEST_F(Walks, LayersAreTheCpus) {
  for (const Case& of : kCases)
    for (const Cell cell : {Cell::lstm, Cell::gru}) {
      check_layer<float>(cell, of);
      check_layer<Tf32>(cell, of);
      check_layer<BFloat16>(cell, of);
    }
  for (const Cell cell : {Cell::tanh, Cell::relu}) {
    check_layer<BFloat16>(cell, {3, 18, 11, 4, {18, 9, 9}, true});
    check_layer<float>(cell, {3, 18, 11, 4});
  }
  for (const Cell cell : {Cell::lstm, Cell::gru, Cell::tanh}) {
    check_layer<Tf32>(cell, {5, 1, 24, 6});
    check_layer<float>(cell, {5, 1, 24, 6});
  }
}

// One to four tiles of units a warp, that are full or not; sequences that end within a block; both directions.
TEST_F(Walks, SmallLayersAloneAreTheCpus) {
  check_alone<Tf32, Cell::relu, 2>({5, 20, 128, 4});
  check_alone<Tf32, Cell::tanh, 1>({4, 33, 20, 4, {}, true, true, 1});
  check_alone<Tf32, Cell::lstm, 1>({4, 17, 60, 4, {}, true, true, 2});
  check_alone<Tf32, Cell::gru, 1>({4, 5, 64, 4, {}, false, true, 3});
  check_alone<BFloat16, Cell::relu, 4>({3, 18, 248, 4});
  check_alone<BFloat16, Cell::lstm, 1>({4, 16, 40, 4});
  check_alone<Half, Cell::tanh, 4>({4, 9, 256, 4, {}, true, true, 1});
  check_alone<Half, Cell::gru, 1>({5, 1, 16, 4}, true);
  check_alone<BFloat16, Cell::lstm, 1>({5, 1, 8, 4}, true);
}

TEST_F(Walks, SlstmIsItsSteps) {
  for (const Case& of : kCases) {
    if (!of.counts.empty() || of.reverse != !of.together) continue;
    check_slstm<float>(of);
    check_slstm<Tf32>(of);
    check_slstm<BFloat16>(of);
  }
}

}  // namespace
}  // namespace strata::recurrent
