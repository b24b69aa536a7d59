"""Checkpointer: a run goes on as if it had not been interrupted; what is broken is not used."""

import json
import os
import pickle
import subprocess
import zlib

import pytest
import saving
from ortmodule.distributed import manifest


@pytest.mark.parametrize("asynchronous", [False, True], ids=["at_once", "asynchronous"])
@pytest.mark.parametrize("way", ["data_parallel", "fully_shard", "zero"])
def test_a_run_goes_on(pair, tmp_path, way, asynchronous):
    assert pair.run("saving", "goes_on", str(tmp_path), way, asynchronous) == [True, True]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_one_process_alone(tmp_path, asynchronous):
    assert saving.goes_on(str(tmp_path), "alone", asynchronous)


def test_the_last_ones_are_kept(pair, tmp_path):
    assert pair.run("saving", "saved", str(tmp_path), "data_parallel", 2) == [[5, 6]] * 2
    assert sorted(os.listdir(tmp_path)) == ["step-000000005", "step-000000006"]


@pytest.mark.parametrize("ways", [("data_parallel", "alone"), ("fully_shard", "data_parallel")])
def test_another_number_of_processes(pair, tmp_path, ways):
    first, second = ways
    pair.run("saving", "saved", str(tmp_path), first)
    same = pair.run("saving", "loaded", str(tmp_path), first)[0]
    alone = saving.loaded(str(tmp_path), "alone")
    assert same[0] == alone[0] == 6
    assert alone[1:3] == pytest.approx(same[1:3], rel=1e-12)
    assert "saved by 2 processes, loaded by 1" in alone[3][0]
    other = pair.run("saving", "loaded", str(tmp_path), second if second != "alone" else first)[0]
    assert other[1:3] == pytest.approx(same[1:3], rel=1e-12)


def test_a_step_is_saved_again(tmp_path):
    saving.saved(str(tmp_path), "alone", 3, 1)
    saving.saved(str(tmp_path), "alone", 3, 1)
    assert os.listdir(tmp_path) == ["step-000000001"]
    assert saving.loaded(str(tmp_path), "alone")[0] == 1


def parts(folder):
    return sorted(path for path in folder.iterdir() if path.suffix == ".distcp")


def test_what_is_cut_is_left_out(pair, tmp_path):
    pair.run("saving", "saved", str(tmp_path), "data_parallel")
    part = parts(tmp_path / "step-000000006")[0]
    whole = part.read_bytes()
    part.write_bytes(whole[:-9])
    for found, _, _, told in pair.run("saving", "loaded", str(tmp_path), "data_parallel"):
        assert found == 5
        assert f"has {len(whole) - 9} bytes in {part.name}, expected {len(whole)}" in told[0]
    part.write_bytes(whole[:-9] + bytes(9))
    for found, _, _, told in pair.run("saving", "loaded", str(tmp_path), "data_parallel"):
        assert found == 5 and f"has other bytes in {part.name} than were written" in told[0]
    for told in pair.run("saving", "fails", str(tmp_path), "data_parallel", 6):
        assert told.startswith("RuntimeError: [Checkpointer]") and "has other bytes" in told
    part.unlink()
    assert f"has no {part.name}" in saving.fails(str(tmp_path), "alone", 6)
    (tmp_path / "step-000000005" / "manifest.json").write_text("{}")
    assert "is no manifest of a checkpoint" in saving.fails(str(tmp_path), "alone", 5)
    assert "has no manifest" in saving.fails(str(tmp_path), "alone", 9)


def test_an_interrupted_save_is_cleared(pair, tmp_path):
    aside = tmp_path / "step-000000001.partial"
    aside.mkdir()
    (aside / "__0_0.distcp").write_bytes(b"half")
    assert pair.run("saving", "saved", str(tmp_path), "data_parallel", 3, 1) == [[1]] * 2
    assert os.listdir(tmp_path) == ["step-000000001"]


def test_a_full_disk(pair, tmp_path):
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)], capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        for told, steps, names in pair.run("saving", "full_disk", str(tmp_path)):
            assert "[Checkpointer] rank" in told and "No space left on device" in told, told
            assert steps == [1] and names == ["filling", "step-000000001"]
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


class Harmful:
    def __reduce__(self):
        return os.system, ("true",)


def test_hostile_files(tmp_path):
    saving.saved(str(tmp_path), "alone", 3, 1)
    folder = tmp_path / "step-000000001"
    metadata = (folder / ".metadata").read_bytes()
    listed = json.loads((folder / "manifest.json").read_text())

    def put(data):
        (folder / ".metadata").write_bytes(data)
        listed["files"][".metadata"] = [len(data), zlib.crc32(data)]
        (folder / "manifest.json").write_text(json.dumps(listed))
        return saving.fails(str(tmp_path), "alone")

    assert put(metadata) == "nothing"
    assert ".metadata names posix.system, expected tensors' facts" in put(pickle.dumps(Harmful()))
    assert ".metadata holds a dict, expected Metadata" in put(pickle.dumps({}))
    other = metadata.replace(b"__0_0.distcp", b"../x0.distcp")
    assert ".metadata names the file ../x0.distcp, which is none" in put(other)
    assert "[Checkpointer] rank 0" in put(metadata[: len(metadata) // 2])


def test_another_optimizer_than_saved(pair, tmp_path):
    for told in pair.run("saving", "not_zero", str(tmp_path)):
        assert told.startswith("RuntimeError: [Checkpointer] rank 0 cannot read"), told
        assert "saved with another optimizer, expected ZeroRedundancyOptimizer" in told


def test_a_file_that_no_rank_wrote(tmp_path):
    (tmp_path / "stranger").touch()
    with pytest.raises(RuntimeError, match="stranger was written by no rank"):
        manifest.complete(tmp_path, tmp_path / "whole", 1, [{}])


def test_nothing_is_left_when_closed(pair, tmp_path):
    for before, after in pair.run("saving", "closed", str(tmp_path)):
        assert after == before


def test_no_folder(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RuntimeError, match=r"rank 0 cannot make .*: NotADirectoryError: "):
        saving.Run(str(tmp_path / "file" / "steps"), "alone")


def test_arguments(tmp_path):
    with pytest.raises(ValueError, match="keep is 0, expected 1 or more"):
        saving.Run(str(tmp_path), "alone", keep=0)
