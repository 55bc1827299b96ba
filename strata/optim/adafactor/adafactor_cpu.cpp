#include <algorithm>
#include <cmath>
#include <memory>
#include <type_traits>
#include <vector>

#include "strata/core/parallel.h"
#include "strata/optim/adafactor/adafactor_kernels.h"

namespace strata::optim {
namespace {

// Tensors are worked on in blocks of about this many elements; the blocks, and so the order of every sum, depend on
// the tensor's shape alone.
constexpr int64_t kBlock = 16384;
constexpr int64_t kMaxBlocks = 64;  // of one matrix: each has column sums of its own

// Elements of an array as T; `buffer` holds those that are stored as something else.
const double* load(const void* array, DType, int64_t at, int64_t, double*) {
  return static_cast<const double*>(array) + at;
}
const float* load(const void* array, DType dtype, int64_t at, int64_t n, float* buffer) {
  return widened(array, dtype, at, n, buffer);
}

// One tensor's update, in passes over its blocks; between two passes come the sums over all blocks.
struct TensorUpdate {
  virtual ~TensorUpdate() = default;
  virtual int64_t blocks() const = 0;
  virtual void add_moments(int64_t block) = 0;  // running second moments of rows, sums of columns, squares of p
  virtual void finish_moments() = 0;
  virtual void measure_update(int64_t block) = 0;  // squares of the unscaled update
  virtual void finish_measure() = 0;
  virtual void apply(int64_t block) = 0;
};

template <class T>
double sum_of(const T* x, int64_t n) {
  T lanes[16] = {};
  int64_t i = 0;
  for (; i + 16 <= n; i += 16)
    for (int k = 0; k < 16; ++k) lanes[k] += x[i + k];
  double sum = 0;
  for (T lane : lanes) sum += static_cast<double>(lane);
  for (; i < n; ++i) sum += static_cast<double>(x[i]);
  return sum;
}

double total_of(const std::vector<double>& parts) {
  double total = 0;
  for (double p : parts) total += p;
  return total;
}

template <class T>
class Update final : public TensorUpdate {
 public:
  explicit Update(const AdafactorJob& j)
      : j_(j),
        v_(static_cast<T*>(j.variance)),
        col_(static_cast<T*>(j.columns)),
        scale_(static_cast<T>(j.grad_scale)),
        numel_(j.batch * j.rows * j.cols) {
    rows_per_block_ = std::max({int64_t{1}, kBlock / j.cols, (j.rows + kMaxBlocks - 1) / kMaxBlocks});
    blocks_per_matrix_ = (j.rows + rows_per_block_ - 1) / rows_per_block_;
    blocks_ = col_ ? j.batch * blocks_per_matrix_ : (numel_ + kBlock - 1) / kBlock;
    squares_.resize(static_cast<size_t>(blocks_));
    if (col_) sums_.resize(static_cast<size_t>(blocks_ * j.cols));
  }
  int64_t blocks() const override { return blocks_; }

  void add_moments(int64_t block) override {
    const auto [begin, end] = range(block);
    if (!col_) {
      const T keep = static_cast<T>(j_.keep), rest = static_cast<T>(1 - j_.keep), eps = static_cast<T>(j_.eps1);
      for (int64_t i = begin; i < end; i += kRun) {
        const int64_t n = std::min(kRun, end - i);
        T buffer[kRun];
        const T* grads = load(j_.grad, j_.grad_dtype, i, n, buffer);
        for (int64_t k = 0; k < n; ++k) {
          const T g = grads[k] * scale_;
          v_[i + k] = keep * v_[i + k] + rest * (g * g + eps);
        }
      }
    } else {
      T* sum = sums_.data() + block * j_.cols;
      for (int64_t i = begin; i < end; i += j_.cols) {
        double row = 0;
        for (int64_t c = 0; c < j_.cols; c += kRun) {
          const int64_t n = std::min(kRun, j_.cols - c);
          T square[kRun], buffer[kRun];
          const T* grads = load(j_.grad, j_.grad_dtype, i + c, n, buffer);
          for (int64_t k = 0; k < n; ++k) {
            const T g = grads[k] * scale_;
            square[k] = g * g;
            sum[c + k] += g * g;
          }
          row += sum_of(square, n);
        }
        blend(v_[i / j_.cols], row / static_cast<double>(j_.cols));
      }
    }
    double squares = 0;
    for (int64_t i = begin; i < end; i += kRun) {
      T square[kRun], buffer[kRun];
      const int64_t n = std::min(kRun, end - i);
      const T* p = load(j_.param, j_.dtype, i, n, buffer);
      for (int64_t k = 0; k < n; ++k) square[k] = p[k] * p[k];
      squares += sum_of(square, n);
    }
    squares_[static_cast<size_t>(block)] = squares;
  }

  void finish_moments() override {
    param_rms_ = std::sqrt(total_of(squares_) / static_cast<double>(numel_));
    if (!col_) return;
    row_factor_.resize(static_cast<size_t>(j_.batch * j_.rows));
    col_factor_.resize(static_cast<size_t>(j_.batch * j_.cols));
    std::vector<double> mean(static_cast<size_t>(j_.cols));
    for (int64_t m = 0; m < j_.batch; ++m) {
      std::fill(mean.begin(), mean.end(), 0.0);
      for (int64_t b = 0; b < blocks_per_matrix_; ++b) {
        const T* sum = sums_.data() + (m * blocks_per_matrix_ + b) * j_.cols;
        for (int64_t c = 0; c < j_.cols; ++c) mean[static_cast<size_t>(c)] += static_cast<double>(sum[c]);
      }
      for (int64_t c = 0; c < j_.cols; ++c) {
        T& v = col_[m * j_.cols + c];
        blend(v, mean[static_cast<size_t>(c)] / static_cast<double>(j_.rows));
        col_factor_[static_cast<size_t>(m * j_.cols + c)] = static_cast<T>(1 / std::sqrt(static_cast<double>(v)));
      }
      const double row_mean = sum_of(v_ + m * j_.rows, j_.rows) / static_cast<double>(j_.rows);
      for (int64_t r = m * j_.rows; r < (m + 1) * j_.rows; ++r)
        row_factor_[static_cast<size_t>(r)] = static_cast<T>(std::sqrt(row_mean / static_cast<double>(v_[r])));
    }
  }

  void measure_update(int64_t block) override {
    double sum = 0;
    for_updates(block, [&](int64_t, const T* u, int64_t n) {
      T square[kRun];
      for (int64_t i = 0; i < n; ++i) square[i] = u[i] * u[i];
      sum += sum_of(square, n);
    });
    squares_[static_cast<size_t>(block)] = sum;
  }

  void finish_measure() override {
    const double rms = std::sqrt(total_of(squares_) / static_cast<double>(numel_));
    step_ = static_cast<T>(std::max(j_.eps2, param_rms_) * j_.rate / std::max(1.0, rms / j_.clip_threshold));
  }

  void apply(int64_t block) override {
    const T decay = static_cast<T>(j_.decay), step = step_;
    for_updates(block, [&](int64_t at, const T* u, int64_t n) {
      T buffer[kRun];
      const T* p = load(j_.param, j_.dtype, at, n, buffer);
      T* to = buffer;
      if (j_.dtype == dtype_of<T>) to = static_cast<T*>(j_.param) + at;
      for (int64_t i = 0; i < n; ++i) to[i] = p[i] * decay - step * u[i];
      if constexpr (std::is_same_v<T, float>) {
        narrow(to, j_.param, j_.dtype, at, n, j_.rounding);
        if (j_.low) narrow(to, j_.low, j_.low_dtype, at, n, {});
      }
    });
  }

 private:
  struct Range {
    int64_t begin, end;
  };
  Range range(int64_t block) const {
    if (!col_) return {block * kBlock, std::min((block + 1) * kBlock, numel_)};
    const int64_t m = block / blocks_per_matrix_, r = block % blocks_per_matrix_ * rows_per_block_;
    return {(m * j_.rows + r) * j_.cols, (m * j_.rows + std::min(r + rows_per_block_, j_.rows)) * j_.cols};
  }

  // A running mean of squares.
  void blend(T& v, double mean) const {
    v = static_cast<T>(j_.keep * static_cast<double>(v) + (1 - j_.keep) * (mean + j_.eps1));
  }

  // Calls f(position, u, n) with runs of the unscaled update of one block.
  template <class F>
  void for_updates(int64_t block, F&& f) const {
    const auto [begin, end] = range(block);
    T u[kRun], buffer[kRun];
    if (!col_) {
      for (int64_t i = begin; i < end; i += kRun) {
        const int64_t n = std::min(kRun, end - i);
        const T* grads = load(j_.grad, j_.grad_dtype, i, n, buffer);
        for (int64_t k = 0; k < n; ++k) u[k] = grads[k] * scale_ / std::sqrt(v_[i + k]);
        f(i, u, n);
      }
      return;
    }
    for (int64_t i = begin; i < end; i += j_.cols) {
      const int64_t row = i / j_.cols;
      const T factor = row_factor_[static_cast<size_t>(row)] * scale_;
      const T* cols = col_factor_.data() + row / j_.rows * j_.cols;
      for (int64_t c = 0; c < j_.cols; c += kRun) {
        const int64_t n = std::min(kRun, j_.cols - c);
        const T* grads = load(j_.grad, j_.grad_dtype, i + c, n, buffer);
        for (int64_t k = 0; k < n; ++k) u[k] = grads[k] * factor * cols[c + k];
        f(i + c, u, n);
      }
    }
  }

  AdafactorJob j_;
  T* v_;
  T* col_;
  T scale_;
  int64_t numel_, rows_per_block_ = 1, blocks_per_matrix_ = 1, blocks_ = 0;
  double param_rms_ = 0;
  T step_ = 0;
  std::vector<double> squares_;
  std::vector<T> sums_, row_factor_, col_factor_;
};

std::unique_ptr<TensorUpdate> make_update(const AdafactorJob& j) {
  if (j.dtype == DType::f64) return std::make_unique<Update<double>>(j);
  return std::make_unique<Update<float>>(j);
}

}  // namespace

void run_adafactor(std::span<const AdafactorJob> jobs) {
  std::vector<std::unique_ptr<TensorUpdate>> updates;
  struct Block {
    TensorUpdate* update;
    int64_t index;
  };
  std::vector<Block> blocks;
  for (const AdafactorJob& j : jobs) {
    updates.push_back(make_update(j));
    for (int64_t b = 0; b < updates.back()->blocks(); ++b) blocks.push_back({updates.back().get(), b});
  }
  const auto pass = [&](void (TensorUpdate::*f)(int64_t)) {
    parallel_for(0, static_cast<int64_t>(blocks.size()), 2, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        (blocks[static_cast<size_t>(i)].update->*f)(blocks[static_cast<size_t>(i)].index);
    });
  };
  const auto finish = [&](void (TensorUpdate::*f)()) {
    parallel_for(0, static_cast<int64_t>(updates.size()), 4, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) (updates[static_cast<size_t>(i)].get()->*f)();
    });
  };
  pass(&TensorUpdate::add_moments);
  finish(&TensorUpdate::finish_moments);
  pass(&TensorUpdate::measure_update);
  finish(&TensorUpdate::finish_measure);
  pass(&TensorUpdate::apply);
}

}  // namespace strata::optim
