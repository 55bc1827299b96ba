# Shared by the scripts of this folder (sourced, not run): packages, configure, build.
# shellcheck shell=bash
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# What a build of the library and the command line needs, and what the tests and benchmarks add. Debian 12's libdnnl-dev asks
# for OpenCL in CMake, but only recommends the package. OpenBLAS is loaded when a program decomposes its first matrix.
BUILD_PACKAGES=(g++ cmake ninja-build ccache mold libdnnl-dev ocl-icd-opencl-dev libhwy-dev libfmt-dev libxxhash-dev
                libcli11-dev libtomlplusplus-dev nlohmann-json3-dev libopenblas0-pthread zlib1g-dev liburing-dev libutf8proc-dev
                libpcre2-dev libzstd-dev libpng-dev libjpeg-dev libcpp-httplib-dev libgloo-dev libhwloc-dev)
TEST_PACKAGES=(libopenmpi-dev openmpi-bin libgtest-dev libbenchmark-dev)

say() { printf '\033[1m%s\033[0m\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# need_packages NAME...: installs the packages that are missing. Without the right to do that it prints the exact
# command and stops with status 1.
need_packages() {
  local id='' version='' missing=() package
  if [[ -r /etc/os-release ]]; then
    id=$(. /etc/os-release && echo "${ID:-}")
    version=$(. /etc/os-release && echo "${VERSION_ID:-}")
  fi
  if ! command -v dpkg-query >/dev/null; then
    die "this script installs packages on Debian 12 and Ubuntu 24.04 (or newer); here, install by hand the equivalents of: $*"
  fi
  case "$id:${version%%.*}" in
    debian:1[2-9] | ubuntu:2[4-9]) ;;
    *) echo "note: tested on Debian 12 and Ubuntu 24.04, this is ${id:-unknown} ${version:-}" >&2 ;;
  esac
  for package in "$@"; do
    [[ $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true) == installed ]] || missing+=("$package")
  done
  ((${#missing[@]})) || return 0

  local sudo=()
  if ((EUID != 0)); then
    if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
      sudo=(sudo -n)
    else
      echo "These packages are missing. Install them, then run this script again:" >&2
      echo >&2
      echo "  sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]}" >&2
      exit 1
    fi
  fi
  say "Installing ${missing[*]}"
  "${sudo[@]}" apt-get update -qq
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" </dev/null >/dev/null
}

# Compilers at once: one per core, and no more than one per 1.5 GB of memory.
build_jobs() {
  local cores memory_jobs
  cores=$(nproc)
  memory_jobs=$(awk '/^MemAvailable:/ { n = int($2 / 1500000); print n < 1 ? 1 : n }' /proc/meminfo)
  echo $((cores < memory_jobs ? cores : memory_jobs))
}

# cuda_option: STRATA_CUDA as build/release has it; where that is not configured, OFF without an NVIDIA card.
cuda_option() {
  local chosen
  chosen=$(sed -n 's/^STRATA_CUDA:[A-Z]*=//p' "$ROOT/build/release/CMakeCache.txt" 2>/dev/null || true)
  if [[ -z $chosen ]]; then
    chosen=OFF
    if compgen -G '/dev/nvidia[0-9]*' >/dev/null; then chosen=AUTO; fi
  fi
  echo "$chosen"
}

# first_options: options for a build/release that is not configured yet, one a line: nothing that only tests and benchmarks
# need, and without an NVIDIA card no CUDA kernels, which take longest. A configured tree stays as it is.
first_options() {
  [[ ! -e $ROOT/build/release/CMakeCache.txt ]] || return 0
  printf '%s\n' "-DSTRATA_CUDA=$(cuda_option)" -DSTRATA_BUILD_TESTS=OFF -DSTRATA_BUILD_BENCH=OFF -DSTRATA_BUILD_EXAMPLES=OFF
}

# install_python_package VENV [package...]: the Python package, and others, into an environment that is made where there is
# none. The build's tools are the environment's own: the folder of a build before this one is used again.
install_python_package() {
  local venv=$1
  shift
  need_packages "${BUILD_PACKAGES[@]}" python3-venv python3-dev
  [[ -x $venv/bin/python ]] || python3 -m venv "$venv"
  # Paths in compiler-cache keys are relative to the checkout, as in build(). Python would name the compiler in its own way,
  # which is another key.
  export CCACHE_BASEDIR=$ROOT CCACHE_NOHASHDIR=1 CXX=${CXX:-c++}
  export CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-$(build_jobs)}
  local pip=("$venv/bin/python" -m pip --disable-pip-version-check install --quiet)
  say "Installing the Python package into $venv (minutes, where nothing is built yet)"
  "${pip[@]}" "scikit-build-core>=0.10" "nanobind>=2.4" "typing_extensions; python_version < '3.11'" "$@"
  "${pip[@]}" --no-build-isolation --no-deps --force-reinstall --config-settings "cmake.define.STRATA_CUDA=$(cuda_option)" "$ROOT"
}

# Tests at once: some use every core themselves, most wait for one of their threads or processes.
test_jobs() { nproc; }

# build PRESET [target...] [-- cmake options...]: configures and builds into build/PRESET.
build() {
  local preset=$1 targets=() options=()
  shift
  while (($#)) && [[ $1 != -- ]]; do targets+=(--target "$1"); shift; done
  (($#)) && { shift; options=("$@"); }
  # Paths in compiler-cache keys are relative to the checkout, so that a second clone hits the same cache.
  export CCACHE_BASEDIR=$ROOT CCACHE_NOHASHDIR=1
  say "Configuring ($preset)"
  (cd "$ROOT" && cmake --preset "$preset" --log-level=WARNING "${options[@]}")
  say "Building ($preset, $(build_jobs) jobs)"
  cmake --build "$ROOT/build/$preset" -j "$(build_jobs)" "${targets[@]}"
}

# run_tests PRESET [ctest options...]
run_tests() {
  local preset=$1
  shift
  (cd "$ROOT" && ctest --preset "$preset" --no-tests=error -j "$(test_jobs)" "$@")
}
