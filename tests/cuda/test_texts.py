"""Each text of the zoo compiles for each architecture: no warning, its values in registers.

NVRTC compiles and the disassembler reads: neither needs a GPU.
"""

import ctypes
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import cuda_double
import pytest

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(cuda_double.nvrtc() is None, reason="NVRTC is not there"),
]
HERE = pathlib.Path(__file__).parent
ARCHES = (80, 90, 100)
WIDTHS = {"float": 4, "double": 8, "f16": 2, "bf16": 2, "bool": 1, "i8": 1, "u8": 1, "i16": 2,
          "u16": 2, "i32": 4, "u32": 4, "i64": 8, "u64": 8}  # fmt: skip


def compiled(text: str, arch: int) -> tuple[str, bytes]:
    """What NVRTC and the assembler say, and the code; options as in providers/cuda/code.cpp."""
    nvrtc, program, size = ctypes.CDLL(cuda_double.nvrtc()), ctypes.c_void_p(), ctypes.c_size_t()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"text.cu", 0, None, None)
    options = [f"--gpu-architecture=sm_{arch}", "--std=c++17", "--fmad=false", "-default-device"]
    options = [o.encode() for o in [*options, "--ptxas-options=-v"]]
    array = (ctypes.c_char_p * len(options))(*options)
    status = nvrtc.nvrtcCompileProgram(program, len(options), array)

    def read(what: str) -> bytes:
        getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        getattr(nvrtc, f"nvrtcGet{what}")(program, buffer)
        return buffer.raw

    log = read("ProgramLog").rstrip(b"\0").decode()
    assert status == 0, log
    code = read("CUBIN")
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return log, code


def own(text: str) -> str:
    """What follows the prelude."""
    return text[text.find("typedef", text.find("row_min(T x)")) :]


def complaints(text: str, arch: int, log: str) -> list[str]:
    """Warnings; bytes of a stack, spills."""
    lines = [line for line in log.splitlines() if line.strip() and not line.startswith("ptxas ")]
    usage = r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"
    for used in re.findall(usage, log):
        if any(map(int, used)):
            lines.append("sm_{}: {} bytes of stack, spills {} and {}".format(arch, *used))
    return lines


def promised(text: str) -> set[str]:
    """Instructions of 16 bytes that the kernel `packs` must have."""
    types = {port: name for name, port in re.findall(r"(\w+)\* ((?:in|out)\d+);", text)}
    found = set()
    for how, lanes, port in re.findall(r"(load|store)_pack<(\d+)>\(a\.(\w+),", own(text)):
        if WIDTHS[types[port]] * int(lanes) == 16:
            found.add({"load": "LDG", "store": "STG"}[how])
    return found


def missing(text: str, code: bytes, folder: pathlib.Path) -> set[str]:
    """Of what is promised, what the machine's code has not."""
    tool = pathlib.Path(importlib.util.find_spec("triton").origin).parent
    file = folder / f"{hash(code)}.cubin"
    file.write_bytes(code)
    command = [str(tool / "backends/nvidia/bin/cuobjdump"), "-sass", str(file)]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    packs = next(f for f in listing.split("Function : ") if f.startswith("packs"))
    return {name for name in promised(text) if not re.search(rf"{name}\.E\.\S*128", packs)}


def test_texts_stay_in_registers_and_move_16_bytes(tmp_path):
    env = os.environ | {"ORTMODULE_CHECK": "0"}
    command = [sys.executable, str(HERE / "zoo_texts.py")]
    run = subprocess.run(command, env=env, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-3000:]
    texts = json.loads(run.stdout)

    def judge(job: tuple[str, int]) -> tuple[list[str], bool]:
        text, arch = job
        log, code = compiled(text, arch)
        found = complaints(text, arch, log)
        # Disassembling takes longer than compiling: all for one, some for the others.
        if promised(text) and (arch == 90 or texts.index(text) % 10 == 0):
            found += [f"sm_{arch}: no {name} of 16 bytes" for name in missing(text, code, tmp_path)]
        return [f"{line}\n{own(text)}" for line in found], bool(promised(text))

    jobs = [(text, arch) for text in texts for arch in ARCHES]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        judged = list(pool.map(judge, jobs))
    wrong = [line for lines, _ in judged for line in lines]
    print(len(texts), "texts, of which with 16 bytes:", sum(wide for _, wide in judged) // 3)
    assert not wrong, "\n".join([f"{len(wrong)} complaints", *wrong[:3]])
    assert len(texts) > 300 and sum(wide for _, wide in judged) > 300
