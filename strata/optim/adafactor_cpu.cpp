#include <algorithm>
#include <cmath>
#include <vector>

#include "strata/core/parallel.h"
#include "strata/optim/adafactor_kernels.h"

namespace strata::optim {
namespace {

// Rows are worked on in blocks of this many elements or more; the blocks, and so the order of every sum, depend on the
// tensor's shape alone.
constexpr int64_t kBlock = 16384;
constexpr int64_t kMaxBlocks = 64;  // blocks with column sums of their own

template <class T, class G>
class Update {
 public:
  explicit Update(const AdafactorJob& j)
      : j_(j), p_(static_cast<T*>(j.param)), g_(static_cast<const G*>(j.grad)), scale_(static_cast<T>(j.grad_scale)) {}

  void run() {
    const int64_t total = j_.batch * j_.rows;  // of rows
    rows_per_block_ = std::max({int64_t{1}, kBlock / j_.cols, (j_.rows + kMaxBlocks - 1) / kMaxBlocks});
    if (!j_.columns) {
      // A vector is cut into pieces; each is a block.
      piece_ = kBlock;
      blocks_ = (total * j_.cols + piece_ - 1) / piece_;
    } else {
      blocks_per_matrix_ = (j_.rows + rows_per_block_ - 1) / rows_per_block_;
      blocks_ = j_.batch * blocks_per_matrix_;
    }
    moments();
    apply();
  }

 private:
  // Calls f(block, begin, end) with the elements of each block, in parallel.
  template <class F>
  void for_blocks(F&& f) const {
    parallel_for(0, blocks_, 2, [&](int64_t first, int64_t last) {
      for (int64_t b = first; b < last; ++b) {
        if (!j_.columns) {
          f(b, b * piece_, std::min((b + 1) * piece_, j_.batch * j_.rows * j_.cols));
        } else {
          const int64_t m = b / blocks_per_matrix_, r = b % blocks_per_matrix_ * rows_per_block_;
          f(b, (m * j_.rows + r) * j_.cols, (m * j_.rows + std::min(r + rows_per_block_, j_.rows)) * j_.cols);
        }
      }
    });
  }

  // The running second moments, and the mean square of the parameter.
  void moments() {
    std::vector<double> squares(static_cast<size_t>(blocks_));
    if (!j_.columns) {
      T* v = static_cast<T*>(j_.variance);
      const T keep = static_cast<T>(j_.keep), rest = static_cast<T>(1 - j_.keep), eps = static_cast<T>(j_.eps1);
      for_blocks([&](int64_t b, int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const T g = static_cast<T>(g_[i]) * scale_;
          v[i] = keep * v[i] + rest * (g * g + eps);
        }
        squares[static_cast<size_t>(b)] = sum_of_squares(begin, end);
      });
    } else {
      T* row = static_cast<T*>(j_.variance);
      T* col = static_cast<T*>(j_.columns);
      std::vector<T> sums(static_cast<size_t>(blocks_ * j_.cols));
      for_blocks([&](int64_t b, int64_t begin, int64_t end) {
        T* sum = sums.data() + b * j_.cols;
        std::vector<T> square(static_cast<size_t>(j_.cols));
        for (int64_t i = begin; i < end; i += j_.cols) {
          for (int64_t c = 0; c < j_.cols; ++c) {
            const T g = static_cast<T>(g_[i + c]) * scale_;
            square[static_cast<size_t>(c)] = g * g;
            sum[c] += g * g;
          }
          const double mean = sum_of(square.data(), j_.cols) / static_cast<double>(j_.cols) + j_.eps1;
          T& r = row[i / j_.cols];
          r = static_cast<T>(j_.keep * static_cast<double>(r) + (1 - j_.keep) * mean);
        }
        squares[static_cast<size_t>(b)] = sum_of_squares(begin, end);
      });
      parallel_for(0, j_.batch * j_.cols, 4096, [&](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; ++i) {
          const int64_t m = i / j_.cols, c = i % j_.cols;
          double mean = 0;
          for (int64_t b = 0; b < blocks_per_matrix_; ++b)
            mean += static_cast<double>(sums[static_cast<size_t>((m * blocks_per_matrix_ + b) * j_.cols + c)]);
          mean = mean / static_cast<double>(j_.rows) + j_.eps1;
          col[i] = static_cast<T>(j_.keep * static_cast<double>(col[i]) + (1 - j_.keep) * mean);
        }
      });
    }
    double total = 0;
    for (double s : squares) total += s;
    param_rms_ = std::sqrt(total / elements());
  }

  // Factors of the update: U = g * row_factor * col_factor, or g / sqrt(v).
  void apply() {
    if (j_.columns) {
      const T* row = static_cast<const T*>(j_.variance);
      const T* col = static_cast<const T*>(j_.columns);
      row_factor_.resize(static_cast<size_t>(j_.batch * j_.rows));
      col_factor_.resize(static_cast<size_t>(j_.batch * j_.cols));
      for (int64_t m = 0; m < j_.batch; ++m) {
        double mean = 0;
        for (int64_t r = 0; r < j_.rows; ++r) mean += static_cast<double>(row[m * j_.rows + r]);
        mean /= static_cast<double>(j_.rows);
        for (int64_t r = m * j_.rows; r < (m + 1) * j_.rows; ++r)
          row_factor_[static_cast<size_t>(r)] = static_cast<T>(std::sqrt(mean / static_cast<double>(row[r])));
      }
      for (size_t c = 0; c < col_factor_.size(); ++c)
        col_factor_[c] = static_cast<T>(1 / std::sqrt(static_cast<double>(col[c])));
    }
    std::vector<double> squares(static_cast<size_t>(blocks_));
    for_blocks([&](int64_t b, int64_t begin, int64_t end) {
      double sum = 0;
      for_updates(begin, end, [&](int64_t, const T* u, int64_t n) {
        T square[kRun];
        for (int64_t i = 0; i < n; ++i) square[i] = u[i] * u[i];
        sum += sum_of(square, n);
      });
      squares[static_cast<size_t>(b)] = sum;
    });
    double total = 0;
    for (double s : squares) total += s;
    const double rms = std::sqrt(total / elements());
    const T step = static_cast<T>(std::max(j_.eps2, param_rms_) * j_.rate / std::max(1.0, rms / j_.clip_threshold));
    const T decay = static_cast<T>(j_.decay);
    for_blocks([&](int64_t, int64_t begin, int64_t end) {
      for_updates(begin, end, [&](int64_t at, const T* u, int64_t n) {
        for (int64_t i = 0; i < n; ++i) p_[at + i] = p_[at + i] * decay - step * u[i];
      });
    });
  }

  // Calls f(position, u, n) with runs of the unscaled update of the elements [begin, end).
  template <class F>
  void for_updates(int64_t begin, int64_t end, F&& f) const {
    T u[kRun];
    if (!j_.columns) {
      const T* v = static_cast<const T*>(j_.variance);
      for (int64_t i = begin; i < end; i += kRun) {
        const int64_t n = std::min(kRun, end - i);
        for (int64_t k = 0; k < n; ++k) u[k] = static_cast<T>(g_[i + k]) * scale_ / std::sqrt(v[i + k]);
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
        for (int64_t k = 0; k < n; ++k) u[k] = static_cast<T>(g_[i + c + k]) * factor * cols[c + k];
        f(i + c, u, n);
      }
    }
  }

  static double sum_of(const T* x, int64_t n) {
    T lanes[16] = {};
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
      for (int k = 0; k < 16; ++k) lanes[k] += x[i + k];
    double sum = 0;
    for (T lane : lanes) sum += static_cast<double>(lane);
    for (; i < n; ++i) sum += static_cast<double>(x[i]);
    return sum;
  }
  double sum_of_squares(int64_t begin, int64_t end) const {
    double sum = 0;
    for (int64_t i = begin; i < end; i += kRun) {
      T square[kRun];
      const int64_t n = std::min(kRun, end - i);
      for (int64_t k = 0; k < n; ++k) square[k] = p_[i + k] * p_[i + k];
      sum += sum_of(square, n);
    }
    return sum;
  }
  double elements() const { return static_cast<double>(j_.batch * j_.rows * j_.cols); }

  static constexpr int64_t kRun = 256;
  const AdafactorJob& j_;
  T* p_;
  const G* g_;
  T scale_;
  int64_t rows_per_block_ = 1, blocks_per_matrix_ = 1, blocks_ = 0, piece_ = kBlock;
  double param_rms_ = 0;
  std::vector<T> row_factor_, col_factor_;
};

}  // namespace

void run_adafactor(const AdafactorJob& job) {
  if (job.dtype == DType::f64) return Update<double, double>(job).run();
  if (job.grad_dtype == DType::bf16) return Update<float, BFloat16>(job).run();
  Update<float, float>(job).run();
}

}  // namespace strata::optim
