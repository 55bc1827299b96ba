#pragma once
// Errors: what a user sees when an argument, a file or the machine is wrong.
// Every message reads "op: what arrived, what is wanted (hint)".

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "strata/core/device.h"
#include "strata/core/dims.h"
#include "strata/core/dtype.h"

namespace strata {

/// Base of every exception that Strata throws on purpose. what() is "op: message".
class Error : public std::runtime_error {
 public:
  Error(std::string_view op, std::string_view message)
      : std::runtime_error(op.empty() ? std::string(message) : std::string(op) + ": " + std::string(message)),
        op_(op) {}
  /// The op, class or command that refused, e.g. "matmul"; may be empty.
  const std::string& op() const { return op_; }

 private:
  std::string op_;
};

/// Sizes do not fit together, or a size is out of range.
class ShapeError : public Error {
  using Error::Error;
};
/// An element type that the op does not take.
class DTypeError : public Error {
  using Error::Error;
};
/// An index or dim out of range.
class IndexError : public Error {
  using Error::Error;
};
/// Any other argument with a value that is not allowed.
class ValueError : public Error {
  using Error::Error;
};
/// Tensors on different devices, a kernel missing on a device, reading a meta tensor's data.
class DeviceError : public Error {
  using Error::Error;
};
/// Misuse of the tape: backward twice, an overwritten saved tensor, no gradient.
class AutogradError : public Error {
  using Error::Error;
};
/// Memory could not be had; the text says how much was asked, the limit and who holds what.
class MemoryError : public Error {
  using Error::Error;
};
/// A file could not be read or written, or holds something invalid (the text names the byte or field).
class IoError : public Error {
  using Error::Error;
};

// How a value appears in an error text; found by argument-dependent lookup for other types.
inline void append_text(std::string& s, std::string_view v) {
  s += v;
}
inline void append_text(std::string& s, const char* v) {
  s += v;
}
inline void append_text(std::string& s, char v) {
  s += v;
}
inline void append_text(std::string& s, bool v) {
  s += v ? "true" : "false";
}
inline void append_text(std::string& s, int v) {
  s += std::to_string(v);
}
inline void append_text(std::string& s, long v) {
  s += std::to_string(v);
}
inline void append_text(std::string& s, long long v) {
  s += std::to_string(v);
}
inline void append_text(std::string& s, unsigned v) {
  s += std::to_string(v);
}
inline void append_text(std::string& s, unsigned long v) {
  s += std::to_string(v);
}
inline void append_text(std::string& s, unsigned long long v) {
  s += std::to_string(v);
}
void append_text(std::string& s, double v);
inline void append_text(std::string& s, DType v) {
  s += name_of(v);
}
inline void append_text(std::string& s, Device v) {
  s += to_string(v);
}
inline void append_text(std::string& s, const Dims& v) {
  s += to_string(v);
}

/// What may stand in an error text.
template <class T>
concept HasText = requires(std::string& s, const T& v) {
  append_text(s, v);
};

/// Joins strings, numbers, shapes, dtypes and devices into one text. (The op of this name joins tensors.)
template <HasText... Parts>
std::string cat(const Parts&... parts) {
  std::string s;
  (append_text(s, parts), ...);
  return s;
}

/// Throws E("op: parts...") unless `ok`. The message is only built on failure.
template <class E = ValueError, class... Parts>
inline void check(bool ok, std::string_view op, const Parts&... parts) {
  if (!ok) [[unlikely]]
    throw E(op, cat(parts...));
}

/// `dim` counted from the front; -rank <= dim < rank, where rank 0 counts as 1. Throws IndexError naming `op`.
int64_t wrap_dim(int64_t dim, int64_t rank, std::string_view op);

}  // namespace strata
