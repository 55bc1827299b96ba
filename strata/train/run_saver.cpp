#include "strata/train/run_saver_inl.h"

#include <utility>

#include "strata/core/error.h"
#include "strata/dist/group.h"

namespace strata {

std::string last_part(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path.substr(path.rfind('/') + 1);
}

RunSaver::RunSaver(const TrainConfig& config, std::string out)
    : out_(std::move(out)), keep_last_(static_cast<int>(config.keep_last)) {
  if (config.save_async) writer_.emplace(distributed::size() > 1 ? &distributed::group("world") : nullptr);
}

void RunSaver::save(const RunState& state, const nn::Module& model, const optim::Optimizer& optimizer) {
  finish();
  if (writer_)
    save_run(*writer_, out_, state, model, optimizer, keep_last_);
  else
    newest_ = save_run(out_, state, model, optimizer, keep_last_);
  step_ = state.step;
}

bool RunSaver::writes() const {
  return writer_ && writer_->under_way() && !writer_->written();
}

void RunSaver::finish() {
  if (writer_ && writer_->under_way()) newest_ = writer_->finish();
}

std::string RunSaver::try_finish() try {
  finish();
  return {};
} catch (const IoError& e) {
  return e.what();
}

}  // namespace strata
