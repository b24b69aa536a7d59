#!/usr/bin/env bash
# compat.sh VENV: builds a wheel for the newest torch in an environment of its own and runs the
# packaging and model tests on it. The checkout's own build is left as it is. Called by `make compat`.
set -euo pipefail
venv=$1
here=$PWD
python=$here/$venv/bin/python

# Everything at its pin but torch and what must match it.
grep -vE '^(torch|torchvision|triton|setuptools|nvidia-|cuda-)' requirements/dev.txt \
  >build/compat.txt
printf 'torch>=2.11\ntorchvision\nsetuptools\n' >>build/compat.txt
if command -v uv >/dev/null; then
  [ -x "$python" ] || tools/make_venv.sh "$venv" build/compat.txt
  uv pip install -q --python "$python" --upgrade-package torch --upgrade-package torchvision \
    -r build/compat.txt
  uv pip install -q --python "$python" --no-build-isolation --no-deps --reinstall .
else
  [ -x "$python" ] || tools/make_venv.sh "$venv" build/compat.txt
  "$python" -m pip install -q --upgrade torch torchvision
  "$python" -m pip install -q --no-build-isolation --no-deps --force-reinstall .
fi
"$python" -c 'import torch; print("testing against torch", torch.__version__)'
# Safe path: `ortmodule` is the installed wheel, not the folder of this checkout.
export PYTHONSAFEPATH=1
"$venv/bin/pytest" -q tests/packaging/test_native.py
"$venv/bin/pytest" -q -m models "${@:2}"
