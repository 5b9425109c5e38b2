#!/bin/bash
# Every edge between two layers, up and down, in a workspace made for this test.
set -euo pipefail

SOURCE="$(dirname "$(readlink -f WORKSPACE)")"
readonly TREE="$TEST_TMPDIR/tree"
readonly LOG="$TEST_TMPDIR/log"

# From the lowest to the highest. proto depends on no layer, and only distributed and above see it.
declare -rA HEIGHT=([kernels]=0 [engine]=1 [proto]=1 [distributed]=2 [tools]=3 [tests]=4)
declare -rA GROUP=(
  [kernels]=//:above_kernels [engine]=//:above_engine [proto]=//:above_distributed
  [distributed]=//:above_distributed [tools]=//:above_tools [tests]=//visibility:private)

fail() {
  echo "FAILED: $1"
  exit 1
}

# Whether a target of layer $1 may depend on one of layer $2.
may_depend() {
  ((HEIGHT[$1] > HEIGHT[$2])) && [[ $1 != proto ]]
}

nested_bazel() {
  (cd "$TREE" && bazel --output_user_root="$TEST_TMPDIR/out" --host_jvm_args=-Xmx512m \
    --max_idle_secs=60 "$@" </dev/null >"$LOG" 2>&1)
}

write_layer() {
  local layer=$1 other folder="$TREE/$1/part"
  mkdir -p "$folder"
  {
    echo "package(default_visibility = [\"${GROUP[$layer]}\"])"
    echo 'load("@rules_cc//cc:defs.bzl", "cc_library")'
    echo 'cc_library(name = "part", srcs = ["part.cc"], hdrs = ["part.h"])'
    for other in "${!HEIGHT[@]}"; do
      [[ $other == "$layer" ]] ||
        echo "cc_library(name = \"on_$other\", deps = [\"//$other/part\"])"
    done
  } >"$folder/BUILD"
  echo "int Part();" >"$folder/part.h"
  echo "#include \"$layer/part/part.h\"" >"$folder/part.cc"
}

write_tree() {
  local layer
  mkdir -p "$TREE/tools"
  cp "$SOURCE"/{WORKSPACE,BUILD,.bazelrc,.bazelignore} "$TREE"
  cp -r "$SOURCE/tools/bazel" "$TREE/tools/bazel"
  for layer in "${!HEIGHT[@]}"; do write_layer "$layer"; done
  mkdir -p "$TREE/engine/bare"
  cat >"$TREE/engine/bare/BUILD" <<EOF
package(default_visibility = ["//:above_engine"])
load("@rules_cc//cc:defs.bzl", "cc_library")
cc_library(name = "bare", srcs = ["bare.cc"])
EOF
  echo '#include "distributed/part/part.h"' >"$TREE/engine/bare/bare.cc"
}

# Each edge is analysed by one call with --keep_going; refusals are read from its messages.
check_edges() {
  local from to edges=()
  for from in "${!HEIGHT[@]}"; do
    for to in "${!HEIGHT[@]}"; do
      [[ $from == "$to" ]] || edges+=("//$from/part:on_$to")
    done
  done
  if nested_bazel build --nobuild --keep_going "${edges[@]}"; then
    fail "Bazel accepted every edge"
  fi
  for from in "${!HEIGHT[@]}"; do
    for to in "${!HEIGHT[@]}"; do
      [[ $from == "$to" ]] || check_edge "$from" "$to"
    done
  done
}

check_edge() {
  local refusal="target '//$2/part:part' is not visible from target '//$1/part:on_$2'"
  if may_depend "$1" "$2"; then
    ! grep -qF "$refusal" "$LOG" || fail "$1 may not depend on $2, but should"
  else
    grep -qF "$refusal" "$LOG" || fail "$1 may depend on $2, but should not"
  fi
}

check_bare_include() {
  nested_bazel build //engine/part //distributed/part || fail "the layers by themselves do not build"
  if nested_bazel build //engine/bare; then
    fail "an #include that no dependency brings was accepted"
  fi
  grep -qE "distributed/part/part.h: No such file|undeclared inclusion" "$LOG" ||
    fail "//engine/bare was refused for another reason"
}

finish() {
  local result=$?
  ((result == 0)) || cat "$LOG"
  (cd "$TREE" && bazel --output_user_root="$TEST_TMPDIR/out" --host_jvm_args=-Xmx512m \
    --max_idle_secs=60 shutdown >/dev/null 2>&1) || true
}
trap finish EXIT

write_tree
check_edges
check_bare_include
echo "PASSED"
