#include "strata/io/checkpoint.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <system_error>

#include <nlohmann/json.hpp>

#include "strata/core/error.h"
#include "strata/io/files.h"
#include "strata/io/hash.h"
#include "strata/io/mapped_file.h"

namespace strata::io {
namespace fs = std::filesystem;
using json = nlohmann::json;
namespace {
constexpr std::string_view kOp = "checkpoint";
constexpr std::string_view kFormat = "strata-checkpoint";
constexpr int kVersion = 1;
constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kTemporary = ".tmp-";
constexpr std::string_view kStateFile = "state.json";
constexpr std::string_view kExtension = ".safetensors";
constexpr uint64_t kMaxState = 64u << 20;

std::string directory_name(int64_t step) {
  std::string digits = std::to_string(step);
  if (digits.size() < 8) digits.insert(0, 8 - digits.size(), '0');
  return std::string(kPrefix) + digits;
}

// The step that a directory's name says; -1 where it is not a checkpoint's name.
int64_t step_of(std::string_view name) {
  if (!name.starts_with(kPrefix)) return -1;
  int64_t step = -1;
  const auto [end, error] = std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), step);
  return error == std::errc() && end == name.data() + name.size() && step >= 0 && directory_name(step) == name ? step
                                                                                                               : -1;
}

bool is_plain_name(std::string_view name) {
  return !name.empty() && name[0] != '.' && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
  });
}

std::string file_in(const std::string& dir, std::string_view name) {
  return (fs::path(dir) / name).string();
}

// Checksum of state.json's own content: of its text with the keys sorted and without the checksum.
std::string own_checksum(const json& state) {
  json rest = state;
  rest.erase("xxh64");
  return to_hex(xxh64(rest.dump()));
}

struct State {
  int64_t step = 0;
  std::map<std::string, WrittenFile> files;  // by name, with the extension
  std::map<std::string, std::string> texts;
};

State read_state(const std::string& dir) {
  const std::string path = file_in(dir, kStateFile);
  const json j = json::parse(read_file(path, kMaxState), nullptr, false);
  check<IoError>(!j.is_discarded(), kOp, quote(path), " is not valid JSON (damaged or cut off)");
  const auto need = [&](bool ok, std::string_view field, std::string_view wanted) {
    check<IoError>(ok, kOp, quote(path), ": field ", quote(field), " must be ", wanted);
  };
  need(j.is_object() && j.value("format", json()) == kFormat, "format", cat("'", kFormat, "'"));
  need(j.value("version", json()) == kVersion, "version", cat(kVersion));
  const json checksum = j.value("xxh64", json());
  need(checksum.is_string(), "xxh64", "a string");
  const std::string computed = own_checksum(j);
  check<IoError>(checksum == computed, kOp, quote(path), " was changed or damaged: its checksum is ", computed,
                 ", it says ", quote(checksum.get<std::string>(), 20));
  State state;
  const json step = j.value("step", json());
  need(step.is_number_integer() && step >= 0, "step", "an integer of at least 0");
  state.step = step.get<int64_t>();
  const json files = j.value("files", json()), texts = j.value("state", json());
  need(files.is_object(), "files", "an object");
  for (const auto& [name, file] : files.items()) {
    WrittenFile w;
    need(is_plain_name(name) && name.ends_with(kExtension), cat("files.", name), "named NAME.safetensors");
    need(file.is_object() && file.value("bytes", json()).is_number_unsigned(), cat("files.", name, ".bytes"), "a size");
    w.bytes = file["bytes"].get<uint64_t>();
    const json hash = file.value("xxh64", json());
    need(hash.is_string() && parse_hex(hash.get<std::string>(), w.xxh64), cat("files.", name, ".xxh64"),
         "16 hex digits");
    state.files[name] = w;
  }
  need(texts.is_object(), "state", "an object");
  for (const auto& [key, text] : texts.items()) {
    need(text.is_string(), cat("state.", key), "a string");
    state.texts[key] = text.get<std::string>();
  }
  return state;
}

void check_size(const std::string& path, const WrittenFile& wanted, uint64_t bytes) {
  check<IoError>(bytes == wanted.bytes, kOp, quote(path), " has ", bytes, " bytes, state.json says ", wanted.bytes,
                 ": the file was changed or damaged");
}

void check_hash(const std::string& path, const WrittenFile& wanted, std::span<const std::byte> bytes) {
  check_size(path, wanted, bytes.size());
  const uint64_t hash = xxh64(bytes);
  check<IoError>(hash == wanted.xxh64, kOp, quote(path), ": its xxh64 is ", to_hex(hash), ", state.json says ",
                 to_hex(wanted.xxh64), ": the file was changed or damaged");
}

bool sizes_match(const std::string& dir) {
  try {
    for (const auto& [name, wanted] : read_state(dir).files) check_size(dir, wanted, fs::file_size(file_in(dir, name)));
    return true;
  } catch (const Error&) {
  } catch (const fs::filesystem_error&) {
  }
  return false;
}

// Renames before deleting, so that a kill in between leaves rubbish that says so and not a broken checkpoint.
void remove_checkpoint(const std::string& dir) {
  const fs::path from(dir),
      to = from.parent_path() / cat(kTemporary, "deleted-", from.filename().string(), "-", ::getpid());
  std::error_code error;
  fs::rename(from, to, error);
  if (!error) fs::remove_all(to, error);
  check<IoError>(!error, kOp, "cannot delete the old checkpoint '", dir, "': ", error.message());
}

// What a killed process left behind.
void remove_leftovers(const std::string& run_dir) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(run_dir, ignored))
    if (entry.path().filename().string().starts_with(kTemporary) && entry.is_directory(ignored))
      fs::remove_all(entry.path(), ignored);
}

void publish(const std::string& temporary, const std::string& target) {
  if (::rename(temporary.c_str(), target.c_str()) == 0) return;
  int error = errno;
  if (error == ENOTEMPTY || error == EEXIST) {
    // A checkpoint of this step exists: swap the two at once where the file system can, so that one is always there.
    if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) {
      sync_directory(parent_directory(target));
      std::error_code ignored;
      fs::remove_all(temporary, ignored);
      return;
    }
    remove_checkpoint(target);
    if (::rename(temporary.c_str(), target.c_str()) == 0) return;
    error = errno;
  }
  throw IoError(kOp, cat("cannot rename '", temporary, "' to '", target, "': ", errno_text(error)));
}
}  // namespace

std::string save_checkpoint(const std::string& run_dir, int64_t step, const TensorFiles& files,
                            const std::map<std::string, std::string>& state, int keep_last) {
  check<ValueError>(step >= 0, "save_checkpoint", "step must be at least 0, got ", step);
  check<ValueError>(keep_last >= 0, "save_checkpoint", "keep_last must be at least 0 (0 keeps all), got ", keep_last);
  make_directories(run_dir);
  remove_leftovers(run_dir);
  const std::string name = directory_name(step), target = file_in(run_dir, name);
  const std::string temporary = file_in(run_dir, cat(kTemporary, name, "-", ::getpid()));
  make_directories(temporary);
  try {
    json j{{"format", kFormat}, {"version", kVersion}, {"step", step}, {"files", json::object()}, {"state", state}};
    for (const auto& [stem, tensors] : files) {
      const std::string file = stem + std::string(kExtension);
      check<ValueError>(is_plain_name(stem), "save_checkpoint", "a file cannot be named ", quote(stem),
                        ": use letters, digits, '.', '_', '-'");
      const WrittenFile written = save_safetensors(file_in(temporary, file), tensors);
      j["files"][file] = {{"bytes", written.bytes}, {"xxh64", to_hex(written.xxh64)}};
    }
    try {
      j["xxh64"] = own_checksum(j);
    } catch (const json::exception&) {
      throw ValueError("save_checkpoint", "the state holds a text that is not UTF-8");
    }
    const std::string text = j.dump(1) + "\n";
    check<ValueError>(text.size() <= kMaxState, "save_checkpoint", "the state has ", text.size(),
                      " bytes of text, at most ", kMaxState, " are allowed: put large data into tensors");
    write_file(file_in(temporary, kStateFile), text);
    sync_directory(temporary);
    publish(temporary, target);
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
    throw;
  }
  sync_directory(run_dir);
  if (keep_last > 0) prune_checkpoints(run_dir, keep_last, target);
  return target;
}

Checkpoint load_checkpoint(const std::string& dir, const std::vector<std::string>& only, bool verified) {
  State state = read_state(dir);
  Checkpoint result;
  result.step = state.step;
  result.state = std::move(state.texts);
  for (const std::string& stem : only)
    check<IoError>(state.files.contains(stem + std::string(kExtension)), kOp, quote(dir), " has no file ",
                   quote(stem + std::string(kExtension)));
  for (const auto& [name, wanted] : state.files) {
    const std::string stem = name.substr(0, name.size() - kExtension.size());
    if (!only.empty() && std::find(only.begin(), only.end(), stem) == only.end()) continue;
    const std::string path = file_in(dir, name);
    if (verified) {
      check_size(path, wanted, MappedFile(path).size());
    } else {
      check_hash(path, wanted, MappedFile(path).bytes());
    }
    result.files[stem] = SafetensorsFile(path).tensors();
  }
  return result;
}

Checkpoint load_checkpoint_state(const std::string& dir) {
  State state = read_state(dir);
  Checkpoint result;
  result.step = state.step;
  result.state = std::move(state.texts);
  return result;
}

void verify_checkpoint(const std::string& dir) {
  for (const auto& [name, wanted] : read_state(dir).files) {
    const std::string path = file_in(dir, name);
    const MappedFile file(path);
    check_hash(path, wanted, file.bytes());
    parse_safetensors(file.bytes(), path);
  }
}

std::vector<std::string> list_checkpoints(const std::string& run_dir) {
  std::vector<std::pair<int64_t, std::string>> found;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(run_dir, ignored))
    if (const int64_t step = step_of(entry.path().filename().string()); step >= 0 && entry.is_directory(ignored))
      found.emplace_back(step, entry.path().string());
  std::sort(found.begin(), found.end());
  std::vector<std::string> paths;
  paths.reserve(found.size());
  for (auto& [step, path] : found) paths.push_back(std::move(path));
  return paths;
}

std::optional<FoundCheckpoint> find_latest_checkpoint(const std::string& run_dir, std::vector<std::string>* warnings) {
  const std::vector<std::string> all = list_checkpoints(run_dir);
  for (auto path = all.rbegin(); path != all.rend(); ++path) {
    try {
      verify_checkpoint(*path);
      return FoundCheckpoint{*path, step_of(fs::path(*path).filename().string())};
    } catch (const Error& e) {
      if (warnings) warnings->push_back(cat("broken checkpoint '", *path, "': ", e.what()));
    }
  }
  return std::nullopt;
}

void prune_checkpoints(const std::string& run_dir, int keep_last, const std::string& written) {
  check<ValueError>(keep_last >= 1, "prune_checkpoints", "keep_last must be at least 1, got ", keep_last);
  const std::vector<std::string> all = list_checkpoints(run_dir);
  std::error_code ignored;
  int kept = 0;
  bool verified = false;
  for (auto path = all.rbegin(); path != all.rend(); ++path) {
    const bool is_written = !written.empty() && fs::equivalent(*path, written, ignored);
    if (!is_written && kept >= keep_last && verified) {
      remove_checkpoint(*path);
      continue;
    }
    if (is_written) {
      verified = true;
      ++kept;
    } else if (sizes_match(*path)) {
      ++kept;
      // reading a whole checkpoint is only worth it when the next one is to be deleted and nothing is known to be good
      if (!verified && kept >= keep_last) {
        try {
          verify_checkpoint(*path);
          verified = true;
        } catch (const Error&) {
        }
      }
    }
  }
}

}  // namespace strata::io
