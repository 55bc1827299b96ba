#pragma once
// The state of a batch of texts that are being written, and its one step.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "strata/cuda/graph.h"
#include "strata/generate/options.h"
#include "strata/generate/timestamp_scores_inl.h"
#include "strata/models/token_decoder.h"
#include "strata/ops/generation/generation.h"

namespace strata {

/// Of Sequences.
struct SequencesOptions {
  int64_t capacity = 0;         ///< positions of each row; 0: the model's context
  int64_t prefill_chunk = 512;  ///< tokens of a prompt that are read at once
  int64_t vocab = 0;            ///< ids from here on are never drawn; 0: the model's. A tokenizer may know fewer
  bool graph = true;            ///< on a CUDA device: a step is captured and replayed
  int64_t source = 0;           ///< of an encoder-decoder: most places of what its encoder gives
};

/// Rows of a batch, each a text of its own or at rest. All that a step reads and writes is on the model's device and
/// stays where it is, so that a CUDA graph can replay the step: caches of keys and values, how far each row is, the
/// tokens so far, what each draws by.
///
///     Sequences rows(model, 2);
///     rows.start(0, prompt, options);
///     while (rows.length(0) < rows.capacity()) {
///       rows.step();                                  // every row that runs gets a token
///       const int64_t id = rows.ids().to_vector<int64_t>()[0];
///     }
///
/// A row's tokens do not depend on which other rows run (beyond the last bits of sums, whose order a matrix product may
/// choose by the number of rows). The model is put into evaluation mode.
class Sequences {
 public:
  /// Throws ValueError for options out of range.
  Sequences(std::shared_ptr<TokenDecoder> model, int64_t rows, const SequencesOptions& options = {});

  int64_t rows() const { return static_cast<int64_t>(lengths_.size()); }
  /// Tokens that a row has room for.
  int64_t capacity() const { return cache_.capacity; }
  /// Places of a source that a row has room for; 0 of a model without an encoder.
  int64_t source_capacity() const { return cache_.source_seen.defined() ? cache_.source_seen.size(3) : 0; }
  /// Ids that are drawn: those below it.
  int64_t vocab() const { return vocab_; }
  /// Ids that a prompt may have.
  int64_t model_vocab() const { return model_->vocab(); }
  /// Tokens of a row, its prompt's included; 0 where nothing was started.
  int64_t length(int64_t row) const { return lengths_.at(static_cast<size_t>(row)); }
  /// So many of the first `kept` tokens of a row start() can keep: all of them, or none where a layer with a window no
  /// longer has what came before the next.
  int64_t keepable(int64_t row, int64_t kept) const;
  bool is_running(int64_t row) const { return runs_.at(static_cast<size_t>(row)); }

  /// Begins a text in `row`: reads the prompt but for its last token, which the first step reads. `drawn`: tokens that
  /// this request drew before, in a text that goes on here. `kept`: so many tokens at the prompt's beginning are those
  /// that the row's last text began with, and are not read again. With `hidden` what the output layer reads for each
  /// token read, [T - 1 - kept, dim], goes there. `source` [S, dim] is what the encoder gave, of an encoder-decoder; a
  /// row that goes on keeps the one that it has. Throws ValueError for an empty prompt and one that does not fit,
  /// IndexError for a token that the model does not have, and what check_options() and read_source() do.
  void start(int64_t row, std::span<const int64_t> prompt, const GenerationOptions& options, int64_t drawn = 0,
             int64_t kept = 0, Tensor* hidden = nullptr, const Tensor& source = {});
  /// Row `to` becomes a copy of row `from`, drawing by `seed`.
  void copy(int64_t from, int64_t to, uint64_t seed);
  /// Row i becomes a copy of row from[i], for all rows at once; all of them are to have one source.
  void reorder(std::span<const int64_t> from);
  /// The row rests until it is started again.
  void stop(int64_t row);

  /// A token for each row that runs. Throws ValueError where one has no room for another.
  void step();

  /// @name Parts of a step
  /// @{
  /// Reads each running row's last token: logits() are those of the next.
  void read();
  /// Scores [rows, vocabulary], logits or their logarithms of probabilities, under the rows' penalties, biases and
  /// minimum lengths, in f32; the scores themselves where there are none.
  Tensor adjusted(const Tensor& scores) const;
  /// Appends a token to each row that runs: ids [rows] i64 on the model's device.
  void append(const Tensor& ids);
  /// @}

  /// The last step's tokens, [rows] i64; of rows at rest any number. On the model's device.
  const Tensor& ids() const { return ids_; }
  /// The logarithms of their probabilities under the model, before penalties and filters, f32 [rows].
  const Tensor& logprobs() const { return logprobs_; }
  /// The same under what they were drawn by: behind penalties, biases and rules of times, before temperature and
  /// filters.
  const Tensor& adjusted_logprobs() const { return adjusted_logprobs_; }
  /// The logits that they were drawn by, before penalties, [rows, model's vocabulary].
  const Tensor& logits() const { return logits_; }

 private:
  struct Uses {
    bool penalties = false, biases = false, minimum = false, first = false, times = false;
    bool operator==(const Uses&) const = default;
  };
  void check_room() const;
  void forward();
  void put(const Tensor& ids);
  void count();
  void work();
  void set(const Tensor& column, int64_t row, double value);
  void set_ids(Tensor& ids, Tensor* values, int64_t row, const std::vector<int64_t>& wanted,
               const std::vector<double>& amounts);
  Tensor part(const Tensor& t, int64_t row) const;
  void update_uses();

  std::shared_ptr<TokenDecoder> model_;
  int64_t vocab_, chunk_;
  bool graphs_;
  ModelCache cache_;

  // On the device.
  Tensor last_;                       // [rows, 1]: what the next step reads
  Tensor tokens_;                     // [rows, 1, capacity + 1, 1]
  Tensor running_, drawn_, prompts_;  // [rows] i64
  Tensor seeds_;                      // [rows] i64
  TokenFilters filters_;              // [rows]
  TokenPenalties penalties_;          // [rows]
  Tensor bias_ids_, bias_values_;     // [rows, N]
  Tensor stop_ids_, never_, least_;   // [rows, N], [rows, N] of minus infinity, [rows]
  Tensor first_ids_, first_never_;    // [rows, N], of ids that are not the first
  Tensor first_;                      // [rows]: 1
  std::optional<detail::TimestampRows> times_;
  Tensor ids_, logprobs_, adjusted_logprobs_, logits_;

  // What the host knows of each row.
  std::vector<int64_t> lengths_;
  std::vector<bool> runs_, sourced_;
  std::vector<Uses> uses_;
  Uses all_;  // what any running row uses

  std::unique_ptr<cuda::Graph> graph_;
  bool warm_ = false;  // a step ran as the next one will
};

}  // namespace strata
