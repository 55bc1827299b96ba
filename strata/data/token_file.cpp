#include "strata/data/token_file.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>
#include <vector>

#include "strata/core/error.h"
#include "strata/io/files.h"
#include "strata/io/hash.h"
#include "strata/io/input_file.h"

namespace strata::data {
namespace fs = std::filesystem;
using io::quote;
namespace {
constexpr char kMagic[8] = {'S', 'T', 'R', 'A', 'T', 'T', 'O', 'K'};
constexpr size_t kChunk = size_t{4} << 20;

constexpr uint64_t kBlock = uint64_t{64} << 10;     // bytes that share a checksum: read where one of them is wanted
constexpr uint64_t kMaxBlock = uint64_t{64} << 20;  // that we read in other's files

struct Header {
  char magic[8];
  uint32_t version = 2;
  uint32_t token_bytes = 2;
  uint64_t vocab = 0;
  uint64_t count = 0;
  uint64_t source = 0;
  uint64_t block = kBlock;
  uint64_t table = 0;
  uint64_t checksum = 0;

  uint64_t compute_checksum() const {
    return io::xxh64(std::string_view(reinterpret_cast<const char*>(this), offsetof(Header, checksum)));
  }
};
static_assert(sizeof(Header) == 64);
constexpr uint64_t kHeader1 = 48;  // of version 1, whose checksum stands where the block's size is

bool is_text(const fs::path& path) {
  const io::InputFile file(path.string());
  return file.read(0, static_cast<size_t>(std::min<uint64_t>(file.size(), 8192))).find('\0') == std::string::npos;
}

std::string_view bytes_of(const std::vector<uint64_t>& table) {
  return {reinterpret_cast<const char*>(table.data()), table.size() * sizeof(uint64_t)};
}

// What identifies texts and tokenizer.
class SourceHash {
 public:
  SourceHash(const text::Tokenizer& tokenizer, const TokenFileOptions& options) {
    add(tokenizer.to_json());
    add(options.separator);
  }
  /// The name and the length of a text; its bytes follow. Relative: a moved directory is the same data.
  void begin(const std::string& source, const io::InputFile& file) {
    add(file.path() == source ? std::string() : fs::path(file.path()).lexically_relative(source).string());
    hash_.update_u64(file.size());
  }
  io::Hasher& bytes() { return hash_; }
  uint64_t digest() const { return hash_.digest(); }

 private:
  void add(std::string_view text) {
    hash_.update_u64(text.size());
    hash_.update(text);
  }
  io::Hasher hash_;
};

// Writes tokens and remembers the checksum of each block of them.
class TokenWriter {
 public:
  TokenWriter(io::FileWriter& out, uint32_t token_bytes) : out_(out), token_bytes_(token_bytes) {}

  void write(const std::vector<int32_t>& ids) {
    if (token_bytes_ == 4) return write_bytes({reinterpret_cast<const char*>(ids.data()), ids.size() * 4});
    const std::vector<uint16_t> narrow(ids.begin(), ids.end());
    write_bytes({reinterpret_cast<const char*>(narrow.data()), narrow.size() * 2});
  }
  std::vector<uint64_t> finish() {
    write_bytes(std::string_view("\0\0\0\0\0\0\0", (8 - filled_ % 8) % 8));
    if (filled_ > 0) blocks_.push_back(hash_.digest());
    return std::move(blocks_);
  }

 private:
  void write_bytes(std::string_view bytes) {
    out_.write(bytes);
    while (!bytes.empty()) {
      const std::string_view part = bytes.substr(0, kBlock - filled_);
      hash_.update(part);
      filled_ += part.size();
      bytes.remove_prefix(part.size());
      if (filled_ < kBlock) continue;
      blocks_.push_back(hash_.digest());
      hash_ = io::Hasher();
      filled_ = 0;
    }
  }

  io::FileWriter& out_;
  uint32_t token_bytes_;
  io::Hasher hash_;
  uint64_t filled_ = 0;  // of the block
  std::vector<uint64_t> blocks_;
};

// The files to be read: the source itself, or the text files under it.
std::vector<std::string> source_files(const std::string& source) {
  std::error_code error;
  if (!fs::is_directory(source, error)) return {source};
  std::vector<std::string> files;
  try {
    for (auto it = fs::recursive_directory_iterator(source); it != fs::recursive_directory_iterator(); ++it) {
      const bool hidden = it->path().filename().string().starts_with('.');
      if (hidden && it->is_directory()) it.disable_recursion_pending();
      if (!hidden && it->is_regular_file() && it->file_size() > 0 && is_text(it->path()))
        files.push_back(it->path().string());
    }
  } catch (const fs::filesystem_error& e) {
    throw IoError("", cat("cannot read the directory ", quote(source), ": ", e.code().message()));
  }
  check<IoError>(!files.empty(), "", "the directory ", quote(source), " has no text files");
  std::sort(files.begin(), files.end());
  return files;
}

uint64_t checksum_of(const std::string& source, const std::vector<std::string>& files, const text::Tokenizer& tokenizer,
                     const TokenFileOptions& options) {
  SourceHash hash(tokenizer, options);
  for (const std::string& path : files) {
    const io::InputFile file(path);
    hash.begin(source, file);
    file.hash(hash.bytes());
  }
  return hash.digest();
}

int32_t separator_id(const text::Tokenizer& tokenizer, const std::string& name) {
  const auto found = tokenizer.special_tokens().find(name);
  check(found != tokenizer.special_tokens().end(), "data", "the tokenizer has no special token ", quote(name));
  return found->second;
}

// Tokens of a text that may be larger than memory.
void encode(const io::InputFile& file, const text::Tokenizer& tokenizer, SourceHash& hash, TokenWriter& out,
            uint64_t& count) {
  // what encodable_prefix looks at, and one byte that says that there is more
  constexpr size_t kWindow = 2 * kChunk + 1;
  std::string window;
  for (uint64_t at = 0; at < file.size() || !window.empty();) {
    const auto more = static_cast<size_t>(std::min<uint64_t>(kWindow - window.size(), file.size() - at));
    if (more > 0) {
      const size_t old = window.size();
      window.resize(old + more);
      file.read(at, window.data() + old, more);
      hash.bytes().update(window.data() + old, more);
      at += more;
    }
    const size_t n = encodable_prefix(window, kChunk);
    const std::vector<int32_t> ids = tokenizer.encode(std::string_view(window).substr(0, n));
    out.write(ids);
    count += ids.size();
    window.erase(0, n);
  }
}

void build(const std::string& source, const std::vector<std::string>& files, uint64_t checksum,
           const text::Tokenizer& tokenizer, const std::string& path, const TokenFileOptions& options) {
  Header header;
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.vocab = static_cast<uint64_t>(tokenizer.vocab_size());
  header.token_bytes = header.vocab <= 65536 ? 2 : 4;
  header.source = checksum;
  const std::vector<int32_t> separator = options.separator.empty()
                                             ? std::vector<int32_t>()
                                             : std::vector<int32_t>{separator_id(tokenizer, options.separator)};
  io::make_directories(io::parent_directory(path));
  io::FileWriter out(path);
  out.write(&header, sizeof header);
  TokenWriter tokens(out, header.token_bytes);
  SourceHash hash(tokenizer, options);
  for (const std::string& name : files) {
    const io::InputFile file(name);
    hash.begin(source, file);
    encode(file, tokenizer, hash, tokens, header.count);
    tokens.write(separator);
    header.count += separator.size();
  }
  check<IoError>(hash.digest() == checksum, "", quote(source), " was changed while it was read: try again");
  const std::vector<uint64_t> table = tokens.finish();
  out.write(bytes_of(table));
  header.table = io::xxh64(bytes_of(table));
  header.checksum = header.compute_checksum();
  out.rewrite(0, &header, sizeof header);
  out.commit();
}
}  // namespace

size_t encodable_prefix(std::string_view text, size_t wanted) {
  if (text.size() <= wanted) return text.size();
  const auto blank = [](char c) { return c == ' ' || (c >= '\t' && c <= '\r') || (c >= 0x1c && c <= 0x1f); };
  const size_t last = std::min(text.size(), 2 * wanted);
  for (size_t at = std::max<size_t>(wanted, 2); at < last; ++at)
    if (text[at - 1] == '\n' && !blank(text[at - 2]) && !blank(text[at])) return at;
  return text.size() <= 2 * wanted ? text.size() : wanted;
}

TokenFile::TokenFile(const std::string& path) : file_(path) {
  Header header;
  const auto need = [&](bool ok, const auto&... parts) { check<IoError>(ok, "", quote(path), ": ", parts...); };
  need(file_.size() > kHeader1, "has ", file_.size(), " bytes, the header of a token file alone has ", kHeader1);
  file_.read(0, &header, std::min<size_t>(sizeof header, file_.size()));
  need(std::memcmp(header.magic, kMagic, sizeof kMagic) == 0, "byte 0: is not a Strata token file");
  need(header.version == 1 || header.version == 2, "byte 8: version ", header.version, ", 1 and 2 are known");
  const bool old = header.version == 1;
  data_begin_ = old ? kHeader1 : sizeof header;
  need(file_.size() > data_begin_, "has ", file_.size(), " bytes, the header alone has ", data_begin_);
  // of version 1, the checksum is where the size of a block is now
  const uint64_t computed =
      old ? io::xxh64(std::string_view(reinterpret_cast<const char*>(&header), offsetof(Header, block)))
          : header.compute_checksum();
  need((old ? header.block : header.checksum) == computed, "byte ", data_begin_ - 8,
       ": the header's checksum does not match: it is damaged");
  need(header.token_bytes == 2 || header.token_bytes == 4, "byte 12: ", header.token_bytes,
       " bytes a token, 2 or 4 are known");
  need(header.vocab >= 1 && header.vocab <= (header.token_bytes == 2 ? uint64_t{65536} : uint64_t{INT32_MAX}),
       "byte 16: a vocabulary of ", header.vocab, " does not fit ", header.token_bytes, " bytes a token");
  need(header.count >= 1 && header.count <= INT64_MAX / 8, "byte 24: ", header.count, " tokens cannot be");
  const uint64_t bytes = header.count * header.token_bytes, padded = (bytes + 7) / 8 * 8;
  data_end_ = data_begin_ + (old ? bytes : padded);
  uint64_t blocks = 0;
  if (!old) {
    need(header.block >= 8 && header.block <= kMaxBlock && header.block % 8 == 0, "byte 40: blocks of ", header.block,
         " bytes, multiples of 8 up to ", kMaxBlock, " are known");
    blocks = (padded + header.block - 1) / header.block;
  }
  const uint64_t expected = data_end_ + 8 * blocks;
  need(file_.size() == expected, "byte 24: with ", header.count, " tokens of ", header.token_bytes, " bytes it has ",
       expected, " bytes, there are ", file_.size());
  if (!old) {
    blocks_.resize(blocks);
    file_.read(data_end_, blocks_.data(), 8 * blocks);
    need(io::xxh64(bytes_of(blocks_)) == header.table, "byte ", data_end_, ": the table of checksums is damaged");
    block_bytes_ = header.block;
    verified_ = std::make_unique<std::atomic<bool>[]>(blocks);
  }
  size_ = static_cast<int64_t>(header.count);
  vocab_ = static_cast<int64_t>(header.vocab);
  token_bytes_ = static_cast<int>(header.token_bytes);
  source_ = header.source;
}

// Of the file's bytes, within the tokens.
void TokenFile::verify_bytes(uint64_t begin, uint64_t end) const {
  if (blocks_.empty()) return;
  std::vector<char> buffer;
  for (uint64_t b = (begin - data_begin_) / block_bytes_; data_begin_ + b * block_bytes_ < end; ++b) {
    if (verified_[b].load(std::memory_order_relaxed)) continue;
    const uint64_t at = data_begin_ + b * block_bytes_;
    buffer.resize(static_cast<size_t>(std::min(block_bytes_, data_end_ - at)));
    file_.read(at, buffer.data(), buffer.size());
    check<IoError>(io::xxh64(std::string_view(buffer.data(), buffer.size())) == blocks_[b], "", quote(path()),
                   ": byte ", at, ": the ", buffer.size(),
                   " bytes from here on are damaged, their checksum is another");
    verified_[b].store(true, std::memory_order_relaxed);
  }
}

void TokenFile::verify() const {
  verify_bytes(data_begin_, data_end_);
  if (has_checksums()) return;
  std::vector<int32_t> ids(kChunk / sizeof(int32_t));
  for (int64_t at = 0; at < size_;) {
    const auto n = static_cast<size_t>(std::min<int64_t>(static_cast<int64_t>(ids.size()), size_ - at));
    read(at, std::span(ids).first(n));
    at += static_cast<int64_t>(n);
  }
}

template <class T>
void TokenFile::read_as(int64_t begin, std::span<T> out) const {
  const auto count = static_cast<int64_t>(out.size());
  check<IndexError>(begin >= 0 && begin <= size_ && count <= size_ - begin, "TokenFile", "'", path(), "': tokens ",
                    begin, " to ", begin, " + ", count, " are out of range, it has ", size_);
  if (count == 0) return;
  const auto width = static_cast<uint64_t>(token_bytes_);
  const uint64_t first = data_begin_ + static_cast<uint64_t>(begin) * width;
  verify_bytes(first, first + out.size() * width);
  uint32_t largest = 0;
  const auto widen = [&]<class Id>(Id) {
    Id ids[4096];
    for (size_t done = 0; done < out.size();) {
      const size_t n = std::min(std::size(ids), out.size() - done);
      file_.read(first + done * width, ids, n * sizeof(Id));
      for (size_t i = 0; i < n; ++i) {
        largest = std::max<uint32_t>(largest, ids[i]);
        out[done + i] = static_cast<T>(ids[i]);
      }
      done += n;
    }
  };
  if (token_bytes_ == 2) {
    widen(uint16_t{});
  } else {
    widen(uint32_t{});
  }
  check<IoError>(largest < vocab_, "", quote(path()), ": byte ", first, ": a token of ", begin, " to ", begin + count,
                 " is ", largest, ", the vocabulary has ", vocab_, ": the file is damaged");
}

void TokenFile::read(int64_t begin, std::span<int32_t> out) const {
  read_as(begin, out);
}
void TokenFile::read(int64_t begin, std::span<int64_t> out) const {
  read_as(begin, out);
}

void build_token_file(const std::string& source, const text::Tokenizer& tokenizer, const std::string& path,
                      const TokenFileOptions& options) {
  const std::vector<std::string> files = source_files(source);
  build(source, files, checksum_of(source, files, tokenizer, options), tokenizer, path, options);
}

TokenFile open_or_build_token_file(const std::string& source, const text::Tokenizer& tokenizer, const std::string& path,
                                   const TokenFileOptions& options, std::vector<std::string>* notes) {
  // What is wrong with the file that is there; nothing where there is none, or a good one, then in `cached`.
  std::optional<TokenFile> cached;
  std::string damage;
  std::error_code error;
  if (fs::is_regular_file(path, error)) {
    try {
      cached.emplace(path);
      cached->verify();
    } catch (const IoError& e) {
      cached.reset();
      damage = e.what();
    }
  }
  if (!damage.empty() && !fs::exists(source, error))
    throw IoError("", cat(damage, "; ", quote(source), ", from which it could be built again, is gone"));
  const std::vector<std::string> files = source_files(source);
  const uint64_t checksum = checksum_of(source, files, tokenizer, options);
  if (cached && cached->source_checksum() == checksum) {
    if (cached->has_checksums()) return std::move(*cached);
    damage = cat(quote(path), " is of a version without checksums");
  }
  build(source, files, checksum, tokenizer, path, options);
  if (!damage.empty() && notes) notes->push_back(cat(damage, "; it was built again from ", quote(source)));
  return TokenFile(path);
}

}  // namespace strata::data
