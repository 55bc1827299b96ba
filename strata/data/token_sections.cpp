#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "strata/core/error.h"
#include "strata/data/token_format_inl.h"
#include "strata/data/token_sections_inl.h"
#include "strata/io/input_file.h"

namespace strata::data {
namespace fs = std::filesystem;
using io::quote;
namespace {

constexpr char kMagic[8] = {'S', 'T', 'R', 'A', 'T', 'S', 'E', 'C'};

struct SectionHeader {
  char magic[8];
  uint64_t job = 0;
  uint64_t index = 0;
  Section section;
  uint64_t contents = 0;  // checksum of what follows the header
  uint64_t checksum = 0;  // of the bytes before

  uint64_t compute_checksum() const {
    return io::xxh64(std::string_view(reinterpret_cast<const char*>(this), offsetof(SectionHeader, checksum)));
  }
};
static_assert(sizeof(SectionHeader) == 80);

}  // namespace

SectionFolder::SectionFolder(std::string path, uint64_t job, uint32_t token_bytes)
    : path_(std::move(path)), job_(job), token_bytes_(token_bytes) {
  io::make_directories(path_);
  lock_.fd = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  check<IoError>(lock_.fd >= 0, "", "cannot open ", quote(path_), ": ", io::errno_text(errno));
  // Where there are no locks nothing is said: two builds into one file are then the user's affair.
  while (::flock(lock_.fd, LOCK_EX | LOCK_NB) != 0 && errno != ENOLCK && errno != ENOTSUP) {
    check<IoError>(errno != EWOULDBLOCK, "", "another process is at work in ", quote(path_),
                   ": wait for its end, or write another file");
    if (errno != EINTR) break;
  }
  while (read(sections_.size())) {
  }
  std::vector<std::string> known;
  for (size_t i = 0; i < sections_.size(); ++i) known.push_back(file(i));
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(path_, error)) {
    const bool ours = entry.path().filename().string().find(".section") != std::string::npos;
    if (ours && std::ranges::find(known, entry.path().string()) == known.end()) fs::remove(entry.path(), error);
  }
}

std::string SectionFolder::file(size_t index) const {
  return fmt::format("{}/{:06}.section", path_, index);
}
uint64_t SectionFolder::tokens_begin() const {
  return sizeof(SectionHeader);
}
uint64_t SectionFolder::ends_begin(size_t index) const {
  return tokens_begin() + padded_to_8(sections_[index].tokens * token_bytes_);
}

// Takes up a piece that is whole and of this job.
bool SectionFolder::read(size_t index) {
  std::error_code error;
  if (!fs::is_regular_file(file(index), error)) return false;
  try {
    const io::InputFile input(file(index));
    SectionHeader header;
    if (input.size() < sizeof header) return false;
    input.read(0, &header, sizeof header);
    const Section& s = header.section;
    if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0 || header.checksum != header.compute_checksum())
      return false;
    if (header.job != job_ || header.index != index || s.tokens > input.size() || s.documents > input.size())
      return false;
    if (input.size() != sizeof header + padded_to_8(s.tokens * token_bytes_) + 8 * s.documents) return false;
    io::Hasher hash;
    std::vector<char> buffer(size_t{1} << 20);
    for (uint64_t at = sizeof header; at < input.size();) {
      const auto n = static_cast<size_t>(std::min<uint64_t>(buffer.size(), input.size() - at));
      input.read(at, buffer.data(), n);
      hash.update(buffer.data(), n);
      at += n;
    }
    if (hash.digest() != header.contents) return false;
    sections_.push_back(s);
    return true;
  } catch (const IoError&) {
    return false;
  }
}

void SectionFolder::add(const Section& section, const std::vector<std::string>& tokens,
                        const std::vector<uint64_t>& ends) {
  SectionHeader header;
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.job = job_;
  header.index = sections_.size();
  header.section = section;
  io::FileWriter out(file(sections_.size()));
  out.write(&header, sizeof header);
  io::Hasher hash;
  const auto put = [&](std::string_view bytes) {
    hash.update(bytes);
    out.write(bytes);
  };
  uint64_t bytes = 0;
  for (const std::string& part : tokens) {
    put(part);
    bytes += part.size();
  }
  put(std::string_view("\0\0\0\0\0\0\0", padded_to_8(bytes) - bytes));
  put({reinterpret_cast<const char*>(ends.data()), ends.size() * sizeof(uint64_t)});
  header.contents = hash.digest();
  header.checksum = header.compute_checksum();
  out.rewrite(0, &header, sizeof header);
  out.commit();
  sections_.push_back(section);
}

void SectionFolder::clear() {
  std::error_code error;
  // The last first: what is left is a beginning.
  for (size_t i = sections_.size(); i-- > 0;) fs::remove(file(i), error);
  sections_.clear();
}

void SectionFolder::remove() {
  clear();
  std::error_code error;
  fs::remove(path_, error);
}

void BlockWriter::write(std::string_view bytes) {
  out_.write(bytes);
  while (!bytes.empty()) {
    const std::string_view part = bytes.substr(0, kTokenBlock - filled_);
    hash_.update(part);
    filled_ += part.size();
    bytes.remove_prefix(part.size());
    if (filled_ < kTokenBlock) continue;
    blocks_.push_back(hash_.digest());
    hash_ = io::Hasher();
    filled_ = 0;
  }
}

void BlockWriter::pad() {
  write(std::string_view("\0\0\0\0\0\0\0", padded_to_8(filled_) - filled_));
}

std::vector<uint64_t> BlockWriter::finish() {
  if (filled_ > 0) blocks_.push_back(hash_.digest());
  return std::move(blocks_);
}

}  // namespace strata::data
