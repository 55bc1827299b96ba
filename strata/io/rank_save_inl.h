#pragma once
// One checkpoint of several ranks, step by step: what all do together, and what each does by itself, meanwhile.

#include <exception>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "strata/core/placement.h"
#include "strata/dist/group.h"
#include "strata/io/checkpoint.h"

namespace strata::io::detail {

/// What save_rank_checkpoint() does, in its three parts.
class RankSave {
 public:
  /// What this rank writes of a tensor.
  struct Piece {
    std::string stem, name;
    Tensor part;    ///< a plain tensor
    Shape whole;    ///< of what it is a part of
    Layout layout;  ///< how that lies
  };
  /// All ranks together: who writes what, and where. Throws as save_rank_checkpoint().
  RankSave(distributed::Group& group, const std::string& run_dir, int64_t step, const TensorFiles& files);
  /// Removes what was not committed.
  ~RankSave();
  RankSave(const RankSave&) = delete;
  /// What this rank writes.
  const std::vector<Piece>& pieces() const;
  /// Writes them: `tensors` are pieces()' parts, or copies of them. Talks to nobody, so any thread may; commit() says
  /// what went wrong. `alone`: it leaves the process's threads to others. Where `failed`, which is what went wrong
  /// before, nothing is written.
  void write(const std::vector<Tensor>& tensors, bool alone = false, const std::exception_ptr& failed = nullptr);
  /// All ranks together, once each has written: makes it the checkpoint. Returns its path; throws in every rank where
  /// one could not do its part.
  std::string commit(const std::map<std::string, std::string>& state, int keep_last);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata::io::detail
