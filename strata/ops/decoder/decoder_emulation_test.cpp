// The kernel of a decoder's step on the processor (strata/cuda/tile/emulation.cuh), from its own source, beside the
// same layers in double precision.

#define STRATA_TILE_EMULATION
#include "strata/ops/decoder/decoder_walk.cuh"

#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "strata/cuda/tile/emulation.cuh"

namespace strata::decoder {
namespace {

namespace emulation = cuda::tile::emulation;

double number(uint16_t bits) {
  return float_of(bits);
}
uint16_t bf16(double v) {
  return bits_of(static_cast<float>(v));
}

struct Sizes {
  int layers, dim, heads, kv_heads, head_size, width, capacity;
};

// A frozen matrix, and its numbers.
struct Matrix2 {
  int rows = 0, columns = 0;
  std::vector<uint8_t> codes, scales, zeros;
  std::vector<double> numbers;
  Rows view;
};

// Layers of random numbers and what a step needs beside them.
class Model {
 public:
  Model(const Sizes& s, Numbering kind, uint64_t seed, bool zeros = true)
      : sizes(s), kind_(kind), zeros_(zeros), random_(seed) {
    const int heads = (s.heads + 2 * s.kv_heads) * s.head_size;
    for (int l = 0; l < s.layers; ++l) {
      qkv.push_back(matrix(heads, s.dim));
      out.push_back(matrix(s.dim, s.heads * s.head_size));
      gate_up.push_back(matrix(2 * s.width, s.dim));
      down.push_back(matrix(s.dim, s.width));
      norm1.push_back(numbers(s.dim, 0.5, 1)), norm2.push_back(numbers(s.dim, 0.5, 1));
      k.push_back(numbers(s.kv_heads * s.capacity * s.head_size, 1, 0));
      v.push_back(numbers(s.kv_heads * s.capacity * s.head_size, 1, 0));
    }
    x = numbers(s.dim, 1, 0);
    for (int i = 0; i < s.head_size / 2; ++i) cos.push_back(std::cos(0.3f * i)), sin.push_back(std::sin(0.3f * i));
  }

  // The step in double precision; leaves new keys and values in these caches.
  std::vector<double> reference(int64_t place, std::vector<std::vector<uint16_t>>& keys,
                                std::vector<std::vector<uint16_t>>& values) const {
    const Sizes& s = sizes;
    const int size = s.head_size, half = size / 2;
    std::vector<double> stream;
    for (const uint16_t b : x) stream.push_back(number(b));
    for (int l = 0; l < s.layers; ++l) {
      const auto at = static_cast<size_t>(l);
      const std::vector<double> all = times(qkv[at], normed(stream, norm1[at]));
      const auto turned = [&](int head, int d) {
        const double a = all[head * size + d % half], b = all[head * size + d % half + half];
        return d < half ? a * cos[d % half] - b * sin[d % half] : b * cos[d % half] + a * sin[d % half];
      };
      std::vector<double> attended;
      for (int h = 0; h < s.kv_heads; ++h)
        for (int d = 0; d < size; ++d) {
          const auto to = static_cast<size_t>((int64_t{h} * s.capacity + place) * size + d);
          keys[at][to] = bf16(turned(s.heads + h, d));
          values[at][to] = bf16(all[(s.heads + s.kv_heads + h) * size + d]);
        }
      for (int h = 0; h < s.heads; ++h) {
        const int64_t of = int64_t{h / (s.heads / s.kv_heads)} * s.capacity;
        std::vector<double> weight;
        double total = 0;
        for (int64_t p = 0; p <= place; ++p) {
          double score = 0;
          for (int d = 0; d < size; ++d) score += turned(h, d) * number(keys[at][(of + p) * size + d]);
          weight.push_back(std::exp(score / std::sqrt(size)));
          total += weight.back();
        }
        for (int d = 0; d < size; ++d) {
          double sum = 0;
          for (int64_t p = 0; p <= place; ++p) sum += weight[p] * number(values[at][(of + p) * size + d]);
          attended.push_back(number(bf16(sum / total)));
        }
      }
      add(stream, times(out[at], attended));
      const std::vector<double> both = times(gate_up[at], normed(stream, norm2[at]));
      std::vector<double> inner;
      for (int i = 0; i < s.width; ++i)
        inner.push_back(number(bf16(both[i] / (1 + std::exp(-both[i])) * both[s.width + i])));
      add(stream, times(down[at], inner));
    }
    return stream;
  }

  Sizes sizes;
  std::vector<Matrix2> qkv, out, gate_up, down;
  std::vector<std::vector<uint16_t>> norm1, norm2, k, v;
  std::vector<uint16_t> x;
  std::vector<float> cos, sin;
  static constexpr int kBlock = 128;

 private:
  std::vector<uint16_t> numbers(int64_t n, double most, double middle) {
    std::uniform_real_distribution<double> drawn(middle - most, middle + most);
    std::vector<uint16_t> all;
    for (int64_t i = 0; i < n; ++i) all.push_back(bf16(drawn(random_)));
    return all;
  }
  Matrix2 matrix(int rows, int columns) {
    Matrix2 m{.rows = rows, .columns = columns, .codes = {}, .scales = {}, .zeros = {}, .numbers = {}, .view = {}};
    const double most = 1.5 / std::sqrt(columns);
    if (kind_ == Numbering::bf16) {
      const std::vector<uint16_t> all = numbers(int64_t{rows} * columns, most, 0);
      m.codes.resize(all.size() * 2);
      std::memcpy(m.codes.data(), all.data(), m.codes.size());
      for (const uint16_t b : all) m.numbers.push_back(number(b));
      m.view.row_bytes = 2 * columns;
    } else {
      const bool four = kind_ == Numbering::int4;
      const int blocks = columns / kBlock, block_rows = four ? 1 : kBlock, grid = (rows + block_rows - 1) / block_rows;
      std::uniform_real_distribution<double> drawn(0.5, 1);
      std::vector<float> scale;
      for (int i = 0; i < grid * blocks; ++i)
        scale.push_back(static_cast<float>(number(bf16(drawn(random_) * most * (four ? 0.15 : 0.01)))));
      for (const float f : scale) {
        const auto* const b = reinterpret_cast<const uint8_t*>(&f);
        m.scales.insert(m.scales.end(), four ? b + 2 : b, b + 4);
        if (four) m.zeros.push_back(zeros_ ? static_cast<uint8_t>(random_() % 16) : uint8_t{8});
      }
      m.codes.resize(static_cast<size_t>(rows) * columns / (four ? 2 : 1));
      for (uint8_t& c : m.codes) {
        c = static_cast<uint8_t>(random_());
        if (!four && (c & 0x7f) == 0x7f) c ^= 0x40;  // no NaN
      }
      m.view = {.row_bytes = columns / (four ? 2 : 1),
                .scale_bytes = blocks * (four ? 2 : 4),
                .zero_bytes = four ? blocks : 0,
                .row_shift = four ? 0 : 7};
      for (int r = 0; r < rows; ++r)
        for (int c = 0; c < columns; ++c) {
          const auto group = static_cast<size_t>(r / block_rows * blocks + c / kBlock);
          if (four) {
            const uint8_t two = m.codes[static_cast<size_t>(r) * columns / 2 + c / 32 * 16 + c % 16];
            m.numbers.push_back(((c % 32 < 16 ? two & 15 : two >> 4) - m.zeros[group]) *
                                static_cast<double>(scale[group]));
          } else {
            m.numbers.push_back(fp8_value(m.codes[static_cast<size_t>(r) * columns + c], kE4m3) *
                                static_cast<double>(scale[group]));
          }
        }
    }
    return m;
  }
  static std::vector<double> times(const Matrix2& m, const std::vector<double>& x) {
    std::vector<double> y(static_cast<size_t>(m.rows));
    for (int r = 0; r < m.rows; ++r)
      for (int c = 0; c < m.columns; ++c) y[r] += m.numbers[static_cast<size_t>(r) * m.columns + c] * x[c];
    return y;
  }
  static std::vector<double> normed(const std::vector<double>& x, const std::vector<uint16_t>& weight) {
    double sum = 0;
    for (const double v : x) sum += v * v;
    std::vector<double> y;
    for (size_t i = 0; i < x.size(); ++i)
      y.push_back(number(bf16(x[i] / std::sqrt(sum / static_cast<double>(x.size()) + 1e-5) * number(weight[i]))));
    return y;
  }
  static void add(std::vector<double>& x, const std::vector<double>& y) {
    for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }
  Numbering kind_;
  bool zeros_;
  std::mt19937_64 random_;
};

template <class T>
struct alignas(16) Bytes {
  explicit Bytes(size_t n) : memory(n * sizeof(T) / 16 + 2) {}
  explicit Bytes(const std::vector<T>& from) : Bytes(from.size()) {
    std::memcpy(memory.data(), from.data(), from.size() * sizeof(T));
  }
  T* data() { return reinterpret_cast<T*>(memory.data()); }
  std::vector<uint4> memory;  // aligned as copies want it
};

template <Numbering kKind, int kHeadSize>
void kernel(const Walk w, const Room room) {
  walk_block<kKind, kHeadSize>(w, room);
}

template <Numbering kKind, int kHeadSize>
void check_step(const Sizes& s, const std::vector<int64_t>& places, int blocks, uint64_t seed, int limit = kSharedLimit,
                bool runs = true, bool zeros = true) {
  Model m(s, kKind, seed, zeros);
  auto keys = m.k, values = m.v;
  std::vector<std::unique_ptr<Bytes<uint8_t>>> kept;
  Walk w;
  const auto view = [&](const Matrix2& from) {
    Rows r = from.view;
    const auto keep = [&](const std::vector<uint8_t>& b) -> const uint8_t* {
      if (b.empty()) return nullptr;
      kept.push_back(std::make_unique<Bytes<uint8_t>>(b));
      return kept.back()->data();
    };
    r.codes = keep(from.codes), r.scales = keep(from.scales), r.zeros = zeros ? keep(from.zeros) : nullptr;
    return r;
  };
  std::vector<Bytes<uint16_t>> own_k, own_v;
  for (const auto& one : m.k) own_k.emplace_back(one);
  for (const auto& one : m.v) own_v.emplace_back(one);
  for (int l = 0; l < s.layers; ++l) {
    const auto at = static_cast<size_t>(l);
    w.layers[l] = {m.norm1[at].data(),  m.norm2[at].data(), view(m.qkv[at]),  view(m.out[at]),
                   view(m.gate_up[at]), view(m.down[at]),   own_k[at].data(), own_v[at].data()};
  }
  const int heads = (s.heads + 2 * s.kv_heads) * s.head_size;
  Bytes<float> stream(static_cast<size_t>(s.dim)), qkv(static_cast<size_t>(heads)),
      parts(static_cast<size_t>(s.heads) * kMostSplits * (s.head_size + 4));
  Bytes<uint16_t> attended(static_cast<size_t>(s.heads) * s.head_size), inner(static_cast<size_t>(s.width)), x(m.x),
      y(static_cast<size_t>(s.dim));
  for (const int64_t place : places) {
    SCOPED_TRACE(place);
    unsigned arrivals = 0;
    std::vector<int> done(static_cast<size_t>(s.heads));
    const int64_t running = runs ? 1 : 0;
    w.count = s.layers, w.dim = s.dim, w.heads = s.heads, w.kv_heads = s.kv_heads, w.width = s.width;
    w.head_stride = int64_t{s.capacity} * s.head_size, w.eps = 1e-5f;
    w.block_shift = kKind == Numbering::bf16 ? 0 : 7;
    w.scale_size = kKind == Numbering::bf16 ? 0 : kKind == Numbering::int4 ? 2 : 4;
    w.x = x.data(), w.y = y.data(), w.place = &place, w.running = &running, w.cos = m.cos.data(), w.sin = m.sin.data();
    w.stream = stream.data(), w.qkv = qkv.data(), w.parts = parts.data();
    w.attended = attended.data(), w.inner = inner.data(), w.arrivals = &arrivals, w.done = done.data();
    const Room room = room_of(std::max(s.width, s.dim), kKind != Numbering::bf16, s.head_size, limit);
    ASSERT_GE(room.slots, 2);
    const std::string failure =
        emulation::launch_together(kernel<kKind, kHeadSize>, static_cast<unsigned>(blocks), kThreads,
                                   static_cast<size_t>(room.bytes), seed + static_cast<uint64_t>(place), w, room);
    ASSERT_EQ(failure, "");
    if (!runs) {
      for (size_t l = 0; l < m.k.size(); ++l) {
        EXPECT_EQ(std::memcmp(own_k[l].data(), m.k[l].data(), 2 * m.k[l].size()), 0);
        EXPECT_EQ(std::memcmp(own_v[l].data(), m.v[l].data(), 2 * m.v[l].size()), 0);
      }
      continue;
    }
    const std::vector<double> want = m.reference(place, keys, values);
    double most = 0, error = 0;
    for (int i = 0; i < s.dim; ++i) {
      const double d = std::fabs(number(y.data()[i]) - want[i]);
      if (!(d <= error)) error = d;
      most = std::max(most, std::fabs(want[i]));
    }
    EXPECT_LT(error, 0.01 * most) << "of " << most;
    for (size_t l = 0; l < m.k.size(); ++l)
      for (size_t i = 0; i < m.k[l].size(); ++i) {
        ASSERT_NEAR(number(own_k[l].data()[i]), number(keys[l][i]), 0.02) << "key " << i << " of layer " << l;
        ASSERT_NEAR(number(own_v[l].data()[i]), number(values[l][i]), 0.02) << "value " << i << " of layer " << l;
      }
  }
}

TEST(DecoderWalk, OfBf16IsTheSameInDouble) {
  check_step<Numbering::bf16, 64>({2, 256, 4, 2, 64, 392, 160}, {0, 1, 70, 159}, 3, 1);
}
TEST(DecoderWalk, OfOneBlockAndOfManyHeads) {
  check_step<Numbering::bf16, 64>({1, 264, 6, 1, 64, 136, 72}, {5, 71}, 1, 2);
  check_step<Numbering::bf16, 128>({2, 512, 4, 4, 128, 2600, 72}, {3, 71}, 2, 3, 160000);
}
TEST(DecoderWalk, ATextThatRestsKeepsItsCache) {
  check_step<Numbering::bf16, 64>({2, 128, 2, 2, 64, 136, 72}, {7}, 2, 8, kSharedLimit, false);
}
TEST(DecoderWalk, OfE4m3IsTheSameInDouble) {
  check_step<Numbering::e4m3, 64>({2, 512, 8, 2, 64, 1024, 80}, {0, 79}, 3, 4);
}
TEST(DecoderWalk, OfInt4IsTheSameInDouble) {
  check_step<Numbering::int4, 64>({1, 2048, 32, 1, 64, 2048, 70}, {69}, 2, 5);
}

TEST(DecoderWalk, OfInt4WithoutZerosTakesEightAway) {
  check_step<Numbering::int4, 64>({1, 2048, 32, 1, 64, 2048, 40}, {3}, 2, 9, kSharedLimit, true, false);
}

TEST(DecoderWalk, ScalesOfAPieceAreRunsOfSixteenBytes) {
  EXPECT_TRUE(scales_align(2048, 32, 7, 2, true));     // 4,096 columns of int4, groups of 128
  EXPECT_TRUE(scales_align(7168, 32, 7, 2, true));     // 14,336: the last piece has 16 groups
  EXPECT_TRUE(scales_align(4096, 16, 7, 4, false));    // 4,096 of e4m3
  EXPECT_TRUE(scales_align(2048, 32, 9, 2, false));    // groups of 512: eight scales,
  EXPECT_FALSE(scales_align(2048, 32, 9, 2, true));    // but eight zeros are half of 16 bytes
  EXPECT_FALSE(scales_align(4096, 16, 10, 4, false));  // two scales a piece
  EXPECT_FALSE(scales_align(4096, 16, 12, 4, false));  // a scale for more than a piece
}

}  // namespace
}  // namespace strata::decoder
