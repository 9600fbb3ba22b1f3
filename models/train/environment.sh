# What the recipes have in common; they read it with `.`. Sets `state`, `work`, `trained` and `python`, the interpreter of an
# environment with all packages.
state=.photofinish
work=$state/train
trained=models/trained
python="$work/venv/bin/python"
mkdir -p "$work/packages"
test -x "$python" || python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --no-deps --requirement models/train/requirements.txt
# Before two programs want them at once.
"$python" models/train/materials.py "$work/packages"

# Draws sets of examples at once, one for each seed, unless they are there; `sets` are then their files.
#
#   draw_sets NAME PROGRAM COUNT SEED...
draw_sets() {
    name=$1 program=$2 count=$3
    shift 3
    sets=
    jobs=
    for seed in "$@"; do
        set="$work/$name-$seed.npz"
        sets="$sets $set"
        test -f "$set" && continue
        "$python" "models/train/$program" "$set" "$count" "$seed" --models "$state/models" --materials "$work/packages" &
        jobs="$jobs $!"
    done
    for job in $jobs; do
        wait "$job"
    done
}
