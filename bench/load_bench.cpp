// How fast load_pretrained reads a model of Llama's shape from a disk, beside read() of the same files: a folder of
// bf16 safetensors, and GGUF files of BF16 and of Q8_0, whose blocks stay packed. The system's copies of the files are
// dropped before each reading (posix_fadvise), and once they are left. In turns; the best of the rounds, and the middle
// one.
//     load_bench [directory] [GB of bf16] [rounds]
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <system_error>
#include <vector>

#include "strata/core/dtype.h"
#include "strata/core/error.h"
#include "strata/io/files.h"
#include "strata/models/export.h"
#include "strata/models/gguf_model.h"

namespace {

using namespace strata;

constexpr size_t kPiece = size_t{1} << 20;

double seconds(const std::function<void()>& f) {
  const auto begin = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

std::vector<std::string> files_of(const std::string& path) {
  if (std::filesystem::is_regular_file(path)) return {path};
  std::vector<std::string> files;
  for (const auto& e : std::filesystem::directory_iterator(path)) files.push_back(e.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

int open_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw IoError("load_bench", path + ": " + std::generic_category().message(errno));
  return fd;
}

void forget(const std::string& path) {
  for (const std::string& file : files_of(path)) {
    const int fd = open_file(file);
    ::fdatasync(fd);
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ::close(fd);
  }
}

uint64_t read_all(const std::string& path) {
  std::vector<char> piece(kPiece);
  uint64_t bytes = 0;
  for (const std::string& file : files_of(path)) {
    const int fd = open_file(file);
    for (ssize_t n; (n = ::read(fd, piece.data(), piece.size())) > 0;) bytes += static_cast<uint64_t>(n);
    ::close(fd);
  }
  return bytes;
}

ModelSpec llama_of(double gb) {
  // 16 layers of 56 M numbers and a head and an embedding of 65 M: 2.05 GB; more layers are more bytes.
  const double layers = std::max(1.0, (gb * 1e9 / 2 - 131e6) / 56e6);
  const std::string config = cat(R"({"model_type": "llama", "vocab_size": 32000, "hidden_size": 2048,
      "intermediate_size": 7168, "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 4096,
      "num_hidden_layers": )",
                                 static_cast<int64_t>(layers + 0.5), "}");
  return read_spec(family_named("llama"), ConfigReader(config, "load_bench"));
}

struct Row {
  std::string name, path;
  uint64_t bytes = 0;
  std::vector<double> plain = {}, cold = {}, cached = {};
};

double best(std::vector<double> times) {
  return *std::min_element(times.begin(), times.end());
}
double middle(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const std::string where = argc > 1 ? argv[1] : ".";
  const double gb = argc > 2 ? std::atof(argv[2]) : 2;
  const int rounds = argc > 3 ? std::max(1, std::atoi(argv[3])) : 3;
  try {
    const std::string root = where + "/load_bench." + std::to_string(::getpid());
    const Family& family = family_named("llama");
    const ModelSpec spec = llama_of(gb);
    std::vector<Row> rows = {{"folder, bf16", root + "/folder"},
                             {"GGUF, BF16", root + "/bf16.gguf"},
                             {"GGUF, Q8_0, kept packed", root + "/q8_0.gguf"}};
    io::make_directories(root);
    {
      const DType before = default_dtype();
      set_default_dtype(DType::bf16);
      const LanguageModel model(spec);
      set_default_dtype(before);
      save_pretrained(model, family, spec, rows[0].path);
      save_gguf(model, family, spec, rows[1].path, {.type = "BF16"});
      save_gguf(model, family, spec, rows[2].path, {.type = "Q8_0"});
    }
    for (int round = 0; round < rounds; ++round)
      for (Row& r : rows) {
        forget(r.path);
        r.plain.push_back(seconds([&] { r.bytes = read_all(r.path); }));
        forget(r.path);
        r.cold.push_back(seconds([&] { load_pretrained(r.path); }));
        read_all(r.path);
        r.cached.push_back(seconds([&] { load_pretrained(r.path); }));
      }
    std::printf("GB/s, best (middle) of %d rounds\n\n", rounds);
    std::printf(
        "| files | GB | read() of 1 MiB, cold | load_pretrained, cold | of read() | load_pretrained, cached |\n");
    std::printf("|---|---|---|---|---|---|\n");
    for (const Row& r : rows) {
      const double size = static_cast<double>(r.bytes) / 1e9;
      std::printf("| %s | %.2f | %.2f (%.2f) | %.2f (%.2f) | %.2f | %.2f (%.2f) |\n", r.name.c_str(), size,
                  size / best(r.plain), size / middle(r.plain), size / best(r.cold), size / middle(r.cold),
                  best(r.plain) / best(r.cold), size / best(r.cached), size / middle(r.cached));
    }
    std::filesystem::remove_all(root);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "load_bench: %s\n", e.what());
    return 1;
  }
}
