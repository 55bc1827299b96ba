#pragma once
// For tests of the tensor-core kernels on the processor (strata/cuda/tile/emulation.cuh): calls with their operands,
// what small kernels make of their options beforehand, and results as sums in double precision.

#include <array>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "strata/cuda/tile/emulation_stored.cuh"
#include "strata/ops/attention/mask_tile.cuh"

namespace strata::attention_cuda {
namespace {

enum class Mask { none, boolean, added };
struct Case {
  int64_t batch = 1, heads = 2, kv_heads = 1, tq = 70, tk = 150, d = 64;
  bool causal = false;
  int64_t window = 0, offset = 0;
  Mask mask = Mask::none;
  bool mask_of_batch = true, mask_of_head = true, mask_of_query = true, mask_of_key = true;  // else one for all
  bool lowest = true;     // some queries see the lowest number of an added mask's dtype and nothing else
  bool mask_f32 = false;  // of added ones
  double dropout = 0;
  bool drawn = true;  // dropout's bits beforehand
  bool left = false;  // dropout's bits in the call, as forward leaves them
  bool part = false;  // weights have the numbers of a part of a larger call
  bool slopes = false, sinks = false, lengths = false, grad_lse = false;
  double soft_cap = 0;
  std::vector<std::array<int, 2>> sequences = {};  // queries and keys of each, where there are several in tq and tk
  uint64_t seed = 0;                               // of the emulation
  unsigned blocks = 2;

  std::string text() const {
    return cat(sequences.size(), " sequences, ", batch, " x ", heads, " (", kv_heads, ") x ", tq, " x ", tk, " x ", d,
               causal ? ", causal" : "", ", window ", window, ", offset ", offset, ", mask ", static_cast<int>(mask),
               mask_of_batch, mask_of_head, mask_of_query, mask_of_key, mask_f32, ", dropout ", dropout,
               drawn ? " drawn" : "", left ? " left" : "", part ? " of a part" : "", slopes ? ", slopes" : "",
               sinks ? ", sinks" : "", lengths ? ", lengths" : "", ", cap ", soft_cap, ", seed ", seed);
  }
};

/// A [batch, heads, time, size] operand within NaN: heads packed in rows, or rows within heads.
template <class T>
class Operand {
 public:
  Operand(int64_t batch, int64_t heads, int64_t time, int64_t size, bool packed)
      : batch_(batch), heads_(heads), time_(time), size_(size) {
    v_.time = packed ? heads * size + 8 : size + 8;
    v_.head = packed ? size : time * v_.time + 8;
    v_.batch = packed ? time * v_.time : heads * v_.head;
    v_.size = 1;
    all_.resize(static_cast<size_t>(batch * v_.batch + 8));
    std::memset(static_cast<void*>(all_.data()), 0xff, all_.size() * sizeof(T));
    v_.data = all_.data() + (16 - reinterpret_cast<uintptr_t>(all_.data()) % 16) % 16 / sizeof(T);
  }
  Operand(const Operand&) = delete;
  template <class F>
  void each(const F& f) const {
    for (int64_t b = 0; b < batch_; ++b)
      for (int64_t h = 0; h < heads_; ++h)
        for (int64_t i = 0; i < time_; ++i)
          for (int64_t d = 0; d < size_; ++d) f(b, h, i, d);
  }
  void randomize(unsigned seed, float by) {
    std::mt19937 random(seed);
    each([&](int64_t b, int64_t h, int64_t i, int64_t d) {
      at(b, h, i, d) = T(by * static_cast<float>(cuda::tile::emulation::random_number<T>(random)));
    });
  }
  T& at(int64_t b, int64_t h, int64_t i, int64_t d) const {
    return static_cast<T*>(v_.data)[b * v_.batch + h * v_.head + i * v_.time + d];
  }
  double operator()(int64_t b, int64_t h, int64_t i, int64_t d) const { return static_cast<float>(at(b, h, i, d)); }
  /// All of them, row-major.
  std::vector<double> numbers() const {
    std::vector<double> all;
    each([&](auto... i) { all.push_back((*this)(i...)); });
    return all;
  }
  const AttentionView& view() const { return v_; }
  CUtensorMap map(int rows) const { return map_of(v_, batch_, heads_, time_, size_, rows); }
  /// Of `time` rows from `first` on alone.
  CUtensorMap map(int rows, int64_t first, int64_t time) const {
    AttentionView v = v_;
    v.data = static_cast<T*>(v.data) + first * v.time;
    return map_of(v, batch_, heads_, std::max<int64_t>(time, 1), size_, rows);
  }
  /// As the host makes them for a card: boxes of 64 columns by `rows` rows.
  static CUtensorMap map_of(const AttentionView& v, int64_t batch, int64_t heads, int64_t time, int64_t size,
                            int rows) {
    CUtensorMap m;
    m.data = static_cast<uint8_t*>(v.data), m.element_bytes = sizeof(T), m.dims = 4;
    const int64_t sizes[] = {size, time, heads, batch}, steps[] = {1, v.time, v.head, v.batch};
    for (int i = 0; i < 4; ++i) m.sizes[i] = sizes[i], m.steps[i] = m.element_bytes * steps[i];
    m.box[0] = 64, m.box[1] = rows;
    return m;
  }
  /// How many numbers between the rows are no longer NaN.
  int64_t written_over() {
    std::vector<T> copy = all_;
    const int64_t start = static_cast<T*>(v_.data) - all_.data();
    each([&](int64_t b, int64_t h, int64_t i, int64_t d) {
      std::memset(static_cast<void*>(&copy[static_cast<size_t>(start + b * v_.batch + h * v_.head + i * v_.time + d)]),
                  0xff, sizeof(T));
    });
    int64_t n = 0;
    for (const T& x : copy) {
      uint32_t bits = ~0u;
      std::memcpy(&bits, static_cast<const void*>(&x), sizeof(T));
      n += bits != ~0u;
    }
    return n;
  }

 private:
  int64_t batch_, heads_, time_, size_;
  AttentionView v_;
  std::vector<T> all_;
};

/// A call, its operands and its results.
template <class T>
struct Problem {
  explicit Problem(const Case& of)
      : of(of),
        q(of.batch, of.heads, of.tq, of.d, true),
        k(of.batch, of.kv_heads, of.tk, of.d, false),
        v(of.batch, of.kv_heads, of.tk, of.d, true),
        out(of.batch, of.heads, of.tq, of.d, true),
        grad_out(of.batch, of.heads, of.tq, of.d, false),
        grad_q(of.batch, of.heads, of.tq, of.d, true),
        grad_k(of.batch, of.kv_heads, of.tk, of.d, true),
        grad_v(of.batch, of.kv_heads, of.tk, of.d, false) {
    q.randomize(1, 2), k.randomize(2, 1), v.randomize(3, 1), grad_out.randomize(4, 1);
    lse.assign(static_cast<size_t>(of.batch * of.heads * of.tq), NAN);
    c.dtype = dtype_of<T>;
    c.batch = of.batch, c.heads = of.heads, c.kv_heads = of.kv_heads, c.tq = of.tq, c.tk = of.tk, c.d = c.dv = of.d;
    c.scale = 1 / std::sqrt(static_cast<double>(of.d));
    c.causal = of.causal, c.window = of.window, c.offset = of.offset;
    c.q = q.view(), c.k = k.view(), c.v = v.view(), c.out = out.view();
    c.grad_out = grad_out.view(), c.grad_q = grad_q.view(), c.grad_k = grad_k.view(), c.grad_v = grad_v.view();
    c.lse = lse.data(), c.lse_head = of.tq;
    c.dropout = of.dropout, c.key = {123456789012345, 77, nullptr}, c.soft_cap = of.soft_cap;
    c.numbers = WeightNumbers::whole(of.heads, of.tq, of.tk);
    if (of.part) {
      c.numbers = WeightNumbers::whole(of.heads + 3, of.tq + 10, of.tk + 16);
      c.numbers.first = static_cast<int64_t>(c.numbers.of(0, 1, 5, 8));
    }
    std::mt19937 random(9);
    const auto some = [&](int64_t n, float by) {
      std::vector<float> x(static_cast<size_t>(n));
      for (float& a : x) a = by * static_cast<float>(random() % 1000) / 1000;
      return x;
    };
    slopes = some(of.batch * of.heads, 0.1f), sinks = some(of.heads, 2);
    if (of.slopes) c.alibi_slopes = slopes.data(), c.alibi_batch = of.heads;
    if (of.sinks) c.sinks = sinks.data();
    for (int64_t b = 0; b < of.batch; ++b) lengths.push_back(b % 3 == 2 ? 0 : of.tk - 13 - 100 * (b % 2));
    if (of.lengths) c.key_lengths = lengths.data();
    grad_lse = some(of.batch * of.heads * of.tq, 1);
    if (of.grad_lse) c.grad_lse = grad_lse.data();
    make_mask();
    if (of.left) {
      c.kept_words = kept_row_words(of.tk);
      kept.resize(static_cast<size_t>(of.batch * of.heads * of.tq * c.kept_words));
      attention_draw_kept_cpu(c, kept.data());
      c.kept = kept.data();
    }
  }

  // Tiles that nothing of is seen, tiles that all of is, and some of either; queries that see nothing, also whole tiles
  // of them, and tiles of keys that none sees.
  static bool lets_see(int64_t b, int64_t h, int64_t i, int64_t j) {
    if (i % 17 == 3 || (b == 0 && (j >= 256 || (h == 0 && i >= 192)))) return false;
    const int64_t at = i / 64 + j / 128 + h + b;
    if (at % 4 == 2) return false;
    if (at % 4 == 1 || j / 16 % 3 == 0) return true;
    return (i * 7919 + j * 104729 + h * 31 + b * 17) % 11 < 7;
  }
  void make_mask() {
    if (of.mask == Mask::none) return;
    const int64_t n[4] = {of.mask_of_batch ? of.batch : 1, of.mask_of_head ? of.heads : 1, of.mask_of_query ? of.tq : 1,
                          of.mask_of_key ? of.tk : 1};
    const bool boolean = of.mask == Mask::boolean;
    c.mask_dtype = boolean ? DType::boolean : of.mask_f32 ? DType::f32 : dtype_of<T>;
    const int64_t row = boolean ? n[3] : (n[3] + 7) / 8 * 8 + 8, head = n[2] * row, batch = n[1] * head;
    const int64_t all = n[0] * batch;
    if (boolean) mask_bool.reset(new bool[static_cast<size_t>(all)]), c.mask = mask_bool.get();
    mask_f32.assign(boolean ? 0 : static_cast<size_t>(all), NAN);
    mask_t.assign(boolean ? 0 : static_cast<size_t>(all), T(NAN));
    if (!boolean) c.mask = of.mask_f32 ? static_cast<const void*>(mask_f32.data()) : mask_t.data();
    const int64_t steps[4] = {batch, head, row, 1};
    for (int i = 0; i < 4; ++i) c.mask_stride[i] = n[i] == 1 ? 0 : steps[i];
    if (!boolean) c.mask_stride[3] = 1;
    std::mt19937 random(11);
    for (int64_t b = 0; b < n[0]; ++b)
      for (int64_t h = 0; h < n[1]; ++h)
        for (int64_t i = 0; i < n[2]; ++i)
          for (int64_t j = 0; j < n[3]; ++j) {
            const auto at = static_cast<size_t>(b * batch + h * head + i * row + j);
            const bool seen = n[2] == 1 ? lets_see(b, h, 8, j) : n[3] == 1 ? i % 5 != 1 : lets_see(b, h, i, j);
            if (boolean) {
              mask_bool[at] = seen;
            } else {
              const float lowest = std::is_same_v<T, Half> ? -65504.f : -3.3895314e38f;
              const T x(of.lowest && i % 19 == 5 ? lowest
                        : seen                   ? static_cast<float>(random() % 400) / 100 - 2
                                                 : -INFINITY);
              mask_t[at] = x, mask_f32[at] = static_cast<float>(x);
            }
          }
  }
  double mask_at(int64_t b, int64_t h, int64_t i, int64_t j) const {
    const int64_t* const s = c.mask_stride;
    const auto at = static_cast<size_t>(b * s[0] + h * s[1] + i * s[2] + j * s[3]);
    if (of.mask == Mask::boolean) return mask_bool[at] ? 0 : -INFINITY;
    return mask_f32[at];
  }

  // ---- what options.cu and dropout_bits.cu make ----

  /// Bits in rows of the kernel's orientation, and flags of tiles.
  Options options(int query_tile, int key_tile, bool transposed) {
    Options o;
    o.additive = of.mask == Mask::added;
    const double unit = score_unit(c);
    o.cap_in = static_cast<float>(of.soft_cap > 0 ? c.scale / of.soft_cap : 0);
    o.scale = static_cast<float>(of.soft_cap > 0 ? of.soft_cap : c.scale);
    o.factor = static_cast<float>(unit * kLog2e), o.lse_factor = static_cast<float>(unit);
    o.per_lse = static_cast<float>(1 / unit);
    if (of.slopes) o.slopes = slopes.data(), o.slopes_batch = static_cast<int>(c.alibi_batch);
    if (of.sinks) o.sinks = sinks.data();
    o.kept_scale = static_cast<float>(1 / (1 - of.dropout));
    o.drop_below = drop_below(of.dropout);
    o.fours = c.numbers.fours();
    if (of.mask != Mask::none) make_seen(o, query_tile, key_tile, transposed);
    if (of.dropout > 0 && of.drawn) make_kept(o, query_tile, key_tile, transposed);
    return o;
  }
  void make_seen(Options& o, int query_tile, int key_tile, bool transposed) {
    const auto size = [&](int dim, int64_t n) { return c.mask_stride[dim] == 0 ? 1 : n; };
    const int64_t batch = size(0, of.batch), heads = size(1, of.heads), queries = size(2, of.tq), keys = size(3, of.tk);
    const int64_t rows = transposed ? keys : queries, columns = transposed ? queries : keys;
    const int64_t words = columns == 1 ? 1 : (columns + (transposed ? query_tile : key_tile)) / 32 + 2;
    const int64_t q_tiles = (queries + query_tile - 1) / query_tile;
    const int64_t tile_words = ((of.tk + key_tile - 1) / key_tile + 31) / 32;
    seen.assign(static_cast<size_t>(batch * heads * rows * words), 0);
    flags.assign(static_cast<size_t>(batch * heads * q_tiles * tile_words), 0);
    for (int64_t head = 0; head < batch * heads; ++head)
      for (int64_t i = 0; i < queries; ++i)
        for (int64_t j = 0; j < keys; ++j) {
          if (mask_at(head / heads, head % heads, i, j) == -INFINITY) continue;
          const int64_t row = transposed ? j : i, column = transposed ? i : j;
          seen[static_cast<size_t>((head * rows + row) * words + column / 32)] |=
              columns == 1 ? ~0u : 1u << (column % 32);
          uint32_t* const of_row = &flags[static_cast<size_t>((head * q_tiles + i / query_tile) * tile_words)];
          if (keys == 1) {
            for (int64_t w = 0; w < tile_words; ++w) of_row[w] = ~0u;
          } else {
            of_row[j / key_tile / 32] |= 1u << (j / key_tile % 32);
          }
        }
    o.seen = seen.data(), o.seen_row = rows == 1 ? 0 : words, o.seen_word = columns == 1 ? 0 : 1;
    o.tiles = flags.data(), o.tiles_row = queries == 1 ? 0 : static_cast<int>(tile_words);
    if (heads > 1) o.seen_head = rows * words, o.tiles_head = q_tiles * tile_words;
    if (batch > 1) o.seen_batch = heads * rows * words, o.tiles_batch = heads * q_tiles * tile_words;
  }
  void make_kept(Options& o, int query_tile, int key_tile, bool transposed) {
    const int64_t rows = transposed ? of.tk : of.tq, columns = transposed ? of.tq : of.tk;
    const int64_t words = ((columns + (transposed ? query_tile : key_tile)) / 32 + 2 + 3) / 4 * 4;
    std::mt19937 random(5);  // what lies behind the last column is not drawn
    kept.resize(static_cast<size_t>(of.batch * of.heads * rows * words));
    for (uint32_t& w : kept) w = random();
    for (int64_t head = 0; head < of.batch * of.heads; ++head)
      for (int64_t i = 0; i < of.tq; ++i)
        for (int64_t j = 0; j < of.tk; ++j) {
          const int64_t row = transposed ? j : i, column = transposed ? i : j;
          uint32_t& w = kept[static_cast<size_t>((head * rows + row) * words + column / 32)];
          w = (w & ~(1u << (column % 32))) | static_cast<uint32_t>(keeps(head, i, j)) << (column % 32);
        }
    o.kept = kept.data(), o.kept_head = rows * words, o.kept_row = static_cast<int>(words);
  }
  bool keeps(int64_t head, int64_t i, int64_t j) const {
    const uint64_t number = c.numbers.of(head / of.heads, head % of.heads, i, j);
    return uniform_f32(philox(c.key, number / 4)[number % 4]) >= static_cast<float>(of.dropout);
  }
  /// As mask_map() says it for a card.
  CUtensorMap mask_map(int rows, Options& o) const {
    const int64_t* const s = c.mask_stride;
    o.copied = o.additive && !of.mask_f32, o.one_query = s[2] == 0;
    if (!o.copied) return {};
    const AttentionView view{const_cast<void*>(c.mask), s[0], s[1], s[2], 0};
    return Operand<T>::map_of(view, s[0] == 0 ? 1 : of.batch, s[1] == 0 ? 1 : of.heads, s[2] == 0 ? 1 : of.tq, of.tk,
                              s[2] == 0 ? 1 : rows);
  }

  /// As sequences_of() makes them for a card: a part for each sequence, one for the queries and one for the keys behind
  /// the last, and which of them tiles belong to.
  void make_parts(int q_rows, int k_rows) {
    parts.clear(), of_q.clear(), of_k.clear();
    int q0 = 0, k0 = 0;
    for (const auto& n : of.sequences) parts.push_back({q0, n[0], k0, n[1], 0, 0}), q0 += n[0], k0 += n[1];
    parts.push_back({q0, static_cast<int>(of.tq) - q0, 0, 0, 0, 0});
    parts.push_back({0, 0, k0, static_cast<int>(of.tk) - k0, 0, 0});
    for (size_t i = 0; i < parts.size(); ++i) {
      Sequence& s = parts[i];
      s.q_tile = static_cast<int>(of_q.size()), s.k_tile = static_cast<int>(of_k.size());
      of_q.resize(of_q.size() + static_cast<size_t>((s.tq + q_rows - 1) / q_rows), static_cast<int>(i));
      of_k.resize(of_k.size() + static_cast<size_t>((s.tk + k_rows - 1) / k_rows), static_cast<int>(i));
    }
    of_q.resize(static_cast<size_t>(of.tq / q_rows) + parts.size(), -1);
    of_k.resize(static_cast<size_t>(of.tk / k_rows) + parts.size(), -1);
    ticket = 0;
  }
  Sequences sequences() {
    return {
        parts.data(), of_q.data(), of_k.data(), static_cast<int64_t>(of_q.size()), static_cast<int64_t>(of_k.size()),
        &ticket};
  }
  /// What query i may see: its sequence, or everything.
  Sequence part_of(int64_t i) const {
    for (const Sequence& s : parts)
      if (i >= s.q0 && i < s.q0 + s.tq) return s;
    return {0, static_cast<int>(of.tq), 0, static_cast<int>(of.tk), 0, 0};
  }

  // ---- in double precision ----

  struct Rows {
    std::vector<double> q, k, v, grad_out, lse, out, grad_q, grad_k, grad_v;
  };
  int64_t place(int64_t b, int64_t heads, int64_t h, int64_t time, int64_t i) const {
    return ((b * heads + h) * time + i) * of.d;
  }
  Rows expected(bool gradients) const {
    Rows r{q.numbers(), k.numbers(), v.numbers(), grad_out.numbers(), {}, {}, {}, {}, {}};
    const auto n = [&](int64_t heads, int64_t time) { return static_cast<size_t>(of.batch * heads * time * of.d); };
    r.lse.resize(lse.size()), r.out.resize(n(of.heads, of.tq)), r.grad_q.resize(n(of.heads, of.tq));
    r.grad_k.resize(n(of.kv_heads, of.tk)), r.grad_v.resize(n(of.kv_heads, of.tk));
    for (int64_t b = 0; b < of.batch; ++b)
      for (int64_t h = 0; h < of.heads; ++h)
        for (int64_t i = 0; i < of.tq; ++i) add_row(r, b, h, i, gradients);
    return r;
  }
  void add_row(Rows& r, int64_t b, int64_t h, int64_t i, bool gradients) const {
    const int64_t hk = h / (of.heads / of.kv_heads), head = b * of.heads + h;
    const int64_t end = of.lengths ? std::max<int64_t>(lengths[static_cast<size_t>(b)], 0) : of.tk;
    const auto row = static_cast<size_t>(place(b, of.heads, h, of.tq, i));
    const double *const qi = &r.q[row], *const go = &r.grad_out[row];
    std::vector<double> s(static_cast<size_t>(of.tk), -INFINITY), slope(s.size(), 1);
    double top = of.sinks ? sinks[static_cast<size_t>(h)] : -INFINITY, sum = 0;
    const Sequence part = part_of(i);
    for (int64_t j = part.k0; j < std::min<int64_t>(end, part.k0 + part.tk); ++j) {
      const int64_t away = i - part.q0 + of.offset - (j - part.k0);
      if ((of.causal && away < 0) || (of.window > 0 && std::abs(away) >= of.window)) continue;
      double x = 0;
      const double* const kj = &r.k[static_cast<size_t>(place(b, of.kv_heads, hk, of.tk, j))];
      for (int64_t d = 0; d < of.d; ++d) x += qi[d] * kj[d];
      x *= c.scale;
      const auto at = static_cast<size_t>(j);
      if (of.soft_cap > 0) {
        const double u = std::tanh(x / of.soft_cap);
        x = of.soft_cap * u, slope[at] = 1 - u * u;
      }
      if (of.slopes) x -= slopes[static_cast<size_t>(head)] * static_cast<double>(std::abs(away));
      if (of.mask != Mask::none) x += mask_at(b, h, i, j);
      s[at] = x, top = std::max(top, x);
    }
    if (of.sinks) sum = std::exp(sinks[static_cast<size_t>(h)] - top);
    for (const double x : s) sum += x == -INFINITY ? 0 : std::exp(x - top);
    r.lse[static_cast<size_t>(head * of.tq + i)] = sum == 0 ? -INFINITY : top + std::log(sum);
    double *const o = &r.out[row], *const gq = &r.grad_q[row];
    std::vector<double> weights(s.size()), factors(s.size());
    for (int64_t j = 0; j < of.tk; ++j) {
      const auto at = static_cast<size_t>(j);
      if (s[at] == -INFINITY) continue;
      weights[at] = std::exp(s[at] - top) / sum;
      factors[at] = of.dropout == 0 ? 1 : keeps(head, i, j) ? 1 / (1 - of.dropout) : 0;
      const double* const vj = &r.v[static_cast<size_t>(place(b, of.kv_heads, hk, of.tk, j))];
      for (int64_t d = 0; d < of.d; ++d) o[d] += weights[at] * factors[at] * vj[d];
    }
    if (!gradients) return;
    double delta = 0;
    for (int64_t d = 0; d < of.d; ++d) delta += o[d] * go[d];
    if (of.grad_lse) delta -= grad_lse[static_cast<size_t>(head * of.tq + i)];
    for (int64_t j = 0; j < of.tk; ++j) {
      const auto at = static_cast<size_t>(j);
      if (s[at] == -INFINITY) continue;
      const auto key = static_cast<size_t>(place(b, of.kv_heads, hk, of.tk, j));
      const double *const kj = &r.k[key], *const vj = &r.v[key];
      double *const gk = &r.grad_k[key], *const gv = &r.grad_v[key];
      double dp = 0;
      for (int64_t d = 0; d < of.d; ++d) dp += go[d] * vj[d];
      const double ds = weights[at] * (dp * factors[at] - delta) * slope[at] * c.scale;
      for (int64_t d = 0; d < of.d; ++d) {
        gq[d] += ds * kj[d];
        gk[d] += ds * qi[d];
        gv[d] += weights[at] * factors[at] * go[d];
      }
    }
  }

  /// The first number of `got` that is not `want` to within `bound` of the largest, or nothing.
  static std::string difference(Operand<T>& got, const std::vector<double>& want, double bound) {
    double largest = 1;
    for (const double x : want) largest = std::max(largest, std::fabs(x));
    std::string found;
    size_t at = 0;
    got.each([&](int64_t b, int64_t h, int64_t i, int64_t d) {
      const double x = got(b, h, i, d), y = want[at++];
      if (found.empty() && !(std::fabs(x - y) <= bound * largest))
        found = cat("(", b, ", ", h, ", ", i, ", ", d, ") is ", x, ", not ", y);
    });
    if (found.empty() && got.written_over() > 0) found = "numbers beside it are written over";
    return found;
  }

  Case of;
  AttentionCall c;
  Operand<T> q, k, v, out, grad_out, grad_q, grad_k, grad_v;
  std::vector<float> lse, slopes, sinks, grad_lse, mask_f32;
  std::vector<T> mask_t;
  std::unique_ptr<bool[]> mask_bool;
  std::vector<int64_t> lengths;
  std::vector<uint32_t> seen, flags, kept;
  std::vector<Sequence> parts;
  std::vector<int> of_q, of_k;
  int ticket = 0;
};

}  // namespace
}  // namespace strata::attention_cuda
