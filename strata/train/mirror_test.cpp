// parallel.mirror: a rank's state as bytes, and who has which when some are gone. Ranks that die:
// apps/strata/survive_test.cpp.

#include "strata/train/mirror_inl.h"

#include <chrono>
#include <optional>
#include <thread>

#include <gtest/gtest.h>

#include "strata/core/error_test_util.h"
#include "strata/dist/processes_test_util.h"
#include "strata/nn/module.h"
#include "strata/optim/optimizer.h"

namespace strata {
namespace {

using detail::Mirrors;

TrainConfig small(int64_t dim) {
  TrainConfig c;
  c.model.layers = 1;
  c.model.dim = dim;
  c.model.heads = 2;
  c.model.context = 8;
  c.model.vocab = 256;
  return c;
}

template <class F>
std::string error(F&& f) {
  try {
    f();
  } catch (const IoError& e) {
    return e.what();
  }
  return "no error";
}

TEST(Mirror, AStateComesBackAsItWas) {
  RunState state{.config = small(16), .tokenizer = "{}", .step = 12, .tokens = 345};
  state.rng = {7, 9};
  state.loss_scale = {1024, 3};
  const auto model = make_model(state.config);
  const auto optimizer = make_optimizer(state.config.optim, model->named_parameters());
  const Tensor tokens = from_span<int64_t>(std::vector<int64_t>{1, 2, 3, 4}, {1, 4});
  model->loss(tokens, tokens).backward();
  optimizer->step();
  const std::string bytes = detail::encode_run(state, *model, *optimizer);

  const RunState back = detail::decoded_state(bytes);
  EXPECT_EQ(back.step, 12);
  EXPECT_EQ(back.tokens, 345);
  EXPECT_EQ(back.rng.offset, 9U);
  EXPECT_EQ(back.loss_scale, state.loss_scale);
  EXPECT_EQ(back.config, state.config);
  const auto other = make_model(state.config);
  const auto others = make_optimizer(state.config.optim, other->named_parameters());
  detail::restore_run(bytes, *other, *others);
  EXPECT_EQ(detail::encode_run(state, *other, *others), bytes);

  const auto wider = make_model(small(32));
  const auto theirs = make_optimizer(state.config.optim, wider->named_parameters());
  EXPECT_NE(error([&] { detail::restore_run(bytes, *wider, *theirs); }).find(", the model as "), std::string::npos);
  EXPECT_NE(error([&] { detail::decoded_state("nothing"); }), "no error");
  EXPECT_NE(error([&] { detail::decoded_state(bytes.substr(0, bytes.size() / 2)); }), "no error");
}

// What rank r has behind a step: of another length in each.
std::string bytes_of(int64_t step, int rank) {
  return "step " + std::to_string(step) + " of rank " + std::to_string(rank) + std::string(rank, '.');
}

TEST(Mirror, WhoHasACopyGivesIt) {
  distributed::on_processes(3, [](int rank) {
    distributed::set_mesh(distributed::Mesh("dp=3"));
    std::optional<Mirrors> mirrors(std::in_place);
    const auto recovered = [&](bool alike) {
      const std::string* const found = mirrors->recover(alike);
      const std::string text = found ? *found : "nothing";
      while (mirrors->under_way()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      distributed::group("world").barrier();
      return text;
    };
    const auto mirror = [&](int64_t step) {
      mirrors->begin(step, bytes_of(step, rank));
      while (mirrors->under_way()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      distributed::group("world").barrier();
    };
    EXPECT_EQ(recovered(true), "nothing");
    mirror(5);
    mirror(7);
    EXPECT_EQ(recovered(false), bytes_of(7, rank));
    if (rank == 1) mirrors.emplace();  // another process
    EXPECT_EQ(recovered(false), bytes_of(7, rank));
    // It has been mirrored anew: now its neighbour may die.
    if (rank == 2) mirrors.emplace();
    EXPECT_EQ(recovered(false), bytes_of(7, rank));
    // Two that have each other's: of parts nothing is left, of what all have alike any copy serves.
    if (rank != 2) mirrors.emplace();
    EXPECT_EQ(recovered(false), "nothing");
    EXPECT_EQ(recovered(true), rank == 0 ? bytes_of(7, 0) : bytes_of(7, 2));
  });
}

}  // namespace
}  // namespace strata
