#include "strata/data/sequences.h"

#include <algorithm>
#include <utility>

#include "strata/core/error.h"

namespace strata::data {
namespace {

void check_range(int64_t index, int64_t size, int64_t begin, int64_t count, int64_t length) {
  check<IndexError>(index >= 0 && index < size, "Sequences", "sequence ", index, " is out of range, there are ", size);
  check<IndexError>(begin >= 0 && begin <= length && count >= 0 && count <= length - begin, "Sequences", "tokens ",
                    begin, " to ", begin, " + ", count, " of sequence ", index, " are out of range, it has ", length);
}

}  // namespace

void StoredSequences::add(const MarkedTokens& text) {
  check(text.tokens.size() == text.learned.size(), "StoredSequences", text.learned.size(), " marks for ",
        text.tokens.size(), " tokens");
  tokens_.insert(tokens_.end(), text.tokens.begin(), text.tokens.end());
  learned_.insert(learned_.end(), text.learned.begin(), text.learned.end());
  ends_.push_back(static_cast<int64_t>(tokens_.size()));
}

int64_t StoredSequences::begin_of(int64_t index) const {
  check<IndexError>(index >= 0 && index < size(), "Sequences", "sequence ", index, " is out of range, there are ",
                    size());
  return index == 0 ? 0 : ends_[static_cast<size_t>(index - 1)];
}

int64_t StoredSequences::length(int64_t index) const {
  const int64_t begin = begin_of(index);
  return ends_[static_cast<size_t>(index)] - begin;
}

void StoredSequences::read(int64_t index, int64_t begin, std::span<int32_t> tokens, std::span<uint8_t> learned) const {
  check_range(index, size(), begin, static_cast<int64_t>(tokens.size()), length(index));
  const auto at = static_cast<std::ptrdiff_t>(begin_of(index) + begin);
  std::copy_n(tokens_.begin() + at, tokens.size(), tokens.begin());
  std::copy_n(learned_.begin() + at, learned.size(), learned.begin());
}

int64_t StoredSequences::learned(int64_t index, int64_t begin, int64_t count) const {
  check_range(index, size(), begin, count, length(index));
  const auto from = learned_.begin() + static_cast<std::ptrdiff_t>(begin_of(index) + begin);
  return std::count(from, from + static_cast<std::ptrdiff_t>(count), 1);
}

FileSequences::FileSequences(std::shared_ptr<const TokenFile> file, int64_t begin, int64_t end)
    : file_(std::move(file)), begin_(begin), end_(end) {
  check(file_->documents() > 0, "FileSequences", "'", file_->path(),
        "' does not say where documents begin: it is of an earlier version");
  check(begin >= 0 && begin < end && end <= file_->documents(), "FileSequences", "documents ", begin, " to ", end,
        " are not in '", file_->path(), "', which has ", file_->documents());
}
FileSequences::FileSequences(std::shared_ptr<const TokenFile> file) : FileSequences(file, 0, file->documents()) {}

int64_t FileSequences::length(int64_t index) const {
  check<IndexError>(index >= 0 && index < size(), "Sequences", "sequence ", index, " is out of range, there are ",
                    size());
  const auto [begin, end] = file_->document(begin_ + index);
  return end - begin;
}

void FileSequences::read(int64_t index, int64_t begin, std::span<int32_t> tokens, std::span<uint8_t> learned) const {
  check<IndexError>(index >= 0 && index < size(), "Sequences", "sequence ", index, " is out of range, there are ",
                    size());
  const auto [first, end] = file_->document(begin_ + index);
  check_range(index, size(), begin, static_cast<int64_t>(tokens.size()), end - first);
  file_->read(first + begin, tokens);
  std::ranges::fill(learned, uint8_t{1});
}

int64_t FileSequences::learned(int64_t index, int64_t begin, int64_t count) const {
  check_range(index, size(), begin, count, length(index));
  return count;
}

}  // namespace strata::data
