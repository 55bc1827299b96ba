#!/usr/bin/env bash
# The library's size by component, as a Markdown table: bench/size_report.sh [BUILD]
# For each component its static library's code and data, and a small program that uses it, stripped; then the command.
# Built as a user's project is, against an installed package.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "${1:-$root/build/release}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat >"$work/core.cpp" <<'CPP'
#include <strata/autograd/autograd.h>
#include <strata/ops/elementwise/elementwise.h>
#include <strata/ops/factory/factory.h>
#include <strata/ops/reduce/reduce.h>
int main() {
  strata::Tensor x = strata::full({3}, 2.0).set_requires_grad();
  strata::sum(x * x).backward();
  return x.grad()[0].item() == 4 ? 0 : 1;
}
CPP
cat >"$work/data.cpp" <<'CPP'
#include <strata/io/safetensors.h>
int main(int argc, char** argv) { return argc < 2 || strata::io::SafetensorsFile(argv[1]).entries().empty(); }
CPP
cat >"$work/nn.cpp" <<'CPP'
#include <strata/nn/nn.h>
#include <strata/optim/optim.h>
#include <strata/ops/loss/loss.h>
#include <strata/ops/random/random.h>
int main() {
  strata::nn::Sequential net(strata::nn::Linear(4, 8), strata::nn::Tanh(), strata::nn::Linear(8, 1));
  strata::optim::AdamW optimizer(net.parameters());
  strata::mse_loss(net(strata::randn({2, 4})), strata::randn({2, 1})).backward();
  optimizer.step();
}
CPP
cat >"$work/train.cpp" <<'CPP'
#include <strata/train/trainer.h>
int main(int argc, char** argv) { return argc == 3 && strata::train(strata::load_config(argv[1]), {.out = argv[2]}).step == 0; }
CPP
cat >"$work/lab.cpp" <<'CPP'
#include <cstdio>
#include <strata/lab/verify.h>
int main() {
  for (const strata::OpBase* op : strata::OpBase::all()) std::puts(strata::lab::table({strata::lab::verify(*op)}).c_str());
}
CPP
cat >"$work/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(size LANGUAGES CXX)
find_package(Strata REQUIRED)
add_link_options(-Wl,--gc-sections -s)
foreach(component core data nn train lab)
  add_executable(${component} ${component}.cpp)
  target_link_libraries(${component} PRIVATE Strata::${component})
endforeach()
CMAKE
{
  cmake --install "$build" --prefix "$work/prefix"
  cmake -S "$work" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_BUILD_TYPE=Release
  cmake --build "$work/build"
} >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }

mb() { awk -v b="$1" 'BEGIN { printf "%.2f", b / 1e6 }'; }
echo '| component | static library, code and data (MB) | small program, stripped (MB) |'
echo '|---|---|---|'
for component in core data nn train lab; do
  library=$(find "$work/prefix" -name "libstrata_$component.a")
  # Constants, exception tables and relocation data included; a template that stands in several objects counts each time.
  bytes=$(size "$library" | awk 'NR > 1 { sum += $1 + $2 } END { print sum }')
  echo "| $component | $(mb "$bytes") | $(mb "$(stat -c %s "$work/build/$component")") |"
done
strip -o "$work/strata" "$work/prefix/bin/strata"
echo "| the command \`strata\` (all of them) | | $(mb "$(stat -c %s "$work/strata")") |"
