#include "strata/io/fill.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <random>
#include <thread>

#include "strata/core/backend.h"
#include "strata/core/error.h"
#include "strata/cuda/runtime.h"
#include "strata/io/checkpoint.h"
#include "strata/io/descriptor.h"
#include "strata/io/files.h"
#include "strata/io/read_ahead.h"
#include "strata/io/safetensors.h"
#include "strata/io/temp_dir.h"

namespace strata::io {
namespace {

// Tensors of uneven sizes, together more than the pieces that are under way at a time.
TensorMap many() {
  TensorMap tensors;
  std::mt19937 random(5);
  for (const int64_t n : {3'000'001, 1, 0, 17, 4'500'000, 262'144, 70'001, 1'500'003}) {
    Tensor t = empty(TensorMeta{Shape{n}, n % 2 ? DType::i32 : DType::f32, Device::cpu()});
    for (int64_t i = 0; i < n; ++i) static_cast<uint32_t*>(t.raw_data())[i] = static_cast<uint32_t>(random()) >> 3;
    tensors["t" + std::to_string(n)] = t;
  }
  return tensors;
}

std::vector<uint32_t> words(const Tensor& t, Device device) {
  EXPECT_EQ(t.device(), device);
  std::vector<uint32_t> w(static_cast<size_t>(t.numel()));
  if (w.empty()) return w;
  if (device.is_cpu()) {
    std::memcpy(w.data(), t.raw_data(), w.size() * 4);
  } else {
    memory::backend(device).copy_out(device, w.data(), t.raw_data(), w.size() * 4);
  }
  return w;
}

void expect_same(const TensorMap& got, const TensorMap& want, Device device) {
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, t] : want) {
    EXPECT_EQ(got.at(name).dtype(), t.dtype());
    EXPECT_EQ(words(got.at(name), device), words(t, Device::cpu())) << name;
  }
}

void reads_into_place(Device device) {
  const TempDir dir;
  const std::string path = dir.path() + "/x.safetensors";
  const TensorMap want = many();
  const WrittenFile written = save_safetensors(path, want);
  const SafetensorsFile file(path);
  TensorMap into;
  for (const auto& [name, t] : want)
    if (name != "t4500000") into[name] = empty(TensorMeta{t.shape(), t.dtype(), device});
  into["t262144"] = empty(TensorMeta{Shape{512, 512}, DType::f32, device});  // another shape: left alone
  const uint32_t before = into["t17"].version();
  Hasher hasher;
  const TensorMap got = file.read(into, device, &hasher);
  expect_same(got, want, device);
  EXPECT_EQ(hasher.digest(), written.xxh64);
  EXPECT_TRUE(got.at("t3000001").same_as(into["t3000001"]));
  EXPECT_FALSE(got.at("t262144").same_as(into["t262144"]));
  EXPECT_GT(into["t17"].version(), before);
  expect_same(file.read({}, device), want, device);
}

TEST(Fill, ReadsStraightIntoTensors) {
  reads_into_place(Device::cpu());
}

TEST(Fill, ReadsStraightToACard) {
  if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  reads_into_place(Device::cuda());
}

TEST(Fill, AFileThatWasCutIsAnError) {
  const TempDir dir;
  const std::string path = dir.path() + "/x.safetensors";
  save_safetensors(path, many());
  const SafetensorsFile file(path);
  std::filesystem::resize_file(path, 20'000'000);
  Hasher hasher;
  EXPECT_THROW(file.read({}, Device::cpu(), &hasher), IoError);
  EXPECT_THROW(file.tensors(), IoError);
}

TEST(Fill, ACheckpointIsReadIntoPlaceAndItsDamageFound) {
  const TempDir dir;
  const TensorMap want = many();
  const std::string path = save_checkpoint(dir.path(), 1, {{"model", want}}, {});
  TensorMap into;
  for (const auto& [name, t] : want) into[name] = empty(t.meta());
  const Checkpoint c = load_checkpoint(open_checkpoint(path), {"model"}, {{"model", into}});
  expect_same(into, want, Device::cpu());
  EXPECT_TRUE(c.files.at("model").at("t17").same_as(into["t17"]));

  std::string bytes = read_file(path + "/model.safetensors");
  bytes[bytes.size() / 2] ^= 1;
  write_file(path + "/model.safetensors", bytes);
  EXPECT_THROW(load_checkpoint(open_checkpoint(path), {"model"}, {{"model", into}}), IoError);
}

// The share of a file's pages that are in the system's cache; negative where the file system does not tell.
double cached(const std::string& path) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  const auto size = static_cast<size_t>(std::filesystem::file_size(path));
  void* map = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.fd, 0);
  if (map == MAP_FAILED) return -1;
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE)), pages = (size + page - 1) / page;
  std::vector<unsigned char> in(pages);
  const bool told = ::mincore(map, size, in.data()) == 0;
  ::munmap(map, size);
  const auto held = std::ranges::count_if(in, [](unsigned char c) { return (c & 1) != 0; });
  return told ? static_cast<double>(held) / static_cast<double>(pages) : -1;
}

TEST(Fill, ACheckpointIsReadAheadOfItsReader) {
  const TempDir dir;
  const std::string path = save_checkpoint(dir.path(), 1, {{"model", many()}, {"optimizer", many()}}, {});
  const std::string model = path + "/model.safetensors", optimizer = path + "/optimizer.safetensors";
  for (const std::string& file : {model, optimizer}) {
    const Descriptor f{::open(file.c_str(), O_RDONLY | O_CLOEXEC)};
    ::posix_fadvise(f.fd, 0, 0, POSIX_FADV_DONTNEED);
  }
  const double before = cached(model);
  if (before < 0 || before > 0.1) GTEST_SKIP() << "the file system keeps its files in memory";
  const FoundCheckpoint found = open_checkpoint(path);
  detail::ReadAhead reading = detail::read_ahead(found, {"model"});
  reading.finish();
  // Asked for; the disk has its time.
  for (int i = 0; i < 1000 && cached(model) < 1; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(cached(model), 1);
  EXPECT_LT(cached(optimizer), 0.1);
  expect_same(load_checkpoint(found, {"model"}).files.at("model"), many(), Device::cpu());
  EXPECT_THROW(detail::read_ahead({}), ValueError);
}

}  // namespace
}  // namespace strata::io
