#pragma once
// Matrices for tests of kernels of tiles on the processor.

#include <random>

#include "strata/cuda/tile/product.cuh"
#include "strata/cuda/tile/tensor_map.cuh"

namespace strata::cuda::tile::emulation {

/// What a stored number stands for.
template <class T>
double value(T v) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<double>(v);
  } else {
    return static_cast<double>(number<T>(reinterpret_cast<const uint8_t*>(&v)));
  }
}
template <class T>
T random_number(std::mt19937& random) {
  if constexpr (std::is_same_v<T, E4M3> || std::is_same_v<T, E5M2>) {
    const bool four = std::is_same_v<T, E4M3>;  // between 1/4 and 2
    return {static_cast<uint8_t>((random() & 0x80) | ((four ? 5 << 3 : 13 << 2) + random() % (four ? 24 : 12)))};
  } else if constexpr (std::is_same_v<T, int8_t>) {
    return static_cast<int8_t>(random());
  } else {
    return T(static_cast<float>(random() % 2001) / 1000 - 1);
  }
}

/// `batches` matrices whose rows are padded to whole 16 bytes, and 16 more, with bytes 0xff (NaN); full of these too
/// where there is no seed, as for results.
template <class T>
class Stored {
 public:
  Stored(int64_t batches, int64_t rows, int64_t columns, int seed = -1)
      : batches_(batches), rows_(rows), columns_(columns), step_((columns + kUnit - 1) / kUnit * kUnit + kUnit) {
    all_.resize(static_cast<size_t>(batches * rows * step_ + kUnit));
    std::memset(static_cast<void*>(all_.data()), 0xff, all_.size() * sizeof(T));
    start_ = (16 - reinterpret_cast<uintptr_t>(all_.data()) % 16) % 16 / sizeof(T);
    if (seed < 0) return;
    std::mt19937 random(static_cast<unsigned>(seed));
    for (int64_t z = 0; z < batches; ++z)
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < columns; ++j) at(z, i, j) = random_number<T>(random);
  }
  Stored(const Stored&) = delete;
  T& at(int64_t z, int64_t i, int64_t j) { return all_[start_ + static_cast<size_t>((z * rows_ + i) * step_ + j)]; }
  double operator()(int64_t z, int64_t i, int64_t j) { return value(at(z, i, j)); }
  Matrices matrices() {
    const auto bytes = static_cast<int64_t>(sizeof(T));
    return {&at(0, 0, 0), static_cast<int>(bytes), columns_, rows_, batches_, step_ * bytes, rows_ * step_ * bytes};
  }
  /// Whether what lies between the rows is as it was.
  bool padding_is_whole() {
    for (int64_t z = 0; z < batches_; ++z)
      for (int64_t i = 0; i < rows_; ++i) {
        const auto* const after = reinterpret_cast<const uint8_t*>(&at(z, i, 0) + columns_);
        for (size_t b = 0; b < static_cast<size_t>(step_ - columns_) * sizeof(T); ++b)
          if (after[b] != 0xff) return false;
      }
    return true;
  }

 private:
  static constexpr int64_t kUnit = 16 / static_cast<int64_t>(sizeof(T));
  int64_t batches_, rows_, columns_, step_;
  std::vector<T> all_;
  size_t start_;
};

}  // namespace strata::cuda::tile::emulation
