#!/usr/bin/env bash
# Checks what the build takes from the system; installs it with apt where that is allowed, else
# prints one error with the apt line. Called by the Makefile, once a checkout.
set -euo pipefail

header() { echo "#include <$1>" | g++ -std=c++20 -E -x c++ - >/dev/null 2>&1; }

missing=()
command -v g++ >/dev/null || missing+=(g++)
command -v cmake >/dev/null || missing+=(cmake)
if command -v g++ >/dev/null; then
  header protozero/pbf_reader.hpp || missing+=(libprotozero-dev)
  header hwy/highway.h || missing+=(libhwy-dev)
  header gtest/gtest.h || missing+=(libgtest-dev)
else
  missing+=(libprotozero-dev libhwy-dev libgtest-dev)
fi
# A distribution's own Python needs its headers; pyenv's, uv's and conda's bring them.
for python in "${PYTHON:-}" .venv/bin/python python3; do
  [ -n "$python" ] && command -v "$python" >/dev/null || continue
  include=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
  [ -f "$include/Python.h" ] || missing+=(python3-dev)
  if ! command -v uv >/dev/null; then
    "$python" -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)
  fi
  break
done
# Wanted, not needed: without an MPI there is no backend ort_mpi, and its tests are skipped.
wanted=()
command -v "${MPICXX:-mpicxx}" >/dev/null || wanted+=(libopenmpi-dev openmpi-bin)
[ $((${#missing[@]} + ${#wanted[@]})) -eq 0 ] && exit 0

# Likewise: they make the second build quick.
command -v ninja >/dev/null || wanted+=(ninja-build)
command -v ccache >/dev/null || wanted+=(ccache)
as_root=()
[ "$(id -u)" -eq 0 ] || as_root=(sudo -n)
if command -v apt-get >/dev/null && { [ "$(id -u)" -eq 0 ] || sudo -n true 2>/dev/null; }; then
  install() {
    DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get -qq install -y \
      --no-install-recommends "$@" >/dev/null
  }
  echo "installing system packages:" "${missing[@]}" "${wanted[@]}"
  "${as_root[@]}" apt-get -qq update || [ ${#missing[@]} -eq 0 ]
  [ ${#missing[@]} -eq 0 ] || install "${missing[@]}"
  install "${wanted[@]}" || echo "went on without: ${wanted[*]}"
  exit 0
fi
[ ${#missing[@]} -eq 0 ] && exit 0
echo "error: system packages are missing; run: sudo apt-get install ${missing[*]}" >&2
exit 1
