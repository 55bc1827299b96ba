#include "strata/data/packed_rows.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "strata/core/error.h"
#include "strata/data/names_inl.h"
#include "strata/data/permutation.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/join/join.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/view/view.h"

namespace strata::data {
namespace {

constexpr std::string_view kOp = "PackedRows";
constexpr std::string_view kPackings[] = {"cut", "next_fit", "first_fit"};
constexpr std::string_view kLongTexts[] = {"split", "truncate", "drop"};

}  // namespace

std::span<const std::string_view> packings() {
  return kPackings;
}
std::string_view to_string(Packing packing) {
  return kPackings[static_cast<size_t>(packing)];
}
Packing parse_packing(std::string_view name) {
  return parse_name<Packing>(kPackings, name, "way to pack texts");
}
std::span<const std::string_view> long_texts() {
  return kLongTexts;
}
std::string_view to_string(LongText way) {
  return kLongTexts[static_cast<size_t>(way)];
}
LongText parse_long_text(std::string_view name) {
  return parse_name<LongText>(kLongTexts, name, "way with long texts");
}

PackedRows::PackedRows(std::shared_ptr<const Sequences> texts, const PackedRowsOptions& options)
    : texts_(std::move(texts)), options_(options) {
  check(texts_ != nullptr && texts_->size() > 0, kOp, "there are no texts");
  check(options.context >= 1, kOp, "context must be at least 1, got ", options.context);
  check(options.window >= 1, kOp, "window must be at least 1, got ", options.window);
  check(options.dtype == DType::i64 || options.dtype == DType::i32, kOp, "dtype must be i64 or i32, got ",
        options.dtype);
  pack(make_pieces());
  check(size() > 0, kOp, "none of the ", texts_->size(), " texts has anything to learn that fits a row of ",
        options.context, " tokens");
}

// In the order in which they are packed, none longer than a row (but with Packing::cut, which cuts).
std::vector<PackedRows::Piece> PackedRows::make_pieces() {
  std::vector<Piece> pieces;
  const int64_t texts = texts_->size(), context = options_.context;
  const KeyedPermutation order(texts, mix(options_.seed, 0x9acced));
  for (int64_t i = 0; i < texts; ++i) {
    const int64_t text = options_.shuffle ? order(i) : i;
    int64_t inputs = std::max<int64_t>(texts_->length(text) - 1, 0);
    const bool too_long = inputs > context && options_.packing != Packing::cut;
    if (too_long && options_.long_text == LongText::drop) inputs = 0;
    if (too_long && options_.long_text == LongText::truncate) {
      inputs = context;
      ++truncated_;
    }
    const int64_t step = options_.packing == Packing::cut ? std::max<int64_t>(inputs, 1) : context;
    const size_t before = pieces.size();
    for (int64_t begin = 0; begin < inputs; begin += step) {
      const int64_t count = std::min(step, inputs - begin);
      const int64_t learned = texts_->learned(text, begin + 1, count);
      if (learned == 0) continue;
      learned_ += learned;
      pieces.push_back({text, begin, count});
    }
    if (pieces.size() == before) ++dropped_;
  }
  return pieces;
}

void PackedRows::pack(std::vector<Piece> pieces) {
  const int64_t context = options_.context;
  rows_ = {0};
  int64_t room = context;
  const auto end_row = [&] {
    if (static_cast<int64_t>(pieces_.size()) > rows_.back()) {
      texts_per_row_ = std::max(texts_per_row_, static_cast<int64_t>(pieces_.size()) - rows_.back() + (room > 0));
      rows_.push_back(static_cast<int64_t>(pieces_.size()));
    }
    room = context;
  };
  const auto put = [&](const Piece& piece) {
    pieces_.push_back(piece);
    room -= piece.count;
  };

  if (options_.packing != Packing::first_fit) {
    for (Piece piece : pieces) {
      if (options_.packing == Packing::next_fit && piece.count > room) end_row();
      while (piece.count > 0) {
        if (room == 0) end_row();
        const int64_t n = std::min(piece.count, room);
        put({piece.text, piece.begin, n});
        piece.begin += n;
        piece.count -= n;
      }
    }
    end_row();
    return;
  }

  const auto window = static_cast<size_t>(options_.window);
  for (size_t begin = 0; begin < pieces.size(); begin += window) {
    const size_t end = std::min(pieces.size(), begin + window);
    std::stable_sort(pieces.begin() + static_cast<std::ptrdiff_t>(begin),
                     pieces.begin() + static_cast<std::ptrdiff_t>(end),
                     [](const Piece& a, const Piece& b) { return a.count > b.count; });
    // A tree whose leaves are the rows' room, each node the most of its two: the first row with room in log(rows).
    size_t leaves = 1;
    while (leaves < end - begin) leaves *= 2;
    std::vector<int64_t> most(2 * leaves, context);
    std::vector<std::vector<size_t>> rows(end - begin);
    for (size_t i = begin; i < end; ++i) {
      size_t node = 1;
      while (node < leaves) node = most[2 * node] >= pieces[i].count ? 2 * node : 2 * node + 1;
      rows[node - leaves].push_back(i);
      most[node] -= pieces[i].count;
      for (node /= 2; node >= 1; node /= 2) most[node] = std::max(most[2 * node], most[2 * node + 1]);
    }
    for (const std::vector<size_t>& row : rows) {
      for (const size_t i : row) put(pieces[i]);
      end_row();
    }
  }
}

double PackedRows::fill() const {
  const int64_t placed = std::accumulate(pieces_.begin(), pieces_.end(), int64_t{0},
                                         [](int64_t n, const Piece& p) { return n + p.count; });
  return static_cast<double>(placed) / static_cast<double>(size() * options_.context);
}

Batch PackedRows::get_batch(std::span<const Sample> samples) const {
  const auto n = static_cast<int64_t>(samples.size());
  const int64_t context = options_.context;
  const TensorMeta row{Shape{n, context}, options_.dtype, Device::cpu()};
  Batch batch{empty(row), empty(row), empty(row), empty(row),
              empty(TensorMeta{Shape{n, texts_per_row_}, options_.dtype, Device::cpu()})};
  const auto fill = [&]<class T>(T) {
    T* tokens = batch[0].data<T>();
    T* targets = batch[1].data<T>();
    T* positions = batch[2].data<T>();
    T* documents = batch[3].data<T>();
    T* ends = batch[4].data<T>();
    std::vector<int32_t> ids;
    std::vector<uint8_t> learned;
    for (const Sample& s : samples) {
      check<IndexError>(s.index >= 0 && s.index < size(), kOp, "sample ", s.index, " is out of range, there are ",
                        size());
      int64_t at = 0, document = 0;
      const auto begin = static_cast<size_t>(rows_[static_cast<size_t>(s.index)]);
      const auto end = static_cast<size_t>(rows_[static_cast<size_t>(s.index) + 1]);
      for (size_t p = begin; p < end; ++p) {
        const Piece& piece = pieces_[p];
        ids.resize(static_cast<size_t>(piece.count) + 1);
        learned.resize(ids.size());
        texts_->read(piece.text, piece.begin, ids, learned);
        for (int64_t i = 0; i < piece.count; ++i, ++at) {
          const auto k = static_cast<size_t>(i);
          tokens[at] = static_cast<T>(ids[k]);
          targets[at] = learned[k + 1] ? static_cast<T>(ids[k + 1]) : static_cast<T>(kIgnored);
          positions[at] = static_cast<T>(i);
          documents[at] = static_cast<T>(document);
        }
        ends[document++] = static_cast<T>(at);
      }
      for (int64_t i = 0; at < context; ++i, ++at) {
        tokens[at] = 0;
        targets[at] = static_cast<T>(kIgnored);
        positions[at] = static_cast<T>(i);
        documents[at] = static_cast<T>(document);
      }
      for (; document < texts_per_row_; ++document) ends[document] = static_cast<T>(context);
      tokens += context;
      targets += context;
      positions += context;
      documents += context;
      ends += texts_per_row_;
    }
  };
  if (options_.dtype == DType::i64) {
    fill(int64_t{});
  } else {
    fill(int32_t{});
  }
  return batch;
}

Tensor packed_ends(const Tensor& ends, int64_t context) {
  check<ShapeError>(ends.dim() == 2 && ends.numel() > 0, "packed_ends", "ends must be [B, N], got ", ends);
  const Tensor wide = ends.to(DType::i64);
  // Where each row begins, made where `ends` is: T, 2 T, .. less T.
  const Tensor begins = cumsum(full_like(wide.slice(1, 0, 1), context), 0) - context;
  const Tensor flat = (wide + begins).reshape({-1});
  return cat({zeros_like(flat.slice(0, 0, 1)), flat});
}

Tensor packed_mask(const Tensor& documents) {
  check<ShapeError>(documents.dim() == 2, "packed_mask", "documents must be [B, T], got ", documents);
  return eq(documents.unsqueeze(2), documents.unsqueeze(1)).unsqueeze(1);
}

}  // namespace strata::data
