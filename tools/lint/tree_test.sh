#!/bin/bash
set -euo pipefail
exec tools/lint/lint "$(dirname "$(readlink -f WORKSPACE)")"
