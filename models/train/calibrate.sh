#!/bin/sh
# Makes the calibrations of models/trained from nothing but this repository, the package registries and what
# `cargo xtask setup --all` fetches. About 10 minutes on two cores. Run at the root of the repository; needs npm.
set -eu
. models/train/environment.sh
for pair in detector:pp_ocrv4_det_int8 recogniser:rec_v4_alnum_int8 embedder:omz_face_reid_0095_int8; do
    "$python" models/train/calibrate.py "${pair%%:*}" "$trained/${pair#*:}.json" \
        --models "$state/models" --materials "$work/packages" --portraits "$state/portraits"
done
