#!/bin/bash
# Tiny model -> GGUF -> converter -> the same tiny model.
set -euo pipefail
# shellcheck source=tools/weights/python_env.sh
source "$(dirname "${BASH_SOURCE[0]}")/python_env.sh"

ensure_venv
PYTHONPATH="$weights_dir" PYTHONDONTWRITEBYTECODE=1 "$venv_dir/bin/python" \
  "$weights_dir/round_trip_check.py"
