#pragma once
// Tokenised texts of different lengths, and what of them is to be learned.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "strata/data/token_file.h"

namespace strata::data {

/// Token ids, and for each whether the model is to learn to write it: tokens.size() == learned.size().
struct MarkedTokens {
  std::vector<int32_t> tokens;
  std::vector<uint8_t> learned;  ///< 0 or 1
};

/// A numbered set of texts as tokens. Const functions may be called from several threads.
class Sequences {
 public:
  virtual ~Sequences() = default;
  /// How many there are.
  virtual int64_t size() const = 0;
  /// Tokens of one. Throws IndexError.
  virtual int64_t length(int64_t index) const = 0;
  /// Copies tokens [begin, begin + tokens.size()) of one and whether they are learned; both spans have the same size.
  /// Throws IndexError out of range.
  virtual void read(int64_t index, int64_t begin, std::span<int32_t> tokens, std::span<uint8_t> learned) const = 0;
  /// How many of tokens [begin, begin + count) of one are learned. Throws IndexError out of range.
  virtual int64_t learned(int64_t index, int64_t begin, int64_t count) const = 0;
};

/// Texts that are in memory, 5 bytes a token.
class StoredSequences final : public Sequences {
 public:
  StoredSequences() = default;
  /// Throws ValueError where there are not as many marks as tokens.
  void add(const MarkedTokens& text);
  int64_t size() const override { return static_cast<int64_t>(ends_.size()); }
  int64_t length(int64_t index) const override;
  void read(int64_t index, int64_t begin, std::span<int32_t> tokens, std::span<uint8_t> learned) const override;
  int64_t learned(int64_t index, int64_t begin, int64_t count) const override;
  /// Tokens of all of them.
  int64_t tokens() const { return static_cast<int64_t>(tokens_.size()); }

 private:
  int64_t begin_of(int64_t index) const;

  std::vector<int32_t> tokens_;
  std::vector<uint8_t> learned_;
  std::vector<int64_t> ends_;
};

/// The documents of a token file, all of whose tokens are learned.
class FileSequences final : public Sequences {
 public:
  /// Documents [begin, end). Throws ValueError: the file knows no documents (versions 1 and 2), or has not so many.
  FileSequences(std::shared_ptr<const TokenFile> file, int64_t begin, int64_t end);
  explicit FileSequences(std::shared_ptr<const TokenFile> file);
  int64_t size() const override { return end_ - begin_; }
  int64_t length(int64_t index) const override;
  void read(int64_t index, int64_t begin, std::span<int32_t> tokens, std::span<uint8_t> learned) const override;
  int64_t learned(int64_t index, int64_t begin, int64_t count) const override;

 private:
  std::shared_ptr<const TokenFile> file_;
  int64_t begin_, end_;
};

}  // namespace strata::data
