# Sourced by the launchers beside it: the virtual environment of the weight tools.

weights_dir="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
cache_dir="${XDG_CACHE_HOME:-$HOME/.cache}/millrace"
venv_dir="$cache_dir/venvs/weights"
# Pinned: the dequantised bits must not depend on the day.
venv_packages="gguf==0.19.0 numpy"

fail() {
  echo "$(basename "$0"): $*" >&2
  exit 1
}

# quietly WHAT COMMAND...: runs a command; on failure shows its output and what to do.
quietly() {
  local what="$1" log
  shift
  log="$(mktemp)"
  if ! "$@" >"$log" 2>&1; then
    tail -n 15 "$log" >&2
    rm -f "$log"
    fail "$what failed (above). It needs the Python package index: check the network or" \
      "pip's settings (PIP_INDEX_URL, PIP_FIND_LINKS), then run this again."
  fi
  rm -f "$log"
}

# Makes the environment once; instant when it is there. Safe to run twice at a time.
ensure_venv() {
  local stamp="$venv_dir/.complete"
  [[ -f "$stamp" && "$(<"$stamp")" == "$venv_packages" ]] && return
  mkdir -p "$cache_dir/venvs"
  exec 9>"$cache_dir/venvs/weights.lock"
  flock 9
  if [[ ! -f "$stamp" || "$(<"$stamp")" != "$venv_packages" ]]; then
    local python=/usr/bin/python3
    [[ -x "$python" ]] || python="$(command -v python3)" || fail "python3 not found: apt install python3"
    "$python" -c 'import ensurepip' 2>/dev/null ||
      fail "Python's venv module not found: apt install python3-venv"
    echo "making a Python environment in $venv_dir" >&2
    rm -rf "$venv_dir"
    quietly "making a virtual environment" "$python" -m venv "$venv_dir"
    # shellcheck disable=SC2086  # a list of packages
    quietly "pip install $venv_packages" "$venv_dir/bin/pip" install --disable-pip-version-check \
      $venv_packages
    echo "$venv_packages" >"$stamp"
  fi
  exec 9>&-
}

# run_module MODULE ARGS...: runs a module of hf_convert in the environment.
run_module() {
  PYTHONPATH="$weights_dir" PYTHONDONTWRITEBYTECODE=1 "$venv_dir/bin/python" -m "$@"
}
