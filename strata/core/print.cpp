// Printing and reading back tensors. The text is that of PyTorch: 4 digits, one common format for all elements,
// scientific when they span too many magnitudes, and only the first and last 3 elements of each dimension of a large
// tensor.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "strata/core/dispatch.h"
#include "strata/core/node.h"
#include "strata/core/placement.h"
#include "strata/core/tensor.h"

namespace strata {
namespace {

constexpr int kPrecision = 4;
constexpr int64_t kThreshold = 1000;  // elements from which on a tensor is summarised
constexpr int64_t kEdge = 3;          // elements shown at each end of a summarised dimension
constexpr int kLineWidth = 80;

// Reads the element at a position in elements from the first, as double or as integer.
class Reader {
 public:
  // An empty tensor may have no bytes; it has no position to read either.
  explicit Reader(const Tensor& t)
      : pin_(t, Access::read), p_(t.numel() ? t.raw_data() : static_cast<const void*>(&dtype_)), dtype_(t.dtype()) {}
  double number(int64_t at) const {
    return dispatch_all(dtype_, "to_string", [&]<class T>() {
      return static_cast<double>(static_cast<compute_t<T>>(static_cast<const T*>(p_)[at]));
    });
  }
  int64_t integer(int64_t at) const {
    return dispatch_all(dtype_, "to_string", [&]<class T>() {
      return static_cast<int64_t>(static_cast<compute_t<T>>(static_cast<const T*>(p_)[at]));
    });
  }

 private:
  const Pin pin_;
  const void* p_;
  DType dtype_;
};

std::string format(const char* how, int precision, double v) {
  char text[64];
  std::snprintf(text, sizeof text, how, precision, v);
  return text;
}

// How all elements of one tensor are written, from those that will be shown.
class Format {
 public:
  Format(const Reader& reader, DType dtype, const std::vector<int64_t>& shown) : reader_(reader), dtype_(dtype) {
    if (is_floating(dtype)) choose(shown);
    for (int64_t at : shown)
      if (aligned(at)) width_ = std::max(width_, write(at).size());
  }
  std::string padded(int64_t at) const {
    const std::string s = write(at);
    return std::string(width_ - std::min(width_, s.size()), ' ') + s;
  }
  size_t width() const { return width_; }
  std::string plain(int64_t at) const { return write(at); }

 private:
  // As in PyTorch, inf, nan and 0 do not widen the columns of floating tensors.
  bool aligned(int64_t at) const {
    if (!is_floating(dtype_)) return true;
    const double v = reader_.number(at);
    return std::isfinite(v) && v != 0;
  }
  void choose(const std::vector<int64_t>& shown) {
    double least = HUGE_VAL, most = 0;
    bool any = false;
    for (int64_t at : shown) {
      const double v = std::fabs(reader_.number(at));
      if (!std::isfinite(v)) continue;
      whole_ = whole_ && v == std::ceil(v);
      if (v == 0) continue;
      least = std::min(least, v);
      most = std::max(most, v);
      any = true;
    }
    if (!any) return;
    scientific_ = most / least > 1000 || most > 1e8 || (!whole_ && least < 1e-4);
  }
  std::string write(int64_t at) const {
    if (dtype_ == DType::boolean) return reader_.integer(at) ? "True" : "False";
    if (!is_floating(dtype_)) return std::to_string(reader_.integer(at));
    const double v = reader_.number(at);
    if (std::isnan(v)) return "nan";
    if (std::isinf(v)) return v < 0 ? "-inf" : "inf";
    if (scientific_) return format("%.*e", kPrecision, v);
    if (whole_) return format("%.*f", 0, v) + ".";
    return format("%.*f", kPrecision, v);
  }

  const Reader& reader_;
  DType dtype_;
  bool whole_ = true, scientific_ = false;
  size_t width_ = 0;
};

bool summarised(const Tensor& t) {
  return t.numel() > kThreshold;
}

// Positions along a dimension that are shown; -1 stands for "...".
std::vector<int64_t> shown_positions(int64_t n, bool summarise) {
  std::vector<int64_t> r;
  for (int64_t i = 0; i < n; ++i) {
    if (summarise && n > 2 * kEdge && i == kEdge) {
      r.push_back(-1);
      i = n - kEdge;
    }
    r.push_back(i);
  }
  return r;
}

void collect(const Tensor& t, int64_t d, int64_t at, bool summarise, std::vector<int64_t>& out) {
  if (d == t.dim()) {
    out.push_back(at);
    return;
  }
  for (int64_t i : shown_positions(t.shape()[d], summarise))
    if (i >= 0) collect(t, d + 1, at + i * t.strides()[d], summarise, out);
}

std::string write_tensor(const Tensor& t, int64_t d, int64_t at, int indent, bool summarise, const Format& format) {
  const std::vector<int64_t> positions = shown_positions(t.shape()[d], summarise);
  std::string s = "[";
  if (d == t.dim() - 1) {
    const int64_t per_line = std::max<int64_t>(1, (kLineWidth - indent) / static_cast<int64_t>(format.width() + 2));
    for (size_t i = 0; i < positions.size(); ++i) {
      if (i) s += static_cast<int64_t>(i) % per_line ? ", " : ",\n" + std::string(static_cast<size_t>(indent + 1), ' ');
      s += positions[i] < 0 ? " ..." : format.padded(at + positions[i] * t.strides()[d]);
    }
    return s + "]";
  }
  for (size_t i = 0; i < positions.size(); ++i) {
    if (i)
      s += "," + std::string(static_cast<size_t>(t.dim() - d - 1), '\n') +
           std::string(static_cast<size_t>(indent + 1), ' ');
    s += positions[i] < 0 ? "..."
                          : write_tensor(t, d + 1, at + positions[i] * t.strides()[d], indent + 1, summarise, format);
  }
  return s + "]";
}

// Copies of `from` the ends of each dimension from d on that is longer than in `to`.
void copy_ends(const Tensor& to, const Tensor& from, int d) {
  if (d == from.dim()) {
    Tensor(to).copy_(from);
  } else if (to.size(d) == from.size(d)) {
    copy_ends(to, from, d + 1);
  } else {
    copy_ends(to.narrow(d, 0, kEdge), from.narrow(d, 0, kEdge), d + 1);
    copy_ends(to.narrow(d, to.size(d) - kEdge, kEdge), from.narrow(d, from.size(d) - kEdge, kEdge), d + 1);
  }
}
// What is shown of a summarised tensor, on the host: the ends of each dimension, and one element for all between.
Tensor ends_of(const Tensor& t) {
  Shape shape = t.shape();
  for (int d = 0; d < t.dim(); ++d) shape[d] = std::min(shape[d], 2 * kEdge + 1);
  const Tensor ends = empty({shape, t.dtype(), Device::cpu(), std::nullopt});
  copy_ends(ends, t, 0);
  return ends;
}

bool usual_dtype(DType t) {
  return t == default_dtype() || t == DType::i64 || t == DType::boolean;
}

}  // namespace

std::string Tensor::to_string() const {
  if (!defined()) return "tensor(undefined)";
  std::string s = "tensor(";
  std::vector<std::string> notes;
  if (is_meta()) {
    s += "...";
    notes.push_back("device=meta");
    notes.push_back("size=" + strata::to_string(shape()));
  } else {
    const bool summarise = summarised(*this);
    const NoGrad none;
    // The rest of a large tensor stays where it is.
    const Tensor here = summarise && !is_placed(*this) ? ends_of(detach()) : to(Device::cpu());
    const Reader reader(here);
    std::vector<int64_t> shown;
    collect(here, 0, 0, summarise, shown);
    const Format format(reader, dtype(), shown);
    if (dim() == 0) {
      s += format.plain(0);
    } else if (numel() == 0) {
      s += "[]";
      if (dim() != 1) notes.push_back("size=" + strata::to_string(shape()));
    } else {
      s += write_tensor(here, 0, 0, 7, summarise, format);
    }
  }
  if (device().is_cuda()) notes.push_back("device=" + strata::to_string(device()));
  // An empty i64 tensor says so: nothing in "[]" does.
  if (!usual_dtype(dtype()) || (numel() == 0 && dtype() != default_dtype()))
    notes.push_back("dtype=" + std::string(name_of(dtype())));
  if (const Ref<Node> fn = grad_fn())
    notes.push_back("grad_fn=<" + std::string(fn->name()) + ">");
  else if (requires_grad())
    notes.push_back("requires_grad=True");
  for (const std::string& note : notes) s += ", " + note;
  return s + ")";
}

template <class T>
std::vector<T> Tensor::to_vector() const {
  if (is_placed(*this)) {
    const Tensor all = detail::placement_room().whole(detach());
    return all.to_vector<T>();
  }
  const Tensor t = to(Device::cpu()).contiguous();
  std::vector<T> values(static_cast<size_t>(numel()));
  if (values.empty()) return values;
  const Pin pin(t, Access::read);
  dispatch_all(dtype(), "to_vector", [&]<class S>() {
    const S* p = static_cast<const S*>(t.raw_data());
    for (size_t i = 0; i < values.size(); ++i) {
      if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>)
        values[i] = T(static_cast<float>(p[i]));
      else
        values[i] = static_cast<T>(static_cast<compute_t<S>>(p[i]));
    }
  });
  return values;
}
template std::vector<uint8_t> Tensor::to_vector() const;
template std::vector<int8_t> Tensor::to_vector() const;
template std::vector<int16_t> Tensor::to_vector() const;
template std::vector<int32_t> Tensor::to_vector() const;
template std::vector<int64_t> Tensor::to_vector() const;
template std::vector<Half> Tensor::to_vector() const;
template std::vector<BFloat16> Tensor::to_vector() const;
template std::vector<float> Tensor::to_vector() const;
template std::vector<double> Tensor::to_vector() const;
template std::vector<bool> Tensor::to_vector() const;

}  // namespace strata
