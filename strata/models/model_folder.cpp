#include <algorithm>
#include <filesystem>
#include <string_view>
#include <vector>

#include "strata/core/error.h"
#include "strata/io/files.h"
#include "strata/models/model_folder_inl.h"

namespace strata::detail {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kWeights[] = {".safetensors", ".bin", ".gguf", ".pt", ".pth", ".h5", ".msgpack", ".onnx"};
constexpr uint64_t kMostBytes = uint64_t{256} << 20;

bool is_companion(const std::string& name) {
  const auto ends = [&](std::string_view end) { return name.ends_with(end); };
  return !name.starts_with('.') && !name.starts_with("adapter_") && !ends(".index.json") &&
         std::ranges::none_of(kWeights, ends);
}

}  // namespace

void copy_companions(const std::string& from, const std::string& to) {
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator at(from, error), end; !error && at != end; at.increment(error))
    if (at->is_regular_file(error) && is_companion(at->path().filename().string()))
      names.push_back(at->path().filename().string());
  check<IoError>(!error, from, error.message());
  std::ranges::sort(names);
  for (const std::string& name : names) io::write_file(to + "/" + name, io::read_file(from + "/" + name, kMostBytes));
}

}  // namespace strata::detail
