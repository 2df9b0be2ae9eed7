"""A described machine: what is read of it, and one line for each mistake in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from zenit_hub.cli.main import main
from zenit_hub.errors import MachineFileError
from zenit_hub.machine import Device, Host, Slice
from zenit_hub.machine_file import DescribedMachine, read_machine_file


def described(folder: Path, content: object) -> DescribedMachine:
    file = folder / "machine.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return read_machine_file(file, "0.31.0")


def test_all_keys_are_optional(tmp_path: Path) -> None:
    """A CUDA machine without cards, with the installed engine."""
    found = described(tmp_path, {})

    assert found.around.platform == "cuda"
    assert found.around.engine.version == "0.31.0"
    assert dict(found.around.environment) == {}
    assert (found.machine.source, found.machine.devices, found.machine.driver_error) == ("machine", (), None)
    assert found.device_ids is None


@pytest.mark.parametrize(
    "key",
    [
        "platform",
        "vllm_version",
        "engine_defaults",
        "engine_fields_absent",
        "env",
        "driver_error",
        "devices",
        "host",
    ],
)
def test_null_is_absent(tmp_path: Path, key: str) -> None:
    """As the contract's example writes it."""
    assert described(tmp_path, {key: None}) == described(tmp_path, {})


def test_a_card_as_the_contract_writes_it(tmp_path: Path) -> None:
    """What CUDA can address is the total without the reserved part."""
    device = {
        "index": 3,
        "uuid": "GPU-1",
        "name": "Card",
        "compute_capability": "12.0",
        "total_bytes": 100,
        "reserved_bytes": 10,
        "free_bytes": 80,
        "memory_error": "NotSupported",
        "integrated": True,
        "mig": [{"uuid": "MIG-1", "total_bytes": 2, "free_bytes": 1, "name": "Slice"}],
    }

    (found,) = described(tmp_path, {"devices": [device]}).machine.devices

    assert found == Device(
        3, "GPU-1", "Card", (12, 0), 90, 80, "NVML does not support the question on this card (NotSupported)", True,
        (Slice("MIG-1", 2, 1, "Slice"),),
    )  # fmt: skip


def test_cards_are_numbered_as_they_stand_and_more_reserved_than_there_is_is_nothing(tmp_path: Path) -> None:
    """Without an index, and with an odd figure."""
    found = described(tmp_path, {"devices": [{}, {"total_bytes": 5, "reserved_bytes": 9}]}).machine.devices

    assert [device.index for device in found] == [0, 1]
    assert (found[0].total_bytes, found[1].total_bytes) == (None, 0)


def test_an_unknown_error_is_shown_by_its_name(tmp_path: Path) -> None:
    """With or without pynvml's prefix, and escaped."""
    assert described(tmp_path, {"driver_error": "NVMLError_NoPermission"}).machine.driver_error == (
        "no permission to ask NVML (NoPermission)"
    )
    assert described(tmp_path, {"driver_error": "Odd\x1b"}).machine.driver_error == "Odd\\u001b"


@pytest.mark.parametrize(
    ("host", "found"),
    [
        ({"mem_total_bytes": 9, "mem_available_bytes": 5, "mem_free_bytes": 1}, Host(9, 5)),
        ({"mem_total_bytes": 9, "mem_free_bytes": 1}, None),
        ({}, None),
    ],
)
def test_the_host_is_its_total_and_what_is_available(
    tmp_path: Path, host: dict[str, int], found: Host | None
) -> None:
    """Never what is merely free."""
    assert described(tmp_path, {"host": host}).machine.host == found


def test_absent_fields_and_defaults_are_the_files(tmp_path: Path) -> None:
    """Instead of those of the version; an empty list: none is absent."""
    facts = described(
        tmp_path,
        {"engine_defaults": {"gpu_memory_utilization": 0.5}, "engine_fields_absent": ["swap_space", "odd"]},
    ).around.engine

    assert facts.defaults["gpu_memory_utilization"] == 0.5
    assert facts.defaults["max_num_seqs"] is None
    assert facts.fields_absent == {"swap_space"}
    assert described(tmp_path, {"engine_fields_absent": []}).around.engine.fields_absent == frozenset()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "it is not JSON"),
        ("{", "it is not JSON"),
        ("\ufeff{}", "it is not JSON"),
        ("[" * 100_000, "it is not JSON"),
        ('{"devices": ' + "9" * 5000 + "}", "it is not JSON"),
        ([], "the machine file is wrong; got []; allowed: an object"),
        (None, "got null"),
        ({"platform": "metal"}, 'platform is wrong; got "metal"; allowed: cuda, cpu, rocm, xpu, unspecified'),
        ({"platform": 1}, "platform is wrong; got 1; allowed: a string"),
        ({"vllm_version": 0.33}, "vllm_version is wrong; got 0.33; allowed: a string"),
        ({"env": []}, "env is wrong; got []; allowed: an object"),
        ({"env": {"A": 1}}, "env.A is wrong; got 1; allowed: a string"),
        ({"env": {"A\n": None}}, "env.A\\n is wrong; got null"),
        ({"driver_error": True}, "driver_error is wrong; got true"),
        ({"devices": {}}, "devices is wrong; got {}; allowed: a list"),
        ({"devices": [1]}, "devices.0 is wrong; got 1; allowed: an object"),
        ({"devices": [{"index": "0"}]}, "index is wrong"),
        ({"devices": [{"free_bytes": 1.5}]}, "free_bytes is wrong; got 1.5; allowed: a whole number"),
        ({"devices": [{"free_bytes": True}]}, "free_bytes is wrong; got true"),
        ({"devices": [{"free_bytes": float("nan")}]}, "free_bytes is wrong; got NaN"),
        (
            {"devices": [{}, {"free_bytes": -1}]},
            "devices.1.free_bytes is wrong; got -1; allowed: bytes, 0 to 2^63",
        ),
        ({"devices": [{"total_bytes": 10**30}]}, "devices.0.total_bytes is wrong"),
        ({"devices": [{"integrated": 1}]}, "integrated is wrong; got 1; allowed: true or false"),
        ({"devices": [{"mig": {}}]}, "mig is wrong; got {}; allowed: a list"),
        ({"devices": [{"mig": [None]}]}, "devices.0.mig is wrong; got null"),
        ({"host": []}, "host is wrong"),
        ({"host": {"mem_total_bytes": "1"}}, "mem_total_bytes is wrong"),
        ({"host": {"mem_total_bytes": -1, "mem_available_bytes": 1}}, "mem_total_bytes is wrong; got -1"),
        ({"device_ids": "0"}, 'device_ids is wrong; got "0"; allowed: a list'),
        ({"engine_fields_absent": "swap_space"}, "engine_fields_absent is wrong"),
        ({"engine_fields_absent": [1]}, "engine_fields_absent is wrong; got [1]; allowed: a list of names"),
        ({"engine_defaults": {"gpu_memory_utilization": "0.9"}}, "allowed: a number above 0 and up to 1"),
        ({"engine_defaults": {"gpu_memory_utilization": True}}, "allowed: a number above 0 and up to 1"),
        (
            {"engine_defaults": {"gpu_memory_utilization": float("inf")}},
            "allowed: a number above 0 and up to 1",
        ),
        ({"engine_defaults": {"gpu_memory_utilization": 10**400}}, "a whole number of 1329 bits"),
        ({"engine_defaults": {"gpu_memory_utilization": 0}}, "allowed: a number above 0 and up to 1"),
        ({"devices": json.loads("[" * 400 + "]" * 400)}, "devices.0 is wrong; got [[["),
        ({"platform": "\x1b[31m" + "x" * 10_000}, "\\u001b[31m"),
    ],
)
def test_a_mistake_is_one_line_that_says_where_and_what_is_allowed(
    tmp_path: Path, content: object, words: str
) -> None:
    """Never the whole of what was got."""
    with pytest.raises(MachineFileError) as caught:
        described(tmp_path, content)

    assert words in str(caught.value)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("capability", ["", "9", "abc", "9.0.0", "9" * 5000 + ".0", "-9.0"])
def test_a_capability_that_is_none_is_unknown(tmp_path: Path, capability: str) -> None:
    """And excludes nothing."""
    (device,) = described(tmp_path, {"devices": [{"compute_capability": capability}]}).machine.devices

    assert device.compute_capability is None


@pytest.mark.parametrize("file", ["nope.json", ".", "odd\x00.json", "x" * 300])
def test_a_file_that_cannot_be_read_is_one_line_and_exit_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], file: str
) -> None:
    """Missing, a folder, a name that is none."""
    (tmp_path / "config.json").write_text("{}")

    status = main(["plan", str(tmp_path), "--machine", str(tmp_path / file), "--json"])

    out, err = capsys.readouterr()
    assert (status, out) == (1, "")
    assert err.count("\n") == 1
    assert "cannot be read" in err


def test_a_mistake_in_the_file_is_one_line_and_exit_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With what to type next."""
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "m.json").write_text('{"platform": "metal"}')

    status = main(["plan", str(tmp_path), "--machine", str(tmp_path / "m.json")])

    out, err = capsys.readouterr()
    assert (status, out) == (1, "")
    assert err == (
        'Error: the machine file\'s platform is wrong; got "metal"; allowed: cuda, cpu, rocm, xpu, unspecified. '
        "See `zenit-hub plan --help` for its form.\n"
    )


def test_nothing_of_the_real_machine_enters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No NVML, no kernel file and no variable but those of the file."""

    def fail(*_: object) -> Any:
        raise AssertionError("the real machine was looked at")

    for name in ("zenit_hub.stage.look_at_cards", "zenit_hub.stage.look_at_host"):
        monkeypatch.setattr(name, fail)
    monkeypatch.setenv("ZENIT_SERVING_PROFILE", "off")
    monkeypatch.setenv("ZENIT_SERVING_STRICT", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    section = {"profiles": {"p": {"max_model_len": 4096, "requires_free_bytes": 9}}}
    (tmp_path / "config.json").write_text(json.dumps({"serving_profiles": section}))
    machine = {"devices": [{"total_bytes": 2**34, "free_bytes": 2**33}]}
    (tmp_path / "m.json").write_text(json.dumps(machine))

    status = main(["plan", str(tmp_path), "--machine", str(tmp_path / "m.json"), "--json"])

    answer = json.loads(capsys.readouterr().out)
    assert (status, answer["profile"], answer["reason"]) == (0, "p", "widest_fitting")
    assert answer["memory"]["source"] == "machine"
