#include <algorithm>
#include <atomic>
#include <cstring>

#include "strata/core/error.h"
#include "strata/core/parallel.h"
#include "strata/io/files.h"
#include "strata/io/tensor_parts_inl.h"

namespace strata::io::detail {
namespace {

constexpr int64_t kGrain = int64_t{1} << 18;  // elements that one thread hashes at least

// The last steps of MurmurHash3's 64 bits, in the constants of Stafford's "Mix13" (as SplitMix64 has them).
uint64_t mixed(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

template <class Word>
uint64_t sum_of(const void* elements, int64_t begin, int64_t end, int64_t index) {
  const auto* bytes = static_cast<const char*>(elements);
  uint64_t sum = 0;
  for (int64_t i = begin; i < end; ++i) {
    Word w;
    std::memcpy(&w, bytes + i * static_cast<int64_t>(sizeof w), sizeof w);
    sum += mixed(uint64_t{w} + 0x9e3779b97f4a7c15u * static_cast<uint64_t>(index + i + 1));
  }
  return sum;
}

// Reads forward through a stretch of a file, in pieces that a run of few bytes does not make small.
class Window {
 public:
  Window(const InputFile& file, uint64_t begin, uint64_t end) : file_(file), begin_(begin), end_(end) {}
  void read(uint64_t offset, void* to, uint64_t bytes) {
    constexpr uint64_t kWindow = uint64_t{4} << 20;
    const uint64_t at = begin_ + offset;
    if (bytes >= kWindow / 4) return file_.read(at, to, bytes);
    if (at < held_ || at + bytes > held_ + buffer_.size()) {
      buffer_.resize(std::min(kWindow, end_ - at));
      held_ = at;
      file_.read(at, buffer_.data(), buffer_.size());
    }
    std::memcpy(to, buffer_.data() + (at - held_), bytes);
  }

 private:
  const InputFile& file_;
  uint64_t begin_, end_, held_ = 0;
  std::vector<char> buffer_;
};

}  // namespace

Box box_of(const Layout& layout, const Shape& whole, const std::vector<int>& places) {
  Box box;
  for (int d = 0; d < whole.size(); ++d) {
    std::vector<Stretch> parts = layout.stretches(d, whole[d], places);
    std::erase_if(parts, [](const Stretch& s) { return s.length == 0; });
    box.push_back(std::move(parts));
  }
  return box;
}

Shape shape_of(const Box& box) {
  Shape shape;
  for (const std::vector<Stretch>& parts : box) {
    int64_t n = 0;
    for (const Stretch& s : parts) n += s.length;
    shape.push_back(n);
  }
  return shape;
}

uint64_t hash_of(const void* elements, int64_t size, int64_t count, int64_t index) {
  std::atomic<uint64_t> sum = 0;
  parallel_for(0, count, kGrain, [&](int64_t begin, int64_t end) {
    sum += size == 1   ? sum_of<uint8_t>(elements, begin, end, index)
           : size == 2 ? sum_of<uint16_t>(elements, begin, end, index)
           : size == 4 ? sum_of<uint32_t>(elements, begin, end, index)
                       : sum_of<uint64_t>(elements, begin, end, index);
  });
  return sum;
}

uint64_t hash_of(const void* elements, int64_t size, const Shape& whole, const Box& box, bool alone) {
  uint64_t sum = 0;
  const auto* bytes = static_cast<const char*>(elements);
  for_each_run(whole, box, box, [&](int64_t at, int64_t, int64_t index, int64_t count) {
    const int64_t most = alone ? kGrain : count;
    for (int64_t i = 0; i < count; i += most)
      sum += hash_of(bytes + (at + i) * size, size, std::min(most, count - i), index + i);
  });
  return sum;
}

size_t StoredTensor::count_parts(const Layout& layout) {
  size_t n = 1;
  for (size_t a = 0; a < layout.placements.size(); ++a)
    if (layout.placements[a].is_shard()) n *= static_cast<size_t>(layout.mesh->axes[a].size);
  return n;
}
size_t StoredTensor::number_of(const Layout& layout, const std::vector<int>& places) {
  size_t n = 0;
  for (size_t a = 0; a < layout.placements.size(); ++a)
    if (layout.placements[a].is_shard())
      n = n * static_cast<size_t>(layout.mesh->axes[a].size) + static_cast<size_t>(places[a]);
  return n;
}
std::vector<int> StoredTensor::places(size_t i) const {
  std::vector<int> at(layout.placements.size(), 0);
  for (size_t a = at.size(); a-- > 0;) {
    if (!layout.placements[a].is_shard()) continue;
    const auto size = static_cast<size_t>(layout.mesh->axes[a].size);
    at[a] = static_cast<int>(i % size);
    i /= size;
  }
  return at;
}

uint64_t read_part(const StoredTensor& from, const std::string& name,
                   const std::function<const InputFile&(int64_t)>& file, const Box& box, void* to) {
  const int64_t size = size_of(from.dtype);
  const auto bytes = [&](int64_t elements) { return static_cast<uint64_t>(elements * size); };
  auto* out = static_cast<char*>(to);
  uint64_t sum = 0;
  for (size_t i = 0; i < from.parts.size(); ++i) {
    const StoredTensor::Part& part = from.parts[i];
    const Box has = box_of(from.layout, from.shape, from.places(i));
    const int64_t all = shape_of(has).product();
    if (all == 0) continue;
    std::optional<Window> window;
    uint64_t here = 0;
    int64_t read = 0;
    for_each_run(from.shape, has, box, [&](int64_t at, int64_t at_to, int64_t index, int64_t count) {
      if (!window) window.emplace(file(part.file), part.offset, part.offset + bytes(all));
      char* run = out + at_to * size;
      window->read(bytes(at), run, bytes(count));
      here += hash_of(run, size, count, index);
      read += count;
    });
    check<IoError>(read < all || !part.hash || *part.hash == here, "checkpoint", quote(file(part.file).path()),
                   ": the part of tensor ", quote(name), " at byte ", part.offset,
                   " is not the one that was written: the file was changed, damaged or is another one's");
    sum += here;
  }
  return sum;
}

}  // namespace strata::io::detail
