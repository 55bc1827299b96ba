#include "strata/io/checkpoint_inl.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <set>
#include <system_error>

#include "strata/core/error.h"
#include "strata/io/descriptor.h"
#include "strata/io/files.h"
#include "strata/io/fill.h"
#include "strata/io/hash.h"
#include "strata/io/input_file.h"
#include "strata/io/json.h"
#include "strata/io/read_ahead.h"
#include "strata/io/temporary_directory_inl.h"
#include "strata/io/tensor_parts_inl.h"

namespace strata::io {
namespace fs = std::filesystem;
using json = nlohmann::json;
namespace {
constexpr std::string_view kOp = "checkpoint";
constexpr std::string_view kFormat = "strata-checkpoint";
constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kStateFile = "state.json";
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
  std::map<std::string, std::string> stems;  // by the same: "model" of model.safetensors and model.rank-3.safetensors
  detail::StoredTensors parts;               // of a checkpoint of several ranks, by stem
  std::map<std::string, std::string> texts;
};

State parse_state(const InputFile& file) {
  const std::string& path = file.path();
  check<IoError>(file.size() <= kMaxState, kOp, quote(path), " has ", file.size(), " bytes, at most ", kMaxState,
                 " are allowed");
  const json j = parse_json(file.read(0, file.size()), path);
  const auto need = [&](bool ok, std::string_view field, std::string_view wanted) {
    check<IoError>(ok, kOp, quote(path), ": field ", quote(field), " must be ", wanted);
  };
  need(j.is_object() && j.value("format", json()) == kFormat, "format", cat("'", kFormat, "'"));
  const json version = j.value("version", json());
  need(version == detail::kWhole || version == detail::kInParts, "version",
       cat(detail::kWhole, " or ", detail::kInParts));
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
    need(is_plain_name(name) && name.ends_with(detail::kExtension), cat("files.", name), "named NAME.safetensors");
    need(file.is_object() && file.value("bytes", json()).is_number_unsigned(), cat("files.", name, ".bytes"), "a size");
    w.bytes = file["bytes"].get<uint64_t>();
    const json hash = file.value("xxh64", json());
    need(hash.is_string() && parse_hex(hash.get<std::string>(), w.xxh64), cat("files.", name, ".xxh64"),
         "16 hex digits");
    state.files[name] = w;
    state.stems[name] = detail::stem_of(name, version == detail::kInParts);
  }
  if (version == detail::kInParts) state.parts = detail::parse_parts(j, path, state.files);
  need(texts.is_object(), "state", "an object");
  for (const auto& [key, text] : texts.items()) {
    need(text.is_string(), cat("state.", key), "a string");
    state.texts[key] = text.get<std::string>();
  }
  return state;
}

void check_size(const WrittenFile& wanted, const InputFile& file) {
  check<IoError>(file.size() == wanted.bytes, kOp, quote(file.path()), " has ", file.size(), " bytes, state.json says ",
                 wanted.bytes, ": the file was changed or damaged");
}

void check_hash(const WrittenFile& wanted, const InputFile& file, const Hasher& hasher) {
  check<IoError>(hasher.digest() == wanted.xxh64, kOp, quote(file.path()), ": its xxh64 is ", to_hex(hasher.digest()),
                 ", state.json says ", to_hex(wanted.xxh64), ": the file was changed or damaged");
}

// The directory is not there any more, or another one has taken its name.
class Vanished : public IoError {
  using IoError::IoError;
};
}  // namespace

class OpenCheckpoint {
 public:
  explicit OpenCheckpoint(const std::string& dir)
      : dir_(dir), folder_(::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    if (folder_.fd < 0 && errno == ENOENT) throw Vanished(kOp, cat("there is no checkpoint ", quote(dir)));
    check<IoError>(folder_.fd >= 0, kOp, "cannot open ", quote(dir), ": ", errno_text(errno));
    try {
      state_ = parse_state(open(std::string(kStateFile)));
      for (const auto& [name, wanted] : state_.files) files_.emplace(name, open(name));
    } catch (const IoError& e) {
      if (is_gone()) throw Vanished("", e.what());
      throw;
    }
  }

  const State& state() const { return state_; }
  /// Throws IoError where it is not one of those that state.json names.
  const InputFile& file(const std::string& name) const {
    const auto found = files_.find(name);
    check<IoError>(found != files_.end(), kOp, quote(dir_), " has no file ", quote(name));
    return found->second;
  }
  /// What it has tensors of: "model", "optimizer".
  std::set<std::string> stems() const {
    std::set<std::string> all;
    for (const auto& [name, stem] : state_.stems) all.insert(stem);
    for (const auto& [stem, tensors] : state_.parts) all.insert(stem);
    return all;
  }
  void check_has(const std::string& stem) const {
    check<IoError>(stems().contains(stem), kOp, quote(dir_), " has no file ",
                   quote(stem + std::string(detail::kExtension)));
  }
  std::vector<InputFile> again(const std::vector<std::string>& only) const {
    std::vector<InputFile> all;
    for (const auto& [name, file] : files_)
      if (only.empty() || std::ranges::find(only, state_.stems.at(name)) != only.end()) all.push_back(file.again());
    return all;
  }
  void check_sizes() const {
    for (const auto& [name, file] : files_) check_size(state_.files.at(name), file);
  }
  void verify() {
    for (const auto& [name, file] : files_) {
      verify_file(name);
      const SafetensorsHeader header = read_safetensors_header(file);
      if (!state_.parts.empty()) detail::check_parts(state_.parts.at(state_.stems.at(name)), name, header);
    }
    verified_ = true;
  }
  /// What a stem has; its checksums are looked at unless that has been done. Those that are shared with other ranks,
  /// which say theirs, go to `seen`.
  TensorMap tensors(const std::string& stem, const TensorMap& into, Device device, const RankPlaces& places,
                    detail::SeenHashes* seen) const {
    if (const auto found = state_.parts.find(stem); found != state_.parts.end()) {
      const auto file_of = [&](int64_t rank) -> const InputFile& { return file(detail::file_name(stem, rank)); };
      check_stem_sizes(stem);
      return detail::read_parts(stem, found->second, file_of, into, device, places, seen);
    }
    const std::string name = stem + std::string(detail::kExtension);
    const InputFile& f = file(name);
    const WrittenFile& wanted = state_.files.at(name);
    if (places.layout || places.has ||
        std::ranges::any_of(into, [](const auto& entry) { return is_placed(entry.second); })) {
      if (!verified_) verify_file(name);
      return detail::read_parts(
          stem, detail::whole_tensors(read_safetensors_header(f)), [&](int64_t) -> const InputFile& { return f; }, into,
          device, places, seen);
    }
    if (verified_) return SafetensorsFile(f.again()).read(into, device);
    check_size(wanted, f);
    Hasher hasher;
    TensorMap result;
    try {
      result = SafetensorsFile(f.again()).read(into, device, &hasher);
    } catch (const IoError&) {  // what makes no sense is told as what it is: damage
      verify_file(name);
      throw;
    }
    check_hash(wanted, f, hasher);
    return result;
  }
  const detail::StoredTensors& parts() const { return state_.parts; }
  /// What a stem's tensors are and where they lie.
  std::map<std::string, detail::StoredTensor> stored(const std::string& stem) const {
    check_has(stem);
    check_stem_sizes(stem);
    if (const auto found = state_.parts.find(stem); found != state_.parts.end()) return found->second;
    return detail::whole_tensors(read_safetensors_header(file(stem + std::string(detail::kExtension))));
  }
  /// Compares a stem's file with its checksum unless that has been done; of tensors in parts each has its own.
  void verify_stem(const std::string& stem) const {
    if (!verified_ && !state_.parts.contains(stem)) verify_file(stem + std::string(detail::kExtension));
  }
  /// The file that has part `rank` of a stem.
  const InputFile& file_of(const std::string& stem, int64_t rank) const {
    return file(state_.parts.contains(stem) ? detail::file_name(stem, rank) : stem + std::string(detail::kExtension));
  }

 private:
  void check_stem_sizes(const std::string& stem) const {
    for (const auto& [name, of] : state_.stems)
      if (of == stem) check_size(state_.files.at(name), file(name));
  }
  void verify_file(const std::string& name) const {
    const InputFile& f = file(name);
    check_size(state_.files.at(name), f);
    Hasher hasher;
    fill_tensors(f, {}, &hasher);
    check_hash(state_.files.at(name), f, hasher);
  }
  InputFile open(const std::string& name) const { return InputFile(folder_.fd, name, file_in(dir_, name)); }
  bool is_gone() const {
    struct stat held {
    }, named{};
    return ::stat(dir_.c_str(), &named) != 0 || ::fstat(folder_.fd, &held) != 0 || named.st_ino != held.st_ino ||
           named.st_dev != held.st_dev;
  }

  std::string dir_;
  Descriptor folder_;
  State state_;
  std::map<std::string, InputFile> files_;
  bool verified_ = false;
};

namespace {
bool sizes_match(const std::string& dir) {
  try {
    OpenCheckpoint(dir).check_sizes();
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Renames before deleting, so that a kill in between leaves rubbish that says so and not a broken checkpoint.
void remove_checkpoint(const std::string& dir) {
  const fs::path from(dir),
      to = from.parent_path() / cat(kTemporaryPrefix, "deleted-", from.filename().string(), "-", ::getpid());
  std::error_code error;
  fs::rename(from, to, error);
  if (error == std::errc::no_such_file_or_directory) return;  // somebody else deleted it
  std::error_code ignored;                                    // what cannot be deleted is tried again by the next save
  if (!error) fs::remove_all(to, ignored);
  check<IoError>(!error, kOp, "cannot delete the old checkpoint '", dir, "': ", error.message());
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
  remove_leftover_directories(run_dir, kTemporaryPrefix);
  const TemporaryDirectory made(run_dir, directory_name(step));
  json index = json::object();
  for (const auto& [stem, tensors] : files) {
    detail::check_stem(stem);
    const std::string file = stem + std::string(detail::kExtension);
    const WrittenFile written = save_safetensors(file_in(made.path(), file), tensors);
    index[file] = {{"bytes", written.bytes}, {"xxh64", to_hex(written.xxh64)}};
  }
  return detail::finish_checkpoint(made.path(), run_dir, step,
                                   {{"version", detail::kWhole}, {"files", std::move(index)}}, state, keep_last);
}

void detail::check_stem(const std::string& stem) {
  check<ValueError>(is_plain_name(stem), "save_checkpoint", "a file cannot be named ", quote(stem),
                    ": use letters, digits, '.', '_', '-'");
}

std::string detail::checkpoint_name(int64_t step) {
  return directory_name(step);
}

std::string detail::finish_checkpoint(const std::string& temporary, const std::string& run_dir, int64_t step, json j,
                                      const std::map<std::string, std::string>& state, int keep_last) {
  const std::string target = file_in(run_dir, directory_name(step));
  j["format"] = kFormat;
  j["step"] = step;
  j["state"] = state;
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
  sync_directory(run_dir);
  if (keep_last > 0) prune_checkpoints(run_dir, keep_last, target);
  return target;
}

namespace {
Checkpoint load(const OpenCheckpoint& from, const std::vector<std::string>& only, bool tensors,
                const TensorFiles& into = {}, Device device = Device::cpu(), const RankPlaces& places = {},
                detail::SeenHashes* seen = nullptr) {
  Checkpoint result;
  result.step = from.state().step;
  result.state = from.state().texts;
  if (!tensors) return result;
  for (const std::string& stem : only) from.check_has(stem);
  for (const std::string& stem : from.stems()) {
    if (!only.empty() && std::find(only.begin(), only.end(), stem) == only.end()) continue;
    const auto place = into.find(stem);
    result.files[stem] = from.tensors(stem, place == into.end() ? TensorMap() : place->second, device, places, seen);
  }
  return result;
}
}  // namespace

Checkpoint detail::load_parts(const FoundCheckpoint& found, const std::vector<std::string>& only,
                              const TensorFiles& into, Device device, const RankPlaces& places, SeenHashes* seen) {
  check<ValueError>(found.files != nullptr, "load_checkpoint", "the checkpoint was not found, or not opened");
  return load(*found.files, only, true, into, device, places, seen);
}
const detail::StoredTensors& detail::parts_of(const FoundCheckpoint& found) {
  return found.files->parts();
}

detail::TensorReader::TensorReader(const FoundCheckpoint& found, const std::string& stem)
    : files_(found.files), stem_(stem) {
  check<ValueError>(files_ != nullptr, "load_checkpoint", "the checkpoint was not found, or not opened");
  tensors_ = files_->stored(stem);
}

Tensor detail::TensorReader::read(const std::string& name, Device device) const {
  const auto found = tensors_.find(name);
  check<IoError>(found != tensors_.end(), kOp, "the file ", quote(stem_ + std::string(kExtension)), " has no ",
                 quote(name));
  if (!verified_) files_->verify_stem(stem_);
  verified_ = true;
  const auto file = [&](int64_t rank) -> const InputFile& { return files_->file_of(stem_, rank); };
  TensorMap one = read_parts(stem_, {*found}, file, {}, device, {}, nullptr);
  return std::move(one.at(name));
}

FoundCheckpoint open_checkpoint(const std::string& dir) {
  auto files = std::make_shared<const OpenCheckpoint>(dir);
  const int64_t step = files->state().step;
  return {dir, step, std::move(files)};
}

Checkpoint load_checkpoint(const std::string& dir, const std::vector<std::string>& only) {
  return load(OpenCheckpoint(dir), only, true);
}

Checkpoint load_checkpoint(const FoundCheckpoint& found, const std::vector<std::string>& only) {
  return load_checkpoint(found, only, {});
}

Checkpoint load_checkpoint(const FoundCheckpoint& found, const std::vector<std::string>& only, const TensorFiles& into,
                           Device device) {
  check<ValueError>(found.files != nullptr, "load_checkpoint", "the checkpoint was not found, or not opened");
  return load(*found.files, only, true, into, device);
}

Checkpoint load_checkpoint_state(const FoundCheckpoint& found) {
  check<ValueError>(found.files != nullptr, "load_checkpoint_state", "the checkpoint was not found, or not opened");
  return load(*found.files, {}, false);
}

detail::ReadAhead detail::read_ahead(const FoundCheckpoint& found, const std::vector<std::string>& only) {
  check<ValueError>(found.files != nullptr, "read_ahead", "the checkpoint was not found, or not opened");
  return ReadAhead(found.files->again(only));
}

Checkpoint load_checkpoint_state(const std::string& dir) {
  return load(OpenCheckpoint(dir), {}, false);
}

void verify_checkpoint(const std::string& dir) {
  OpenCheckpoint(dir).verify();
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
  constexpr int kAttempts = 100;  // each lost to a run that wrote and deleted a checkpoint between two calls of ours
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const std::vector<std::string> all = list_checkpoints(run_dir);
    std::vector<std::string> broken;
    bool again = false;
    for (auto path = all.rbegin(); path != all.rend() && !again; ++path) {
      try {
        auto files = std::make_shared<OpenCheckpoint>(*path);
        files->verify();
        if (warnings) warnings->insert(warnings->end(), broken.begin(), broken.end());
        return FoundCheckpoint{*path, step_of(fs::path(*path).filename().string()), std::move(files)};
      } catch (const Vanished&) {
        again = true;
      } catch (const Error& e) {
        broken.push_back(cat("broken checkpoint '", *path, "': ", e.what()));
      }
    }
    if (again) continue;
    if (warnings) warnings->insert(warnings->end(), broken.begin(), broken.end());
    break;
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
