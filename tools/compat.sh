#!/usr/bin/env bash
# compat.sh FOLDER: builds a wheel for the oldest torch that README promises and for the newest, each
# in an environment of its own below FOLDER, says which of torch's internals each lacks, and runs the
# packaging tests, the wrapper's, those of data parallelism and the models there. The checkout's own
# build is left as it is. Called by `make compat`; TORCH=2.12.0 names one version instead.
set -euo pipefail
folder=$1
here=$PWD
oldest=2.9.0
newest=">=2.11"

# pin VENV WHICH: everything at its pin but torch and what must match it.
pin() {
  grep -vE '^(torch|torchvision|triton|setuptools|nvidia-|cuda-)' requirements/dev.txt >"build/$1.txt"
  printf 'torch%s\ntorchvision\nsetuptools\n' "$2" >>"build/$1.txt"
}

# build NAME WHICH: an environment with this torch and a wheel for it.
build() {
  local venv=$folder/$1 python=$here/$folder/$1/bin/python
  pin "$1" "$2"
  [ -x "$python" ] || tools/make_venv.sh "$venv" "build/$1.txt"
  if command -v uv >/dev/null; then
    uv pip install -q --python "$python" --upgrade-package torch --upgrade-package torchvision \
      -r "build/$1.txt"
    uv pip install -q --python "$python" --no-build-isolation --no-deps --reinstall .
  else
    "$python" -m pip install -q --upgrade -r "build/$1.txt"
    "$python" -m pip install -q --no-build-isolation --no-deps --force-reinstall .
  fi
}

# check NAME ARGS...: the tests, on the installed wheel and not on the folder of this checkout.
check() {
  local bin=$folder/$1/bin
  export PYTHONSAFEPATH=1
  "$bin/python" -m ortmodule.torch_internals | grep -E "GONE|names,"
  "$bin/pytest" -q tests/packaging/test_native.py
  "$bin/pytest" -q -m "not long" tests/ortmodule tests/distributed "${@:2}"
  "$bin/pytest" -q -m models "${@:2}"
}

mkdir -p build "$folder"
if [ -n "${TORCH:-}" ]; then
  build "$TORCH" "==$TORCH"
  check "$TORCH" "${@:2}"
else
  build oldest "==$oldest"
  check oldest "${@:2}"
  build newest "$newest"
  check newest "${@:2}"
fi
