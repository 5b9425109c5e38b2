#!/bin/bash
# pack.sh OUT.tar.gz FILE...: programs go to bin/ with the shared libraries they need in lib/, other
# files beside them. The target's own libc, libstdc++, driver and CUDA libraries stay its own.
set -euo pipefail
out=$1
shift
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root/millrace/bin" "$root/millrace/lib"
for file in "$@"; do
  if [[ $(head -c 4 "$file") == $'\x7fELF' ]]; then
    cp -L "$file" "$root/millrace/bin/"
    ldd "$file" | awk '$3 ~ /^\// {print $3}'
  else
    cp -L "$file" "$root/millrace/"
  fi
done | sort -u |
  grep -vE '/lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s|cuda|cudart|cublas|cublasLt|nccl)\.so' |
  xargs -r cp -L -t "$root/millrace/lib"
chmod -R u+w "$root"
strip --strip-unneeded "$root"/millrace/bin/* "$root"/millrace/lib/*
tar -C "$root" --sort=name --mtime=@0 --owner=0 --group=0 -czf "$out" millrace
