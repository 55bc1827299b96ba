// 4 and 8 bits in words: GPTQ, AWQ, compressed-tensors' pack-quantized.

#include <numeric>
#include <vector>

#include "strata/models/packed_files_inl.h"

namespace strata::packed_file {

namespace {

int64_t group_of(const PackedScheme& s, int64_t columns) {
  return s.group_size == 0 ? columns : s.group_size;
}
void check_groups(const PackedScheme& s, int64_t columns) {
  check<ShapeError>(columns > 0 && columns % group_of(s, columns) == 0, kRead, columns,
                    " columns are no multiple of a group of ", s.group_size);
}
// The order of columns by group, from each column's group. Undefined where they lie so.
Tensor order_of(const Tensor& g_idx, int64_t group) {
  const int64_t k = g_idx.numel();
  const auto* of = g_idx.data<int32_t>();
  std::vector<int32_t> order(static_cast<size_t>(k));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int32_t a, int32_t b) { return of[a] < of[b]; });
  bool sorted = true;
  for (int64_t j = 0; j < k; ++j) {
    const int32_t column = order[static_cast<size_t>(j)];
    check(of[column] == j / group, kRead, "\"g_idx\" puts column ", column, " into group ", of[column], ": groups of ",
          group, " columns each are wanted");
    sorted = sorted && column == j;
  }
  return sorted ? Tensor() : from_span<int32_t>(order, {k});
}
Tensor g_idx_of(const PackedWeight& w, int64_t group) {
  const Tensor g = host({w.columns}, DType::i32), order = w.order.defined() ? near(w.order) : Tensor();
  for (int64_t j = 0; j < w.columns; ++j)
    g.data<int32_t>()[order.defined() ? order.data<int32_t>()[j] : j] = static_cast<int32_t>(j / group);
  return g;
}
// Where in the codes each column of W is.
std::vector<int64_t> places_of(const PackedWeight& w) {
  std::vector<int64_t> place(static_cast<size_t>(w.columns));
  const Tensor order = w.order.defined() ? near(w.order) : Tensor();
  for (int64_t j = 0; j < w.columns; ++j)
    place[static_cast<size_t>(order.defined() ? order.data<int32_t>()[j] : j)] = j;
  return place;
}
void check_whole(const PackedScheme& s, const PackedWeight& w) {
  check(w.format->codes == whole(s.bits).codes && w.block_rows == 1 && !w.nested.defined(), kWrite, s.file->name,
        " of ", s.bits, " bits does not store ", w.format->name, " in blocks of ", w.block_rows, " rows");
  check((w.block_columns == 0 ? w.columns : w.block_columns) == group_of(s, w.columns), kWrite, "groups are of ",
        w.block_columns, " columns, the scheme's of ", s.group_size);
}
}  // namespace

PackedWeight read_gptq(const PackedScheme& s, const PackedPieces& pieces) {
  const int per = 32 / s.bits;
  const Tensor q = piece(pieces, "qweight", {DType::i32}, 2), z = piece(pieces, "qzeros", {DType::i32}, 2),
               scales = piece(pieces, "scales", kScales, 2);
  PackedWeight w;
  w.format = &whole(s.bits), w.columns = q.size(0) * per, w.rows = q.size(1), w.block_columns = s.group_size;
  check_groups(s, w.columns);
  const int64_t group = group_of(s, w.columns), groups = w.columns / group;
  check<ShapeError>(w.rows % per == 0, kRead, "\"qweight\" is ", q, ", wants a multiple of ", per, " columns");
  check_shape(z, "qzeros", {groups, w.rows / per});
  check_shape(scales, "scales", {groups, w.rows});
  if (has(pieces, "g_idx")) {
    const Tensor g = piece(pieces, "g_idx", {DType::i32}, 1);
    check_shape(g, "g_idx", {w.columns});
    w.order = order_of(g, group);
  }
  const Words codes = words_of(q, s.bits), zeros = words_of(z, s.bits);
  const int32_t* order = w.order.defined() ? w.order.data<int32_t>() : nullptr;
  if (order == nullptr && s.bits == 4 && w.columns % 32 == 0)
    w.codes = codes_from_words(*w.format, w.rows, w.columns,
                               [&](int64_t n, int64_t i) { return codes.at[i * codes.row + n]; });
  else
    w.codes = codes_from(*w.format, w.rows, w.columns, [&](int64_t n, int64_t j) {
      const int64_t k = order ? order[j] : j;
      return codes.code(k / per, n, static_cast<int>(k % per));
    });
  const int most = (1 << s.bits) - 1;
  w.zeros = zeros_from(*w.format, w.rows, groups, [&](int64_t n, int64_t g) {
    return zeros.code(g, n / per, static_cast<int>(n % per)) + s.zero_offset & most;
  });
  w.scales = scales.t().contiguous();
  return w;
}
PackedPieces write_gptq(const PackedScheme& s, const PackedWeight& w) {
  check_whole(s, w);
  const int per = 32 / s.bits, most = (1 << s.bits) - 1;
  check(w.rows % per == 0 && w.columns % per == 0, kWrite, "GPTQ stores rows and columns in multiples of ", per,
        ", not ", w.rows, " and ", w.columns);
  const int64_t group = group_of(s, w.columns);
  const Tensor codes = near(w.codes), zeros = w.zeros.defined() ? near(w.zeros) : Tensor(), g_idx = g_idx_of(w, group);
  const std::vector<int64_t> place = places_of(w);
  return {{"qweight", words_from(w.columns / per, w.rows, s.bits,
                                 [&](int64_t i, int64_t n, int p) {
                                   return code_of(w, codes, n, place[static_cast<size_t>(i * per + p)]);
                                 })},
          {"qzeros", words_from(w.columns / group, w.rows / per, s.bits,
                                [&](int64_t g, int64_t i, int p) {
                                  return zero_of(w, zeros, i * per + p, g) - s.zero_offset & most;
                                })},
          {"scales", near(w.scales).t().contiguous()},
          {"g_idx", g_idx}};
}

namespace {
// The column of eight that each place of a word holds.
constexpr int kAwqOrder[8] = {0, 2, 4, 6, 1, 3, 5, 7};
// And the place that holds a column.
constexpr int kAwqPlace[8] = {0, 4, 1, 5, 2, 6, 3, 7};
}  // namespace

PackedWeight read_awq(const PackedScheme& s, const PackedPieces& pieces) {
  const Tensor q = piece(pieces, "qweight", {DType::i32}, 2), z = piece(pieces, "qzeros", {DType::i32}, 2),
               scales = piece(pieces, "scales", kScales, 2);
  PackedWeight w;
  w.format = &whole(4), w.columns = q.size(0), w.rows = q.size(1) * 8, w.block_columns = s.group_size;
  check_groups(s, w.columns);
  const int64_t groups = w.columns / group_of(s, w.columns);
  check_shape(z, "qzeros", {groups, w.rows / 8});
  check_shape(scales, "scales", {groups, w.rows});
  const Words codes = words_of(q, 4), zeros = words_of(z, 4);
  w.codes = codes_from(*w.format, w.rows, w.columns,
                       [&](int64_t n, int64_t k) { return codes.code(k, n / 8, kAwqPlace[n % 8]); });
  w.zeros = zeros_from(*w.format, w.rows, groups,
                       [&](int64_t n, int64_t g) { return zeros.code(g, n / 8, kAwqPlace[n % 8]); });
  w.scales = scales.t().contiguous();
  return w;
}
PackedPieces write_awq(const PackedScheme& s, const PackedWeight& w) {
  check_whole(s, w);
  check(!w.order.defined(), kWrite, "AWQ has no order of columns");
  check(w.rows % 8 == 0, kWrite, "AWQ stores rows in multiples of 8, not ", w.rows);
  const Tensor codes = near(w.codes), zeros = w.zeros.defined() ? near(w.zeros) : Tensor();
  return {
      {"qweight", words_from(w.columns, w.rows / 8, 4,
                             [&](int64_t k, int64_t i, int p) { return code_of(w, codes, i * 8 + kAwqOrder[p], k); })},
      {"qzeros", words_from(w.columns / group_of(s, w.columns), w.rows / 8, 4,
                            [&](int64_t g, int64_t i, int p) { return zero_of(w, zeros, i * 8 + kAwqOrder[p], g); })},
      {"scales", near(w.scales).t().contiguous()}};
}

// ---- compressed-tensors ----

PackedWeight read_pack_quantized(const PackedScheme& s, const PackedPieces& pieces) {
  const int per = 32 / s.bits;
  const Tensor q = piece(pieces, "weight_packed", {DType::i32}, 2), scales = piece(pieces, "weight_scale", kScales, 2),
               shape = piece(pieces, "weight_shape", {DType::i64, DType::i32}, 1).to(DType::i64);
  check_shape(shape, "weight_shape", {2});
  PackedWeight w;
  w.format = &whole(s.bits), w.rows = shape.data<int64_t>()[0], w.columns = shape.data<int64_t>()[1],
  w.block_columns = s.group_size;
  check<ShapeError>(
      w.rows == q.size(0) && w.columns > 0 && w.columns <= q.size(1) * per && w.columns > (q.size(1) - 1) * per, kRead,
      "\"weight_shape\" says [", w.rows, ", ", w.columns, "], \"weight_packed\" is ", q);
  check_groups(s, w.columns);
  const int64_t group = group_of(s, w.columns), groups = w.columns / group;
  check_shape(scales, "weight_scale", {w.rows, groups});
  if (has(pieces, "weight_g_idx")) {
    const Tensor g = piece(pieces, "weight_g_idx", {DType::i32}, 1);
    check_shape(g, "weight_g_idx", {w.columns});
    w.order = order_of(g, group);
  }
  const Words codes = words_of(q, s.bits);
  const int32_t* order = w.order.defined() ? w.order.data<int32_t>() : nullptr;
  if (order == nullptr && s.bits == 4 && w.columns % 32 == 0)
    w.codes = codes_from_words(*w.format, w.rows, w.columns,
                               [&](int64_t n, int64_t i) { return codes.at[n * codes.row + i]; });
  else
    w.codes = codes_from(*w.format, w.rows, w.columns, [&](int64_t n, int64_t j) {
      const int64_t k = order ? order[j] : j;
      return codes.code(n, k / per, static_cast<int>(k % per));
    });
  check(s.symmetric != has(pieces, "weight_zero_point"), kRead, "\"weight_zero_point\" is ",
        s.symmetric ? "there, and the scheme is symmetric" : "missing, and the scheme is not symmetric");
  if (!s.symmetric) {
    const Tensor z = piece(pieces, "weight_zero_point", {DType::i32}, 2);
    check_shape(z, "weight_zero_point", {ceil_div(w.rows, per), groups});
    const Words zeros = words_of(z, s.bits);
    w.zeros = zeros_from(*w.format, w.rows, groups,
                         [&](int64_t n, int64_t g) { return zeros.code(n / per, g, static_cast<int>(n % per)); });
  }
  w.scales = scales;
  return w;
}
PackedPieces write_pack_quantized(const PackedScheme& s, const PackedWeight& w) {
  check_whole(s, w);
  check(s.symmetric != w.zeros.defined(), kWrite, "the weight has ", s.symmetric ? "zeros" : "no zeros",
        ", the scheme is ", s.symmetric ? "" : "not ", "symmetric");
  const int per = 32 / s.bits;
  const int64_t group = group_of(s, w.columns);
  const Tensor codes = near(w.codes), zeros = w.zeros.defined() ? near(w.zeros) : Tensor(),
               order = w.order.defined() ? near(w.order) : Tensor();
  const std::vector<int64_t> place = places_of(w);
  PackedPieces pieces{
      {"weight_packed", words_from(w.rows, ceil_div(w.columns, per), s.bits,
                                   [&](int64_t n, int64_t i, int p) {
                                     const int64_t k = i * per + p;
                                     return k < w.columns ? code_of(w, codes, n, place[static_cast<size_t>(k)]) : 0;
                                   })},
      {"weight_scale", near(w.scales)},
      {"weight_shape", from_span<int64_t>(std::vector<int64_t>{w.rows, w.columns}, {2})}};
  if (zeros.defined())
    pieces.emplace("weight_zero_point",
                   words_from(ceil_div(w.rows, per), w.columns / group, s.bits, [&](int64_t i, int64_t g, int p) {
                     return i * per + p < w.rows ? zero_of(w, zeros, i * per + p, g) : 0;
                   }));
  if (order.defined()) pieces.emplace("weight_g_idx", g_idx_of(w, group));
  return pieces;
}

}  // namespace strata::packed_file
