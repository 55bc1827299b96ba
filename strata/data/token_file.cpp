#include "strata/data/token_file.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>

#include "strata/core/error.h"
#include "strata/data/token_format_inl.h"
#include "strata/data/token_sources_inl.h"
#include "strata/io/files.h"
#include "strata/io/hash.h"

namespace strata::data {
namespace fs = std::filesystem;
using io::quote;
namespace {

std::string_view bytes_of(const std::vector<uint64_t>& table) {
  return {reinterpret_cast<const char*>(table.data()), table.size() * sizeof(uint64_t)};
}

}  // namespace

std::string tokenizer_identity(const text::Tokenizer& tokenizer) {
  return io::to_hex(io::xxh64(tokenizer.to_json()));
}

bool is_token_file(const std::string& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error) || fs::file_size(path, error) < kTokenHeader1) return false;
  try {
    return io::InputFile(path).read(0, sizeof kTokenMagic) == std::string_view(kTokenMagic, sizeof kTokenMagic);
  } catch (const IoError&) {
    return false;
  }
}

TokenFile::TokenFile(const std::string& path) : file_(path) {
  TokenHeader header;
  const auto need = [&](bool ok, const auto&... parts) { check<IoError>(ok, "", quote(path), ": ", parts...); };
  const uint64_t bytes = file_.size();
  need(bytes > kTokenHeader1, "has ", bytes, " bytes, the header of a token file alone has ", kTokenHeader1);
  file_.read(0, &header, std::min<size_t>(sizeof header, bytes));
  need(std::memcmp(header.magic, kTokenMagic, sizeof kTokenMagic) == 0, "byte 0: is not a Strata token file");
  need(header.version >= 1 && header.version <= 3, "byte 8: version ", header.version, ", 1, 2 and 3 are known");
  const uint64_t header_bytes[] = {kTokenHeader1, kTokenHeader2, kTokenHeader3};
  data_begin_ = header_bytes[header.version - 1];
  need(bytes > data_begin_, "has ", bytes, " bytes, the header alone has ", data_begin_);
  uint64_t stored = 0;  // the checksum is the header's last field, in each version another
  std::memcpy(&stored, reinterpret_cast<const char*>(&header) + data_begin_ - 8, 8);
  need(stored == header.checksum_of(data_begin_ - 8), "byte ", data_begin_ - 8,
       ": the header's checksum does not match: it is damaged");
  need(header.token_bytes == 2 || header.token_bytes == 4, "byte 12: ", header.token_bytes,
       " bytes a token, 2 or 4 are known");
  need(header.vocab >= 1 && header.vocab <= (header.token_bytes == 2 ? uint64_t{65536} : uint64_t{INT32_MAX}),
       "byte 16: a vocabulary of ", header.vocab, " does not fit ", header.token_bytes, " bytes a token");
  need(header.count >= 1 && header.count <= INT64_MAX / 8, "byte 24: ", header.count, " tokens cannot be");
  if (header.version < 3) {
    header.documents = header.identity_bytes = 0;
    header.separator = -1;
  }
  need(header.documents <= bytes / 8, "byte 56: ", header.documents, " documents cannot be in ", bytes, " bytes");
  need(header.separator >= -1 && header.separator < static_cast<int64_t>(header.vocab), "byte 64: the separator is ",
       header.separator, ", the vocabulary has ", header.vocab);
  need(header.identity_bytes <= kMaxIdentity, "byte 72: a tokenizer's identity of ", header.identity_bytes,
       " bytes, at most ", kMaxIdentity, " are known");
  const uint64_t tokens = header.count * header.token_bytes;
  starts_begin_ = data_begin_ + (header.version == 1 ? tokens : padded_to_8(tokens));
  const uint64_t identity_begin = starts_begin_ + 8 * header.documents;
  data_end_ = identity_begin + padded_to_8(header.identity_bytes);
  uint64_t blocks = 0;
  if (header.version > 1) {
    need(header.block >= 8 && header.block <= kMaxTokenBlock && header.block % 8 == 0, "byte 40: blocks of ",
         header.block, " bytes, multiples of 8 up to ", kMaxTokenBlock, " are known");
    blocks = (data_end_ - data_begin_ + header.block - 1) / header.block;
  }
  const uint64_t expected = data_end_ + 8 * blocks;
  need(bytes == expected, "byte 24: with ", header.count, " tokens of ", header.token_bytes, " bytes it has ", expected,
       " bytes, there are ", bytes);
  if (header.version > 1) {
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
  documents_ = static_cast<int64_t>(header.documents);
  if (header.separator >= 0) separator_ = static_cast<int32_t>(header.separator);
  if (header.identity_bytes > 0) {
    verify_bytes(identity_begin, identity_begin + header.identity_bytes);
    identity_ = file_.read(identity_begin, header.identity_bytes);
  }
}

void TokenFile::require_tokenizer(const text::Tokenizer& tokenizer) const {
  const std::string other = tokenizer_identity(tokenizer);
  check<ValueError>(identity_.empty() ? vocab_ == tokenizer.vocab_size() : identity_ == other, "TokenFile",
                    quote(path()), " was made with the tokenizer ",
                    identity_.empty() ? "of an unknown identity" : identity_, ", of ", vocab_, " ids; this one is ",
                    other, ", of ", tokenizer.vocab_size(), " ids");
}

std::pair<int64_t, int64_t> TokenFile::document(int64_t index) const {
  check<IndexError>(index >= 0 && index < documents_, "TokenFile", "'", path(), "': document ", index,
                    " is out of range, it has ", documents_);
  const uint64_t at = starts_begin_ + 8 * static_cast<uint64_t>(index);
  const bool last = index + 1 == documents_;
  uint64_t starts[2] = {0, static_cast<uint64_t>(size_)};
  verify_bytes(at, at + (last ? 8 : 16));
  file_.read(at, starts, last ? 8 : 16);
  check<IoError>(starts[0] <= starts[1] && starts[1] <= static_cast<uint64_t>(size_), "", quote(path()), ": byte ", at,
                 ": document ", index, " has the tokens from ", starts[0], " to ", starts[1], ", the file has ", size_,
                 ": it is damaged");
  return {static_cast<int64_t>(starts[0]), static_cast<int64_t>(starts[1])};
}

// Of the file's bytes, between header and table.
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
  std::vector<int32_t> ids((size_t{4} << 20) / sizeof(int32_t));
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
  const std::vector<std::string> sources{source};
  const uint64_t checksum = source_checksum(find_text_files(sources), tokenizer, options);
  if (cached && cached->source_checksum() == checksum) {
    if (cached->has_checksums()) return std::move(*cached);
    damage = cat(quote(path), " is of a version without checksums");
  }
  build_token_file(sources, tokenizer, path, options);
  TokenFile built(path);
  check<IoError>(built.source_checksum() == checksum, "", quote(source), " was changed while it was read: try again");
  if (!damage.empty() && notes) notes->push_back(cat(damage, "; it was built again from ", quote(source)));
  return built;
}

}  // namespace strata::data
