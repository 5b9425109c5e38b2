#!/bin/bash
# run_python.sh PROGRAM CONTROLLER WORKER: runs a test of this folder in the clients' environment.
set -euo pipefail
folder=$(dirname "$1")
# shellcheck source=tests/integration/venv.sh
source "$folder/venv.sh"
ensure_venv
PYTHONDONTWRITEBYTECODE=1 exec "$venv_dir/bin/python" "$1" --controller "$2" --worker "$3"
