#pragma once
// What the tests of the disk store share.

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "strata/core/error.h"
#include "strata/memory/disk_store.h"

namespace strata::memory {

// A directory for a store.
class Scratch {
 public:
  Scratch() : path_(testing::TempDir() + "strata_disk_XXXXXX") {
    if (!::mkdtemp(path_.data())) throw IoError("test", path_);
  }
  ~Scratch() { std::filesystem::remove_all(path_); }
  Scratch(const Scratch&) = delete;
  const std::string& path() const { return path_; }
  auto entries() const { return std::distance(std::filesystem::directory_iterator(path_), {}); }

 private:
  std::string path_;
};

// Memory that begins `shift` bytes behind a page.
class Buffer {
 public:
  explicit Buffer(size_t nbytes, size_t shift = 0)
      : memory_(static_cast<std::byte*>(
            std::aligned_alloc(kDiskPage, (nbytes + shift) / kDiskPage * kDiskPage + kDiskPage))),
        data_(memory_ + shift),
        size_(nbytes) {}
  ~Buffer() { std::free(memory_); }
  Buffer(const Buffer&) = delete;
  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  void fill(uint32_t seed) {
    std::mt19937 random(seed);
    for (size_t i = 0; i < size_; ++i) data_[i] = static_cast<std::byte>(random());
  }
  bool equals(const std::byte* other, size_t nbytes) const { return std::memcmp(data_, other, nbytes) == 0; }

 private:
  std::byte *memory_, *data_;
  size_t size_;
};

inline bool has_uring() {
  const Scratch scratch;
  DiskOptions o;
  o.directories = {scratch.path()};
  return DiskStore(o).engine() == "io_uring";
}

// With each engine.
class DiskTest : public testing::TestWithParam<DiskOptions::Engine> {
 protected:
  void SetUp() override {
    if (GetParam() == DiskOptions::Engine::uring && !has_uring()) GTEST_SKIP() << "io_uring is not permitted here";
  }
  DiskOptions options() const {
    DiskOptions o;
    o.directories = {scratch_.path()};
    o.engine = GetParam();
    return o;
  }
  Scratch scratch_;
};
inline std::string engine_name(const testing::TestParamInfo<DiskOptions::Engine>& info) {
  return info.param == DiskOptions::Engine::uring ? "uring" : "threads";
}

}  // namespace strata::memory
