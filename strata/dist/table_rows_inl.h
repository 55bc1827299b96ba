#pragma once
// A table whose rows lie in parts on the ranks of a group, read and changed by the rows that calls name.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "strata/core/tensor.h"
#include "strata/dist/group.h"

namespace strata::distributed {

/// This rank's part of a table [V, D], and how rows of it travel: instead of all of it. Every rank makes the same calls
/// in the same order. Nothing is recorded for gradients, and nobody who watches calls sees what is computed.
class TableRows {
 public:
  /// What the ranks look up in one call.
  struct Asked {
    std::vector<int64_t> counts;  ///< of each rank of `all`
    int64_t most = 0;             ///< the largest
    Tensor ids;                   ///< theirs, i64 [ranks, most]; what is behind a rank's own is the first row
  };
  /// Gradients of what a call looked up.
  struct Given {
    const Asked* asked = nullptr;
    Tensor gradient;                   ///< this rank's, [count, D]; undefined: zeros
    std::optional<int64_t> padding{};  ///< the row that gets none
  };

  /// `part` has this rank's rows of `rows` (Cut) and is read where it lies, whenever rows are asked for. The parts are
  /// on the ranks of `group`; those of `all` train the table together: `group` itself, or with it the ranks along
  /// `replicas`, an axis of the mesh, each of whose groups has the same parts, as `axis` has them. Nothing but calls
  /// that all ranks make in one order may travel on either group. `name` is told by errors and the flight recorder.
  TableRows(std::string name, Tensor part, int64_t rows, Group& group, Group& all, const std::string& axis = {},
            const std::string& replicas = {});

  /// How many ids each rank of `all` asks for in a call: they tell each other on the host. A call that is captured in a
  /// CUDA graph takes what call `number` of a pass was told the last time; DeviceError where that was something else.
  std::vector<int64_t> agree(int64_t own, size_t number);
  /// Whether rows are fewer bytes than the table: what travels for one call of these counts, forward and backward.
  bool pays(const std::vector<int64_t>& counts) const;
  /// Whether they are where each rank asks for one.
  bool may_pay() const { return pays(std::vector<int64_t>(static_cast<size_t>(all_.size()), 1)); }
  /// Tells the ids, integers of any shape, to all. IndexError for one outside of the table, before anything is sent; on
  /// a card the kernel tells of it.
  Asked ask(const Tensor& ids, std::vector<int64_t> counts) const;
  /// This rank's rows, [count, D]: the bits of the table's.
  Tensor look_up(const Asked& asked) const;
  /// This rank's part of the average over the ranks of the table's gradient, of all calls of a pass in the order of
  /// their backward: each rank's is summed as `embedding` does it, and these in the order of the ranks.
  Tensor gradient(std::span<const Given> calls) const;
  /// The largest of each of the ranks' numbers. A captured call takes what the one before it was told.
  std::vector<uint8_t> largest(std::vector<uint8_t> values);

 private:
  Tensor gathered(const Given& given) const;
  Tensor of_rank(std::span<const Given> calls, const std::vector<Tensor>& all, size_t r) const;

  std::string name_;
  Tensor part_;
  int64_t rows_, first_;
  Group &group_, &all_;
  std::vector<std::vector<size_t>> order_;    // of each replica the places of its ranks in `all`
  size_t own_ = 0;                            // this rank's replica
  std::vector<std::vector<int64_t>> counts_;  // of each call of a pass, as they were told
  std::vector<uint8_t> largest_;
};

}  // namespace strata::distributed
