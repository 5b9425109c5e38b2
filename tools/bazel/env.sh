# shellcheck shell=bash
# Sourced by the entry points in tools/: where things are kept and how Bazel is called.
# The caller has done `set -euo pipefail`.

: "${HOME:=$(getent passwd "$(id -u)" | cut -d: -f6)}"
export HOME

# The user's own cache folder of Millrace: models, virtual environments, build results.
MILLRACE_CACHE="${XDG_CACHE_HOME:-$HOME/.cache}/millrace"

# The flags of every call: build results are kept across clones, and a log stays readable
# where nobody watches it.
BAZEL_FLAGS=(-c opt "--disk_cache=$MILLRACE_CACHE/bazel")
if [[ ! -t 2 ]]; then
  BAZEL_FLAGS+=(--curses=no --color=no --noshow_progress --noshow_loading_progress)
fi
