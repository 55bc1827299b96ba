#pragma once
// Tables of FullySharded whose rows lie in parts, looked up and updated by the rows that a batch names: what stands
// between nn::Embedding, distributed::TableRows and the gradients. docs/design/dist.md, "A table by its rows"

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "strata/core/tensor.h"
#include "strata/dist/sharded_gradients_inl.h"
#include "strata/dist/table_rows_inl.h"

namespace strata::nn::detail {

/// One table. All that a rank calls, all others call in the same order.
class TableLookup final : public distributed::RowGradients {
 public:
  /// How its gradient goes back.
  enum class Gradient : uint8_t {
    none,   ///< it is frozen
    whole,  ///< as embedding's: of all of the table, to its leaf
    rows,   ///< by rows, when the pass ends
  };
  TableLookup(std::string name, distributed::TableRows rows, Gradient gradient);

  /// embedding(indices, weight, padding), by rows within a pass where these are fewer bytes than the table.
  Tensor forward(const Tensor& indices, const Tensor& weight, std::optional<int64_t> padding);
  /// A FullySharded::Pass begins, or ends.
  void begin_pass();
  void end_pass() { in_pass_ = false; }
  bool gives_rows() const { return gradient_ == Gradient::rows; }
  bool may_have() const override { return !calls_.empty(); }
  Settled settle(bool whole) override;

  /// A call whose gradient goes by rows.
  struct Call {
    distributed::TableRows::Asked asked;
    std::optional<int64_t> padding;
    Tensor gradient;  ///< once backward has come
  };

 private:
  std::string name_;
  distributed::TableRows rows_;
  Gradient gradient_;
  Tensor leaf_;  // of one element: it makes calls wait for a gradient, which comes elsewhere
  bool in_pass_ = false;
  size_t number_ = 0;  // of the pass's next call
  std::vector<std::shared_ptr<Call>> calls_;
};

/// That of a parameter that lies in parts; nullptr: it is read whole.
std::shared_ptr<TableLookup> lookup_of(const Tensor& weight);

}  // namespace strata::nn::detail
