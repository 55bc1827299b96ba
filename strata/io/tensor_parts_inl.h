#pragma once
// Tensors whose elements lie in parts, in several files or processes: which elements a part has, their hash, reading.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "strata/core/placement.h"
#include "strata/io/input_file.h"

namespace strata::io::detail {

/// What a part has of each dimension, in order.
using Box = std::vector<std::vector<Stretch>>;
/// The part at `places` on the layout's axes.
Box box_of(const Layout& layout, const Shape& whole, const std::vector<int>& places);
Shape shape_of(const Box& box);

/// f(at_a, at_b, index, count) for each run of elements that both boxes of a tensor of shape `whole` have, in order:
/// where it begins in the one part and the other, which are row-major, and in the whole.
template <class F>
void for_each_run(const Shape& whole, const Box& a, const Box& b, F&& f);

/// A number for elements and their places in the whole: that of two parts together is the sum of theirs, so the whole's
/// is the same however it was cut. Element i of `count`, of `size` bytes (1, 2, 4 or 8), is number index + i.
uint64_t hash_of(const void* elements, int64_t size, int64_t count, int64_t index);
/// The same of a part, whose elements are on the host, row-major; `alone`: by the calling thread, not the process's all.
uint64_t hash_of(const void* elements, int64_t size, const Shape& whole, const Box& box, bool alone = false);

/// How a tensor lies in a checkpoint's files.
struct StoredTensor {
  DType dtype = DType::f32;
  Shape shape;
  Layout layout;  ///< one that cuts nothing has one part
  /// One file's stretch of bytes: a part's elements, row-major.
  struct Part {
    int64_t file = 0;  ///< by number, of the checkpoint's
    uint64_t offset = 0;
    std::optional<uint64_t> hash;
  };
  /// For all places on the axes that shard, the last axis varying fastest.
  std::vector<Part> parts;
  std::optional<uint64_t> hash;  ///< of the whole

  /// Places of part `i`; 0 on axes that do not shard.
  std::vector<int> places(size_t i) const;
  /// How many parts such a layout has.
  static size_t count_parts(const Layout& layout);
  /// The number of the part at `places`.
  static size_t number_of(const Layout& layout, const std::vector<int>& places);
};

/// Fills `to`, memory of the host, with the elements that `box` has of the tensor, read from the files that have them
/// and no more of those than that (but for gaps of some MiB). Returns their hash. Throws IoError naming the file where
/// a part that was read as a whole has another hash than was written, and as InputFile::read().
uint64_t read_part(const StoredTensor& from, const std::string& name,
                   const std::function<const InputFile&(int64_t)>& file, const Box& box, void* to);

// ---- templates

template <class F>
void for_each_run(const Shape& whole, const Box& a, const Box& b, F&& f) {
  struct Piece {
    int64_t a, b, index, length;
  };
  const int n = whole.size();
  std::vector<std::vector<Piece>> pieces(static_cast<size_t>(n));
  std::vector<int64_t> step_a(static_cast<size_t>(n) + 1, 1), step_b = step_a, step = step_a;
  const Shape in_a = shape_of(a), in_b = shape_of(b);
  int tail = n;  // dimensions from here on are whole in both
  for (int d = n - 1; d >= 0; --d) {
    const auto i = static_cast<size_t>(d);
    int64_t at_a = 0;
    for (const Stretch& s : a[i]) {
      int64_t at_b = 0;
      for (const Stretch& t : b[i]) {
        const int64_t begin = std::max(s.begin, t.begin), end = std::min(s.begin + s.length, t.begin + t.length);
        if (begin < end) pieces[i].push_back({at_a + begin - s.begin, at_b + begin - t.begin, begin, end - begin});
        at_b += t.length;
      }
      at_a += s.length;
    }
    if (pieces[i].empty()) return;
    step_a[i] = step_a[i + 1] * in_a[d];
    step_b[i] = step_b[i + 1] * in_b[d];
    step[i] = step[i + 1] * whole[d];
    if (tail == d + 1 && pieces[i].size() == 1 && pieces[i][0].length == whole[d]) tail = d;
  }
  if (tail == 0) return f(int64_t{0}, int64_t{0}, int64_t{0}, step[0]);
  const auto last = static_cast<size_t>(tail - 1);
  const auto walk = [&](const auto& self, size_t d, int64_t at_a, int64_t at_b, int64_t index) -> void {
    for (const Piece& p : pieces[d]) {
      if (d == last) {
        f(at_a + p.a * step_a[d + 1], at_b + p.b * step_b[d + 1], index + p.index * step[d + 1],
          p.length * step[d + 1]);
        continue;
      }
      for (int64_t i = 0; i < p.length; ++i)
        self(self, d + 1, at_a + (p.a + i) * step_a[d + 1], at_b + (p.b + i) * step_b[d + 1],
             index + (p.index + i) * step[d + 1]);
    }
  };
  walk(walk, 0, 0, 0, 0);
}

}  // namespace strata::io::detail
