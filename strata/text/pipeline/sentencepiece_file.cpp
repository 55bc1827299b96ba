// The protocol buffer that tokenizer.model is (sentencepiece_model.proto): the few fields that decide ids are read,
// the others are passed over.

#include <bit>
#include <cstring>

#include "strata/core/error.h"
#include "strata/io/files.h"
#include "strata/text/pipeline/sentencepiece.h"
#include "strata/text/utf8.h"

namespace strata::text {
namespace {

// Fields of one message, in the order of its bytes.
class Fields {
 public:
  enum class Wire : uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

  /// `offset`: where the message starts in the file.
  Fields(std::string_view message, uint64_t offset, std::string_view source)
      : message_(message), offset_(offset), source_(source) {}

  /// False at the end.
  bool next() {
    if (at_ == message_.size()) return false;
    const uint64_t key = varint();
    number_ = key >> 3;
    wire_ = static_cast<Wire>(key & 7);
    switch (wire_) {
      case Wire::varint:
        value_ = varint();
        return true;
      case Wire::fixed64:
        bytes_ = take(8);
        return true;
      case Wire::fixed32:
        bytes_ = take(4);
        return true;
      case Wire::bytes:
        bytes_ = take(varint());
        return true;
    }
    fail(cat("has the wire type ", key & 7));
  }

  uint64_t number() const { return number_; }
  uint64_t integer() const { return need(Wire::varint), value_; }
  bool flag() const { return integer() != 0; }
  std::string_view bytes() const { return need(Wire::bytes), bytes_; }
  float real() const {
    need(Wire::fixed32);
    uint32_t bits = 0;
    for (size_t i = 4; i-- > 0;) bits = bits << 8 | static_cast<unsigned char>(bytes_[i]);
    return std::bit_cast<float>(bits);
  }
  std::string text() const {
    const std::string s(bytes());
    if (valid_utf8(s) != s) fail("is not UTF-8");
    return s;
  }
  /// The message that is the field's value.
  Fields message() const {
    const std::string_view inner = bytes();
    return Fields(inner, offset_ + static_cast<uint64_t>(inner.data() - message_.data()), source_);
  }
  [[noreturn]] void fail(std::string_view what) const {
    throw IoError(source_, cat("field ", number_, " that ends at byte ", offset_ + at_, " ", what));
  }

 private:
  void need(Wire wire) const {
    if (wire_ != wire) fail(cat("has the wire type ", static_cast<int>(wire_), ", not ", static_cast<int>(wire)));
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    fail("has a number of more than 64 bits");
  }
  std::string_view take(uint64_t n) {
    if (n > message_.size() - at_) fail(cat("is cut: ", n, " bytes wanted, ", message_.size() - at_, " left"));
    const std::string_view taken = message_.substr(at_, n);
    at_ += n;
    return taken;
  }

  std::string_view message_;
  uint64_t offset_;
  std::string_view source_;
  size_t at_ = 0;
  uint64_t number_ = 0, value_ = 0;
  Wire wire_ = Wire::varint;
  std::string_view bytes_;
};

SentencePieceModel::Piece read_piece(Fields fields) {
  SentencePieceModel::Piece piece;
  while (fields.next()) {
    if (fields.number() == 1) piece.text = fields.text();
    if (fields.number() == 2) piece.score = fields.real();
    if (fields.number() == 3) {
      if (fields.integer() < 1 || fields.integer() > 6) fields.fail(cat("is the piece type ", fields.integer()));
      piece.type = static_cast<PieceType>(fields.integer());
    }
  }
  if (piece.text.empty()) fields.fail("leaves a piece without text");
  return piece;
}

void read_trainer(Fields fields, SentencePieceModel& model) {
  while (fields.next()) {
    switch (fields.number()) {
      case 3:
        if (fields.integer() < 1 || fields.integer() > 4) fields.fail(cat("is the model type ", fields.integer()));
        model.kind = static_cast<SentencePieceModel::Kind>(fields.integer());
        break;
      case 22:
        model.split_by_whitespace = fields.flag();
        break;
      case 24:
        model.treat_whitespace_as_suffix = fields.flag();
        break;
      case 35:
        model.byte_fallback = fields.flag();
        break;
      case 46:
        model.bos_piece = fields.text();
        break;
      case 47:
        model.eos_piece = fields.text();
        break;
      default:
        break;
    }
  }
}

void read_normalizer(Fields fields, SentencePieceModel& model) {
  while (fields.next()) {
    if (fields.number() == 2) model.precompiled_charsmap = std::string(fields.bytes());
    if (fields.number() == 3) model.add_dummy_prefix = fields.flag();
    if (fields.number() == 4) model.remove_extra_whitespaces = fields.flag();
    if (fields.number() == 5) model.escape_whitespaces = fields.flag();
  }
}
}  // namespace

SentencePieceModel parse_sentencepiece(std::string_view bytes, std::string_view source) {
  SentencePieceModel model;
  Fields fields(bytes, 0, source);
  while (fields.next()) {
    if (fields.number() == 1) model.pieces.push_back(read_piece(fields.message()));
    if (fields.number() == 2) read_trainer(fields.message(), model);
    if (fields.number() == 3) read_normalizer(fields.message(), model);
  }
  check<IoError>(!model.pieces.empty(), source, "has no pieces: it is no sentencepiece model");
  return model;
}

}  // namespace strata::text
