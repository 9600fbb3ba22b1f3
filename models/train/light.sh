#!/bin/sh
# Makes models/trained/light_text_detector.onnx and its calibration from nothing but this repository, the package registries
# and the text networks that `cargo xtask setup` fetches, by which it is calibrated. About 100 minutes on two cores. Run at the
# root of the repository; needs npm.
set -eu
. models/train/environment.sh
# Before two programs want them at once.
"$python" models/train/materials.py "$work/packages"
sets=
jobs=
for seed in 21 22; do
    set="$work/light-$seed.npz"
    sets="$sets $set"
    test -f "$set" && continue
    "$python" models/train/light_data.py "$set" 7500 "$seed" --materials "$work/packages" &
    jobs="$jobs $!"
done
for job in $jobs; do
    wait "$job"
done
# shellcheck disable=SC2086 -- a list of files
"$python" models/train/train_light.py "$trained/light_text_detector.onnx" $sets
"$python" models/train/calibrate.py light "$trained/light_text_detector_int8.json" \
    --models "$state/models" --materials "$work/packages"
"$python" xtask/convert/quantise.py "$trained/light_text_detector.onnx" "$trained/light_text_detector_int8.json" \
    "$trained/light_text_detector_int8.onnx"
sha256sum "$trained"/light_text_detector*.onnx
