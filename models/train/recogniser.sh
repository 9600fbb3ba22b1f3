#!/bin/sh
# An experiment, see README.md: makes .photofinish/train/light_text_recogniser.onnx from nothing but this repository, the
# package registries and the text networks that `cargo xtask setup` fetches. About 80 minutes on two cores, by estimate: it was
# run in parts. Run at the root of the repository; needs npm.
set -eu
. models/train/environment.sh
draw_sets strips recogniser_data.py 25000 31 32
# shellcheck disable=SC2086 -- a list of files
"$python" models/train/train_recogniser.py "$work/light_text_recogniser.onnx" $sets
sha256sum "$work/light_text_recogniser.onnx"
