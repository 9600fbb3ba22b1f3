#!/bin/sh
# Runs rustc for cargo (`build.rustc-wrapper`) so that nothing that is built contains paths of the machine that built it:
# panic messages and debug information name `src/...` for the workspace and `CRATE-VERSION/src/...` for dependencies.
# cargo's own `trim-paths` is not stable yet.
set -eu
root=${0%/.cargo/*}
registry=${CARGO_HOME:-$HOME/.cargo}/registry/src
rustc=$1
shift
# Of several prefixes that match, the last one given counts. Sources of the registry are in a folder named after it.
set -- "$@" --remap-path-prefix "$root=."
for index in "$registry"/*; do
    set -- "$@" --remap-path-prefix "$index/="
done
if [ -n "${OUT_DIR:-}" ]; then
    set -- "$@" --remap-path-prefix "$OUT_DIR=generated"
fi
exec "$rustc" "$@"
