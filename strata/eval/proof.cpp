#include "strata/eval/proof.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "strata/core/error.h"
#include "strata/core/node.h"

namespace strata::eval {
namespace {

constexpr const char* kOp = "activation_proof";
// The largest prime that two bytes hold such that every finite bf16, and infinities, are below it.
constexpr uint32_t kPrime = 65497;

struct Point {
  int64_t place = 0;
  uint16_t bits = 0;
};

// The largest by size in bf16, equal ones by place.
std::vector<Point> largest(const Tensor& activations, int64_t top) {
  check(top > 0 && top <= activations.numel(), kOp, "the ", top, " largest of ", activations.numel(),
        " activations are asked for");
  check<DTypeError>(is_floating(activations.dtype()), kOp, "activations are floating, got ", activations.dtype());
  const NoGrad guard;
  const Tensor low = activations.detach().to(DType::bf16).to(Device::cpu()).contiguous();
  const auto* bits = static_cast<const uint16_t*>(low.raw_data());
  std::vector<int64_t> order(static_cast<size_t>(low.numel()));
  std::iota(order.begin(), order.end(), 0);
  // Without the sign, a bf16's bits are in the order of its size.
  const auto larger = [&](int64_t a, int64_t b) {
    const int x = bits[a] & 0x7FFF, y = bits[b] & 0x7FFF;
    return x != y ? x > y : a < b;
  };
  std::nth_element(order.begin(), order.begin() + top - 1, order.end(), larger);
  order.resize(static_cast<size_t>(top));
  std::sort(order.begin(), order.end(), larger);
  std::vector<Point> points;
  for (const int64_t i : order) {
    // What is no number has one spelling, below the prime.
    const bool nan = (bits[i] & 0x7FFF) > 0x7F80;
    points.push_back({i, nan ? uint16_t{0x7FC0} : bits[i]});
  }
  return points;
}

// The largest m below the prime that keeps the places apart.
uint32_t modulus_of(const std::vector<Point>& points) {
  std::vector<uint32_t> seen(kPrime + 1, 0);
  for (uint32_t m = kPrime; m >= points.size(); --m) {
    const bool apart = std::all_of(points.begin(), points.end(), [&](const Point& p) {
      uint32_t& mark = seen[static_cast<size_t>(p.place % m)];
      return std::exchange(mark, m) != m;
    });
    if (apart) return m;
  }
  throw ValueError(kOp, "no modulus keeps the places apart");
}

uint64_t power(uint64_t base, uint64_t exponent) {
  uint64_t result = 1;
  for (base %= kPrime; exponent; exponent >>= 1, base = base * base % kPrime)
    if (exponent & 1) result = result * base % kPrime;
  return result;
}

// Coefficients, the constant first, of the polynomial through the points: Newton's divided differences.
std::vector<uint32_t> interpolate(const std::vector<uint64_t>& x, std::vector<uint64_t> y) {
  const size_t n = x.size();
  for (size_t level = 1; level < n; ++level)
    for (size_t i = n - 1; i >= level; --i)
      y[i] = (y[i] + kPrime - y[i - 1]) % kPrime * power(x[i] + kPrime - x[i - level], kPrime - 2) % kPrime;
  std::vector<uint64_t> all(n, 0);
  for (size_t k = n; k-- > 0;) {
    // all = all * (X - x[k]) + y[k]
    for (size_t i = n - 1; i > 0; --i) all[i] = (all[i - 1] + all[i] * (kPrime - x[k])) % kPrime;
    all[0] = (all[0] * (kPrime - x[k]) + y[k]) % kPrime;
  }
  return {all.begin(), all.end()};
}

void put(std::vector<uint8_t>& out, uint32_t value) {
  out.push_back(static_cast<uint8_t>(value & 0xFF));
  out.push_back(static_cast<uint8_t>(value >> 8));
}

}  // namespace

std::vector<uint8_t> activation_proof(const Tensor& activations, int64_t top) {
  const std::vector<Point> points = largest(activations, top);
  const uint32_t m = modulus_of(points);
  std::vector<uint64_t> x, y;
  for (const Point& p : points) {
    x.push_back(static_cast<uint64_t>(p.place) % m);
    y.push_back(p.bits);
  }
  std::vector<uint8_t> proof;
  put(proof, m);
  for (const uint32_t c : interpolate(x, y)) put(proof, c);
  return proof;
}

ProofCheck check_proof(std::span<const uint8_t> proof, const Tensor& activations) {
  constexpr const char* kName = "check_proof";
  check(proof.size() >= 4 && proof.size() % 2 == 0, kName, "a proof of ", static_cast<int64_t>(proof.size()),
        " bytes is none");
  const auto at = [&](size_t i) {
    return static_cast<uint32_t>(proof[2 * i]) | static_cast<uint32_t>(proof[2 * i + 1]) << 8;
  };
  const uint32_t m = at(0);
  const size_t top = proof.size() / 2 - 1;
  check(m >= top && m <= kPrime, kName, "its modulus is ", static_cast<int64_t>(m));
  for (size_t i = 1; i <= top; ++i)
    check(at(i) < kPrime, kName, "coefficient ", static_cast<int64_t>(i - 1), " is ", static_cast<int64_t>(at(i)));
  ProofCheck result{.top = static_cast<int64_t>(top)};
  std::vector<double> distances;
  for (const Point& p : largest(activations, result.top)) {
    const uint64_t x = static_cast<uint64_t>(p.place) % m;
    uint64_t value = 0;
    for (size_t i = top; i >= 1; --i) value = (value * x + at(i)) % kPrime;
    if ((value & 0xFF80) != (p.bits & 0xFF80)) {
      ++result.other_exponents;
    } else {
      distances.push_back(std::abs(static_cast<double>(value & 0x7F) - static_cast<double>(p.bits & 0x7F)));
    }
  }
  if (distances.empty()) {
    result.mean_mantissa = result.median_mantissa = INFINITY;
    return result;
  }
  std::sort(distances.begin(), distances.end());
  const size_t n = distances.size();
  result.mean_mantissa = std::accumulate(distances.begin(), distances.end(), 0.0) / static_cast<double>(n);
  result.median_mantissa = (distances[(n - 1) / 2] + distances[n / 2]) / 2;
  return result;
}

std::vector<std::vector<uint8_t>> activation_proofs(const Tensor& hidden, int64_t every, int64_t top) {
  check<ShapeError>(hidden.dim() == 2, "activation_proofs", "activations are [T, dim], got ", hidden);
  check(every > 0, "activation_proofs", "a proof is of at least one row, got ", every);
  std::vector<std::vector<uint8_t>> proofs;
  for (int64_t row = 0; row < hidden.size(0); row += every)
    proofs.push_back(activation_proof(hidden.narrow(0, row, std::min(every, hidden.size(0) - row)), top));
  return proofs;
}

}  // namespace strata::eval
