# What the recipes have in common; they read it with `.`. Sets `state`, `work`, `trained` and `python`, the interpreter of an
# environment with all packages.
state=.photofinish
work=$state/train
trained=models/trained
python="$work/venv/bin/python"
mkdir -p "$work/packages"
test -x "$python" || python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --no-deps --requirement models/train/requirements.txt
