#!/usr/bin/env bash
# compat.sh FOLDER: builds a wheel for the newest torch in an environment of its own below FOLDER, says
# which of torch's internals it lacks, and runs the packaging tests, the wrapper's, those of data
# parallelism and the models there. `make test` does so for the oldest torch that README promises. The
# checkout's own build is left as it is. Called by `make compat`; TORCH=2.12.0 names another version.
set -euo pipefail
folder=$1
which=${TORCH:+==$TORCH}
name=${TORCH:-newest}
venv=$folder/$name
python=$PWD/$venv/bin/python

# Everything at its pin but torch and what must match it.
mkdir -p build "$folder"
grep -vE '^(torch|torchvision|triton|setuptools|nvidia-|cuda-)' requirements/dev.txt >"build/$name.txt"
printf 'torch%s\ntorchvision\nsetuptools\n' "${which:->=2.11}" >>"build/$name.txt"
[ -x "$python" ] || tools/make_venv.sh "$venv" "build/$name.txt"
if command -v uv >/dev/null; then
  uv pip install -q --python "$python" --upgrade-package torch --upgrade-package torchvision \
    -r "build/$name.txt"
  uv pip install -q --python "$python" --no-build-isolation --no-deps --reinstall .
else
  "$python" -m pip install -q --upgrade -r "build/$name.txt"
  "$python" -m pip install -q --no-build-isolation --no-deps --force-reinstall .
fi

# On the installed wheel and not on the folder of this checkout.
export PYTHONSAFEPATH=1 OMP_NUM_THREADS=2 OMP_WAIT_POLICY=passive
"$python" -m ortmodule.torch_internals | grep -E "GONE|names,"
"$python" -m pytest -q tests/packaging/test_native.py
"$python" -m pytest -q -m "not long" -n "${JOBS:-2}" --dist worksteal tests/ortmodule \
  tests/distributed "${@:2}"
"$python" -m pytest -q -m models "${@:2}"
