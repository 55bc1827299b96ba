// The records that bring sequences of different lengths into one tensor: padded, or packed as the recurrent layers read
// them.

#include <algorithm>
#include <limits>
#include <string>

#include "strata/core/node.h"
#include "strata/cuda/graph.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/index/index.h"
#include "strata/ops/join/join.h"
#include "strata/ops/rnn/records.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using Pair = std::tuple<Tensor, Tensor>;

Tensor counted(const std::vector<int64_t>& v) {
  return from_span<int64_t>(v, {static_cast<int64_t>(v.size())});
}
// Which sequence has which step is read from `sizes`: without them, or on the meta device, no size is known.
void need_values(std::string_view op, const Tensor& data, const Tensor& sizes) {
  check<DeviceError>(!data.device().is_meta() && !sizes.device().is_meta(), op,
                     "sizes depend on values, which meta tensors do not have");
}
// A row of `value` that stands where a sequence has ended.
Tensor filler(const Tensor& like, int64_t rows, double value) {
  Shape shape = like.shape();
  shape[0] = rows;
  const DeviceScope there(like.device());
  return full(shape, value, like.dtype());
}

// ---- pad_sequence ---------------------------------------------------------------------------------------------------

TensorMeta pad_infer(const TensorList& sequences, bool batch_first, double, const std::string& side) {
  constexpr std::string_view op = "pad_sequence";
  check(side == "left" || side == "right", op, "padding_side must be left or right, got '", side, "'");
  check(!sequences.empty(), op, "there are no sequences");
  int64_t longest = 0;
  check<ShapeError>(sequences[0].defined(), op, "a sequence must be [T, ..], got none");
  DType common = sequences[0].dtype();
  for (const Tensor& s : sequences) {
    check<ShapeError>(s.defined() && s.dim() >= 1, op, "a sequence must be [T, ..], got ", s);
    Shape rest = s.shape(), first = sequences[0].shape();
    rest.erase(0), first.erase(0);
    check<ShapeError>(rest == first, op, "sequences must agree in all sizes but the first, got ", s, " beside ",
                      sequences[0]);
    check<DeviceError>(s.device() == sequences[0].device(), op, "sequences are on ", s.device(), " and ",
                       sequences[0].device());
    longest = std::max(longest, s.size(0));
    common = promote_types(common, s.dtype());
  }
  Shape shape = sequences[0].shape();
  shape[0] = longest;
  shape.insert(batch_first ? 0 : 1, static_cast<int64_t>(sequences.size()));
  return like(sequences[0]).with_shape(shape).with_dtype(common);
}
// Where sequence i stands in the padded tensor.
Tensor place_of(const Tensor& y, size_t i, int64_t length, bool batch_first, const std::string& side) {
  const Tensor own = select(y, batch_first ? 0 : 1, static_cast<int64_t>(i));
  const int64_t begin = side == "left" ? own.size(0) - length : 0;
  return slice(own, 0, begin, begin + length);
}

const Op<Tensor(const TensorList&, bool, double, const std::string&)> pad_sequence_op{{
    .schema = "pad_sequence(Tensor[] sequences, bool batch_first=false, float padding_value=0.0, str "
              "padding_side=\"right\") -> Tensor",
    .shard = "whole",
    .doc = "Sequences [T_i, ..] as one tensor [T, B, ..] ([B, T, ..] with batch_first), T being the longest: the ends "
           "of the others (with padding_side \"left\" their beginnings) are padding_value. ShapeError, ValueError.",
    .example = "assert(pad_sequence({ones({3}), ones({1})}, true).to_vector<float>() == "
               "std::vector<float>({1, 1, 1, 1, 0, 0}));",
    .infer = pad_infer,
    .kernels = {.everywhere =
                    [](Tensor& y, const TensorList& sequences, bool batch_first, double value,
                       const std::string& side) {
                      const int64_t longest = y.size(batch_first ? 1 : 0);
                      bool whole = true;
                      for (const Tensor& s : sequences) whole = whole && s.size(0) == longest;
                      if (!whole) fill_elements(y, Scalar(value));
                      for (size_t i = 0; i < sequences.size(); ++i)
                        if (sequences[i].numel() > 0)
                          copy_elements(place_of(y, i, sequences[i].size(0), batch_first, side), sequences[i]);
                    }},
    .backward =
        [](Backward& b, const TensorList& sequences, bool batch_first, double, const std::string& side) {
          for (size_t i = 0; i < sequences.size(); ++i)
            if (b.needs(static_cast<int>(i)))
              b.set(static_cast<int>(i),
                    place_of(b.gy(), i, sequences[i].size(0), batch_first, side).to(sequences[i].dtype()));
        },
    .dtypes = kAllTypes,
    .cost =
        [](const TensorList& sequences, bool, double, const std::string&) {
          double read = 0, longest = 0, row = 0;
          for (const Tensor& s : sequences) {
            read += static_cast<double>(s.nbytes());
            longest = std::max(longest, static_cast<double>(s.size(0)));
            if (s.size(0) > 0) row = static_cast<double>(s.nbytes() / s.size(0));
          }
          return Cost{0, read + longest * row * static_cast<double>(sequences.size())};
        },
    .samples =
        [](Samples& s) {
          s.add(TensorList{s.tensor({3, 2}), s.tensor({1, 2}), s.tensor({2, 2})});
          s.add(TensorList{s.tensor({1}), s.tensor({4})}, true, 1.0, "left");
          s.add(TensorList{s.tensor({2, 3}), s.tensor({0, 3})}).named("one is empty");
          s.invalid<ValueError>("no sequences", TensorList());
          s.invalid<ValueError>("padding_side", TensorList{s.tensor({2})}, false, 0.0, "middle");
          s.invalid<ShapeError>("", TensorList{s.tensor({2, 3}), s.tensor({2, 4})});
        },
    .reference =
        [](const TensorList& sequences, bool batch_first, double value, const std::string& side) {
          int64_t time = 0;
          for (const Tensor& t : sequences) time = std::max(time, t.size(0));
          const auto batch = static_cast<int64_t>(sequences.size());
          Shape shape{batch_first ? batch : time, batch_first ? time : batch};
          int64_t row = 1;
          for (int d = 1; d < sequences[0].dim(); ++d) shape.push_back(sequences[0].size(d)), row *= shape.back();
          std::vector<double> v(static_cast<size_t>(shape.product()), value);
          for (int64_t b = 0; b < batch; ++b) {
            const std::vector<double> from = sequences[static_cast<size_t>(b)].to_vector<double>();
            const int64_t length = sequences[static_cast<size_t>(b)].size(0);
            for (int64_t t = 0; t < length; ++t) {
              const int64_t at = side == "left" ? time - length + t : t;
              for (int64_t i = 0; i < row; ++i)
                v[static_cast<size_t>((batch_first ? b * time + at : at * batch + b) * row + i)] =
                    from[static_cast<size_t>(t * row + i)];
            }
          }
          return from_span<double>(v, shape);
        },
}};

// ---- pack_padded_sequence -------------------------------------------------------------------------------------------

std::vector<int64_t> checked_lengths(std::string_view op, const Tensor& input, const Tensor& lengths,
                                     bool batch_first) {
  check<ShapeError>(input.dim() >= 2, op, "the input must be [T, B, ..] or [B, T, ..], got ", input);
  const int64_t time = input.size(batch_first ? 1 : 0), batch = input.size(batch_first ? 0 : 1);
  check<ShapeError>(lengths.dim() == 1 && lengths.dtype() == DType::i64, op, "lengths must be i64 [B], got ", lengths);
  check<ShapeError>(lengths.size(0) == batch, op, lengths.size(0), " lengths for a batch of ", batch);
  check(batch > 0, op, "there are no sequences");
  std::vector<int64_t> sizes = lengths.to_vector<int64_t>();
  for (const int64_t n : sizes) check(n > 0 && n <= time, op, "lengths must be from 1 to ", time, ", got ", n);
  check(std::is_sorted(sizes.rbegin(), sizes.rend()), op,
        "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True");
  return sizes;
}

Pair pack_composed(const Tensor& input, const Tensor& lengths, bool batch_first) {
  need_values("pack_padded_sequence", input, lengths);
  const std::vector<int64_t> sizes = checked_lengths("pack_padded_sequence", input, lengths, batch_first);
  const int64_t time = input.size(batch_first ? 1 : 0), batch = input.size(batch_first ? 0 : 1);
  std::vector<int64_t> counts, stretches{0};  // of steps that equally many sequences have: where each begins
  int64_t n = batch, total = 0;
  for (int64_t t = 0; t < sizes[0]; ++t) {
    while (sizes[static_cast<size_t>(n - 1)] <= t) --n;
    if (t > 0 && n != counts.back()) stretches.push_back(t);
    counts.push_back(n);
    total += n;
  }
  // Few stretches are blocks of the input; the gradient of a block is as large as all of it.
  const bool recorded = grad_enabled() && input.requires_grad();
  if (input.device().is_cpu() && stretches.size() <= (recorded ? 1 : 16)) {
    const Tensor steps = batch_first ? transpose(input, 0, 1) : input;
    stretches.push_back(sizes[0]);
    TensorList blocks;
    for (size_t i = 0; i + 1 < stretches.size(); ++i) {
      const int64_t begin = stretches[i], end = stretches[i + 1], width = counts[static_cast<size_t>(begin)];
      blocks.push_back(flatten(slice(slice(steps, 0, begin, end), 1, 0, width), 0, 1));
    }
    const Tensor data = blocks.size() > 1 ? cat(blocks, 0) : blocks[0];
    return {data.storage() == input.storage() ? clone(data) : data, counted(counts)};
  }
  std::vector<int64_t> rows;
  rows.reserve(static_cast<size_t>(total));
  for (int64_t t = 0; t < sizes[0]; ++t)
    for (int64_t b = 0; b < counts[static_cast<size_t>(t)]; ++b)
      rows.push_back(batch_first ? b * time + t : t * batch + b);
  return {index_select(flatten(input, 0, 1), 0, recurrent::rows_on(rows, input.device())), counted(counts)};
}

const Op<Pair(const Tensor&, const Tensor&, bool)> pack_padded_sequence_op{{
    .schema = "pack_padded_sequence(Tensor input, Tensor lengths, bool batch_first=false) -> (Tensor data, Tensor "
              "batch_sizes)",
    .shard = "whole",
    .doc = "Packs sequences [T, B, ..] ([B, T, ..] with batch_first) by their lengths, i64 [B], which must not rise: "
           "data [total of the lengths, ..] has the first step of all, then the second of those that have one, and so "
           "on; batch_sizes, on the CPU, says how many have each step. ShapeError, ValueError.",
    .example = "auto [data, counts] = pack_padded_sequence(ones({3, 2, 4}), "
               "from_span<int64_t>(std::vector<int64_t>{3, 1}, {2})); "
               "assert(data.shape() == Shape({4, 4}) && counts.to_vector<int64_t>() == "
               "std::vector<int64_t>({2, 1, 1}));",
    .dynamic = {.everywhere = pack_composed},
    .composed = pack_composed,
    .dtypes = kAllTypes,
    .cost =
        [](const Tensor& input, const Tensor&, bool) {
          return Cost{0, 2.0 * input.nbytes()};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({4, 3, 2}), counted({4, 2, 1}));
          s.add(s.tensor({2, 3}), counted({2, 2}), true);
          s.add(s.tensor({3, 2, 2}), counted({3, 3})).named("all as long");
          s.add(s.tensor({20, 18}), counted({20, 19, 17, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1}))
              .named("many lengths");
          s.invalid<ShapeError>("2 lengths for a batch of 3", s.tensor({4, 3, 2}), counted({4, 2}));
          s.invalid<ValueError>("from 1 to 4", s.tensor({4, 2}), counted({5, 2}));
          s.invalid<ValueError>("from 1 to 4", s.tensor({4, 2}), counted({2, 0}));
          s.invalid<ValueError>("sorted", s.tensor({4, 2}), counted({2, 3}));
        },
    .reference =
        [](const Tensor& input, const Tensor& lengths, bool batch_first) {
          const std::vector<int64_t> sizes = lengths.to_vector<int64_t>();
          const std::vector<double> from = input.to_vector<double>();
          const int64_t time = input.size(batch_first ? 1 : 0), batch = input.size(batch_first ? 0 : 1);
          const int64_t row = input.numel() / (time * batch);
          std::vector<double> data;
          std::vector<int64_t> counts;
          for (int64_t t = 0; t < sizes[0]; ++t) {
            counts.push_back(0);
            for (int64_t b = 0; b < batch; ++b) {
              if (sizes[static_cast<size_t>(b)] <= t) continue;
              ++counts.back();
              const int64_t at = (batch_first ? b * time + t : t * batch + b) * row;
              data.insert(data.end(), from.begin() + at, from.begin() + at + row);
            }
          }
          Shape shape{static_cast<int64_t>(data.size()) / std::max<int64_t>(row, 1)};
          for (int d = 2; d < input.dim(); ++d) shape.push_back(input.size(d));
          return Pair(from_span<double>(data, shape), counted(counts));
        },
}};

// ---- pad_packed_sequence --------------------------------------------------------------------------------------------

std::vector<int64_t> checked_counts(std::string_view op, const Tensor& data, const Tensor& batch_sizes) {
  check<ShapeError>(data.dim() >= 1, op, "data must be [total of the lengths, ..], got ", data);
  check<ShapeError>(batch_sizes.dim() == 1 && batch_sizes.dtype() == DType::i64 && batch_sizes.size(0) > 0, op,
                    "batch_sizes must be i64 [T], got ", batch_sizes);
  std::vector<int64_t> counts = batch_sizes.to_vector<int64_t>();
  int64_t total = 0, before = std::numeric_limits<int64_t>::max();
  for (const int64_t n : counts) {
    check(n > 0 && n <= before, op, "batch_sizes must be positive and never rise, got ", n);
    check<ShapeError>(n <= data.size(0) - total, op, "batch_sizes add up to more than the rows of data, ", data);
    total += before = n;
  }
  check<ShapeError>(total == data.size(0), op, "batch_sizes add up to ", total, ", data is ", data);
  return counts;
}

Pair pad_packed_composed(const Tensor& data, const Tensor& batch_sizes, bool batch_first, double value,
                         std::optional<int64_t> total_length) {
  constexpr std::string_view op = "pad_packed_sequence";
  need_values(op, data, batch_sizes);
  const std::vector<int64_t> counts = checked_counts(op, data, batch_sizes);
  const int64_t batch = counts[0], longest = static_cast<int64_t>(counts.size());
  const int64_t time = total_length.value_or(longest);
  check(time >= longest, op, "total_length ", time, " is less than the longest sequence, ", longest);
  check(time <= std::numeric_limits<int64_t>::max() / batch, op, "total_length ", time, " of ", batch,
        " sequences is more than can be counted");
  std::vector<int64_t> rows, lengths(static_cast<size_t>(batch));
  int64_t at = 0;
  for (const int64_t n : counts) {
    for (int64_t b = 0; b < batch; ++b) {
      rows.push_back(b < n ? at + b : data.size(0));  // the row behind the last is padding
      lengths[static_cast<size_t>(b)] += b < n ? 1 : 0;
    }
    at += n;
  }
  Tensor y = index_select(cat({data, filler(data, 1, value)}, 0), 0, recurrent::rows_on(rows, data.device()));
  if (time > longest) y = cat({y, filler(data, (time - longest) * batch, value)}, 0);
  y = unflatten(y, 0, {time, batch});
  return {batch_first ? y.transpose(0, 1) : y, counted(lengths)};
}

const Op<Pair(const Tensor&, const Tensor&, bool, double, std::optional<int64_t>)> pad_packed_sequence_op{{
    .schema = "pad_packed_sequence(Tensor data, Tensor batch_sizes, bool batch_first=false, float padding_value=0.0, "
              "int? total_length=None) -> (Tensor padded, Tensor lengths)",
    .shard = "whole",
    .doc = "Undoes pack_padded_sequence: data [total of the lengths, ..] and batch_sizes, i64 [T], give [T, B, ..] "
           "([B, T, ..] with batch_first; total_length takes T's place) with padding_value behind the ends, and the "
           "lengths, i64 [B] on the CPU. ShapeError, ValueError.",
    .example = "auto [x, lengths] = pad_packed_sequence(ones({4}), "
               "from_span<int64_t>(std::vector<int64_t>{2, 1, 1}, {3}), true); "
               "assert(x.to_vector<float>() == std::vector<float>({1, 1, 1, 1, 0, 0}));",
    .dynamic = {.everywhere = pad_packed_composed},
    .composed = pad_packed_composed,
    .dtypes = kAllTypes,
    .cost =
        [](const Tensor& data, const Tensor&, bool, double, std::optional<int64_t>) {
          return Cost{0, 2.0 * data.nbytes()};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({7, 2}), counted({3, 2, 1, 1}));
          s.add(s.tensor({4}), counted({2, 2}), true, 1.0, 3);
          s.invalid<ShapeError>("add up", s.tensor({6, 2}), counted({3, 2}));
          s.invalid<ShapeError>("add up to more", s.tensor({4}), counted({std::numeric_limits<int64_t>::max(), 2}));
          s.invalid<ValueError>("never rise", s.tensor({5, 2}), counted({2, 3}));
          s.invalid<ValueError>("total_length", s.tensor({4}), counted({2, 2}), false, 0.0, 1);
          s.invalid<ValueError>("more than can be counted", s.tensor({4}), counted({2, 2}), false, 0.0,
                                int64_t{1} << 62);
        },
    .reference =
        [](const Tensor& data, const Tensor& batch_sizes, bool batch_first, double value,
           std::optional<int64_t> total_length) {
          const std::vector<int64_t> counts = batch_sizes.to_vector<int64_t>();
          const std::vector<double> from = data.to_vector<double>();
          const int64_t batch = counts[0], row = data.numel() / std::max<int64_t>(data.size(0), 1);
          const int64_t time = total_length.value_or(static_cast<int64_t>(counts.size()));
          Shape shape{batch_first ? batch : time, batch_first ? time : batch};
          for (int d = 1; d < data.dim(); ++d) shape.push_back(data.size(d));
          std::vector<double> v(static_cast<size_t>(shape.product()), value);
          std::vector<int64_t> lengths(static_cast<size_t>(batch));
          size_t at = 0;
          for (int64_t t = 0; t < static_cast<int64_t>(counts.size()); ++t) {
            for (int64_t b = 0; b < counts[static_cast<size_t>(t)]; ++b) {
              ++lengths[static_cast<size_t>(b)];
              for (int64_t i = 0; i < row; ++i)
                v[static_cast<size_t>((batch_first ? b * time + t : t * batch + b) * row + i)] = from[at++];
            }
          }
          return Pair(from_span<double>(v, shape), counted(lengths));
        },
}};

}  // namespace

// From memory that is not page-locked the driver waits for the stream before it copies more than a few kilobytes.
// While a graph is captured such memory is none: what the graph keeps would be given back.
Tensor recurrent::rows_on(const std::vector<int64_t>& rows, const Device& device) {
  const Tensor host = counted(rows);
  return device.is_cuda() && !cuda::capturing() ? pin_memory(host).to(device) : host.to(device);
}

Tensor pad_sequence(const TensorList& sequences, bool batch_first, double padding_value,
                    const std::string& padding_side) {
  return pad_sequence_op(sequences, batch_first, padding_value, padding_side);
}
std::tuple<Tensor, Tensor> pack_padded_sequence(const Tensor& input, const Tensor& lengths, bool batch_first) {
  return pack_padded_sequence_op(input, lengths, batch_first);
}
std::tuple<Tensor, Tensor> pad_packed_sequence(const Tensor& data, const Tensor& batch_sizes, bool batch_first,
                                               double padding_value, std::optional<int64_t> total_length) {
  return pad_packed_sequence_op(data, batch_sizes, batch_first, padding_value, total_length);
}

}  // namespace strata
