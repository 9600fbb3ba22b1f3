#!/bin/sh
# Makes models/trained/bib_gate.onnx from nothing but this repository, the package registries and the text networks that
# `cargo xtask setup --all` fetches. About 40 minutes on one core. Run at the root of the repository; needs npm.
#
#   models/train/gate.sh [SEED]
set -eu
seed=${1:-0}
. models/train/environment.sh
cargo run --quiet --package photofinish-scenes --bin sample-event -- "$work/scenes" --portraits "$state/portraits" --photos 24
sets=
for shard in 1 2 3 4; do
    set="$work/torsos-$seed-$shard.npz"
    test -f "$set" || "$python" models/train/data.py "$set" 3000 $((seed * 100 + shard)) \
        --models "$state/models" --materials "$work/packages" --scenes "$work/scenes"
    sets="$sets $set"
done
# shellcheck disable=SC2086 -- a list of files
"$python" models/train/train.py "$trained/bib_gate.onnx" $sets --seed "$seed"
sha256sum "$trained/bib_gate.onnx"
