#!/usr/bin/env bash
# make_venv.sh VENV REQUIREMENTS: a virtual environment with Python 3.11 to 3.13 and every pinned
# package. uv when it is there, else venv and pip. Called by the Makefile.
set -euo pipefail
venv=$1 requirements=$2

supported='import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))'
find_python() {
  for name in python3 python3.12 python3.13 python3.11; do
    if "$name" -c "$supported" >/dev/null 2>&1; then command -v "$name"; return; fi
  done
}

if [ ! -x "$venv/bin/python" ]; then
  python=$(find_python || true)
  if command -v uv >/dev/null; then
    uv venv -q --python "${python:-3.12}" "$venv"
  elif [ -n "$python" ]; then
    "$python" -m venv "$venv"
  else
    echo "error: Python 3.11, 3.12 or 3.13 is needed; run: sudo apt-get install python3 python3-venv python3-dev" >&2
    exit 1
  fi
fi
echo "installing $(wc -l <"$requirements") pinned packages into $venv"
if command -v uv >/dev/null; then
  uv pip install -q --python "$venv/bin/python" -r "$requirements"
else
  "$venv/bin/python" -m pip install -q --disable-pip-version-check -r "$requirements"
fi
