#!/bin/sh
# What #include <strata/strata.h> adds to the compile time of a file: bench/include_time.sh [COMPILER]
# Exit status 1 when it is more than a second.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
compiler=${1:-c++}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
printf 'int main() { return 0; }\n' >"$work/without.cpp"
printf '#include <strata/strata.h>\nint main() { return 0; }\n' >"$work/with.cpp"

# Least processor time of five compilations, in milliseconds.
least() {
  best=999999
  for i in 1 2 3 4 5; do
    ms=$( (
      "$compiler" -std=c++20 -O2 -I"$root" -c "$1" -o "$work/out.o"
      times
    ) | awk 'END { split($1, u, /[ms]/); split($2, s, /[ms]/); print int((u[1] * 60 + u[2] + s[1] * 60 + s[2]) * 1000) }')
    [ "$ms" -lt "$best" ] && best=$ms
  done
  echo "$best"
}
without=$(least "$work/without.cpp")
with=$(least "$work/with.cpp")
echo "empty file          $without ms"
echo "with strata.h       $with ms"
echo "added               $((with - without)) ms  ($("$compiler" --version | head -1))"
[ $((with - without)) -le 1000 ]
