# Sourced by the tests beside it: a virtual environment with the published clients of the wire.

packages="smg==1.13.0 smg-grpc-proto==0.4.28 grpcio grpcio-health-checking grpcio-reflection"

# The test runner may not pass HOME on.
home="${HOME:-$(getent passwd "$(id -u)" | cut -d: -f6)}"
venv_dir="${XDG_CACHE_HOME:-$home/.cache}/millrace/venvs/clients"

# Makes the environment once; instant when it is there. Safe to run twice at a time.
ensure_venv() {
  local stamp="$venv_dir/.complete" log
  mkdir -p "$(dirname "$venv_dir")"
  exec 9>"$venv_dir.lock"
  flock 9
  if [[ ! -f $stamp || $(<"$stamp") != "$packages" ]]; then
    rm -rf "$venv_dir"
    log=$(mktemp)
    # shellcheck disable=SC2086  # a list of packages
    if ! { python3 -m venv "$venv_dir" &&
      "$venv_dir/bin/pip" install --disable-pip-version-check $packages; } >"$log" 2>&1; then
      tail -n 15 "$log" >&2
      echo "pip could not install the published clients: check the network or pip's settings" >&2
      exit 1
    fi
    rm -f "$log"
    echo "$packages" >"$stamp"
  fi
  exec 9>&-
}
