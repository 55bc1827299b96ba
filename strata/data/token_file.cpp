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

namespace strata::data {
namespace fs = std::filesystem;
using io::quote;
namespace {
constexpr std::string_view kOp = "TokenFile";
constexpr char kMagic[8] = {'S', 'T', 'R', 'A', 'T', 'T', 'O', 'K'};
constexpr size_t kChunk = size_t{4} << 20;

struct Header {
  char magic[8];
  uint32_t version = 1;
  uint32_t token_bytes = 2;
  uint64_t vocab = 0;
  uint64_t count = 0;
  uint64_t source = 0;
  uint64_t checksum = 0;

  uint64_t compute_checksum() const {
    return io::xxh64(std::string_view(reinterpret_cast<const char*>(this), offsetof(Header, checksum)));
  }
};
static_assert(sizeof(Header) == 48);

bool is_text(const fs::path& path) {
  const io::MappedFile file(path.string());
  return file.text().substr(0, 8192).find('\0') == std::string_view::npos;
}

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
    throw IoError(kOp, cat("cannot read the directory ", quote(source), ": ", e.code().message()));
  }
  check<IoError>(!files.empty(), kOp, "the directory ", quote(source), " has no text files");
  std::sort(files.begin(), files.end());
  return files;
}

uint64_t checksum_of(const std::string& source, const std::vector<std::string>& files, const text::Tokenizer& tokenizer,
                     const TokenFileOptions& options) {
  io::Hasher hash;
  const auto add = [&](std::string_view text) {
    hash.update_u64(text.size());
    hash.update(text);
  };
  add(tokenizer.to_json());
  add(options.separator);
  for (const std::string& path : files) {
    // relative: a moved directory is the same data
    add(path == source ? std::string() : fs::path(path).lexically_relative(source).string());
    const io::MappedFile file(path);
    file.advise_sequential();
    add(file.text());
  }
  return hash.digest();
}

int32_t separator_id(const text::Tokenizer& tokenizer, const std::string& name) {
  const auto found = tokenizer.special_tokens().find(name);
  check(found != tokenizer.special_tokens().end(), kOp, "the tokenizer has no special token ", quote(name));
  return found->second;
}

void write_tokens(io::FileWriter& out, const std::vector<int32_t>& ids, uint32_t token_bytes) {
  if (token_bytes == 4) return out.write(ids.data(), ids.size() * 4);
  const std::vector<uint16_t> narrow(ids.begin(), ids.end());
  out.write(narrow.data(), narrow.size() * 2);
}

void build(const std::vector<std::string>& files, uint64_t checksum, const text::Tokenizer& tokenizer,
           const std::string& path, const TokenFileOptions& options) {
  Header header;
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.vocab = static_cast<uint64_t>(tokenizer.vocab_size());
  header.token_bytes = header.vocab <= 65536 ? 2 : 4;
  header.source = checksum;
  io::make_directories(io::parent_directory(path));
  io::FileWriter out(path);
  out.write(&header, sizeof header);
  const std::vector<int32_t> separator = options.separator.empty()
                                             ? std::vector<int32_t>()
                                             : std::vector<int32_t>{separator_id(tokenizer, options.separator)};
  for (const std::string& name : files) {
    const io::MappedFile file(name);
    file.advise_sequential();
    for (std::string_view rest = file.text(); !rest.empty();) {
      const size_t n = encodable_prefix(rest, kChunk);
      const std::vector<int32_t> ids = tokenizer.encode(rest.substr(0, n));
      write_tokens(out, ids, header.token_bytes);
      header.count += ids.size();
      rest.remove_prefix(n);
    }
    write_tokens(out, separator, header.token_bytes);
    header.count += separator.size();
  }
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
  const auto need = [&](bool ok, const auto&... parts) { check<IoError>(ok, kOp, quote(path), ": ", parts...); };
  need(file_.size() >= sizeof header, "has ", file_.size(), " bytes, the header alone has ", sizeof header);
  std::memcpy(&header, file_.bytes().data(), sizeof header);
  need(std::memcmp(header.magic, kMagic, sizeof kMagic) == 0, "byte 0: is not a Strata token file");
  need(header.version == 1, "byte 8: version ", header.version, ", only 1 is known");
  need(header.checksum == header.compute_checksum(), "byte 40: the header's checksum does not match: it is damaged");
  need(header.token_bytes == 2 || header.token_bytes == 4, "byte 12: ", header.token_bytes,
       " bytes a token, 2 or 4 are known");
  need(header.vocab >= 1 && header.vocab <= (header.token_bytes == 2 ? uint64_t{65536} : uint64_t{INT32_MAX}),
       "byte 16: a vocabulary of ", header.vocab, " does not fit ", header.token_bytes, " bytes a token");
  const uint64_t data = file_.size() - sizeof header;
  need(header.count >= 1 && header.count == data / header.token_bytes && data % header.token_bytes == 0,
       "byte 24: ", header.count, " tokens of ", header.token_bytes, " bytes, the file has ", data, " bytes of them");
  size_ = static_cast<int64_t>(header.count);
  vocab_ = static_cast<int64_t>(header.vocab);
  token_bytes_ = static_cast<int>(header.token_bytes);
  source_ = header.source;
}

template <class T>
void TokenFile::read_as(int64_t begin, std::span<T> out) const {
  const auto count = static_cast<int64_t>(out.size());
  check<IndexError>(begin >= 0 && begin <= size_ && count <= size_ - begin, kOp, "'", path(), "': tokens ", begin,
                    " to ", begin, " + ", count, " are out of range, it has ", size_);
  uint32_t largest = 0;
  const auto widen = [&]<class Id>(const Id* ids) {
    for (int64_t i = 0; i < count; ++i) {
      largest = std::max<uint32_t>(largest, ids[i]);
      out[static_cast<size_t>(i)] = static_cast<T>(ids[i]);
    }
  };
  const std::byte* data = file_.bytes().data() + sizeof(Header);  // 48 bytes keep the tokens aligned
  if (token_bytes_ == 2) {
    widen(reinterpret_cast<const uint16_t*>(data) + begin);
  } else {
    widen(reinterpret_cast<const uint32_t*>(data) + begin);
  }
  check<IoError>(largest < vocab_, kOp, "'", path(), "': a token of ", begin, " to ", begin + count, " is ", largest,
                 ", the vocabulary has ", vocab_, ": the file is damaged");
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
  build(files, checksum_of(source, files, tokenizer, options), tokenizer, path, options);
}

TokenFile open_or_build_token_file(const std::string& source, const text::Tokenizer& tokenizer, const std::string& path,
                                   const TokenFileOptions& options) {
  const std::vector<std::string> files = source_files(source);
  const uint64_t checksum = checksum_of(source, files, tokenizer, options);
  std::error_code error;
  if (fs::is_regular_file(path, error)) {
    try {
      TokenFile file(path);
      if (file.source_checksum() == checksum) return file;
    } catch (const IoError&) {
      // a damaged cache is built again
    }
  }
  build(files, checksum, tokenizer, path, options);
  return TokenFile(path);
}

}  // namespace strata::data
