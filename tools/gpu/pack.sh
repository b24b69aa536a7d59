#!/usr/bin/env bash
# pack.sh PYTHON: what a GPU machine without network and without a build needs, as .pack/pack.tar.xz:
# the package with its libraries, built for PYTHON's version, and the tests that `make gpu` runs.
set -euo pipefail
python=$1
pack=$(mktemp -d)
trap 'rm -rf "$pack"' EXIT
folder=$(readlink -f build/current)
cp -r ortmodule "$pack/ortmodule"
rm -f "$pack"/ortmodule/*.so
cp "$folder"/_C*.so "$folder"/_torch*.so "$folder"/libort_core.so "$pack/ortmodule/"
cp "$folder/_build_info.py" "$pack/ortmodule/"
cp -r optim "$pack/ortmodule/optim"
cp -r distributed "$pack/ortmodule/distributed"
mkdir -p "$pack/tests" "$pack/tools"
cp -r tests/models tests/far tests/ops tests/conftest.py "$pack/tests/"
cp -r tools/gpu "$pack/tools/gpu"
dnnl=$("$python" -c 'from importlib.metadata import distribution as d
print(next(f.locate() for f in d("onednn-cpu-gomp").files if f.name == "libdnnl.so.3"))')
cp -L "$dnnl" "$pack/ortmodule/libdnnl.so.3"
cp -L "$(ldconfig -p | awk '/libhwy.so.1 /{print $NF; exit}')" "$pack/ortmodule/"
strip --strip-unneeded "$pack"/ortmodule/*.so*
find "$pack" -name __pycache__ -prune -exec rm -rf {} +
mkdir -p .pack
tar -C "$pack" -cf - . | xz -T0 -3 >.pack/pack.tar.xz
ls -l .pack/pack.tar.xz
