"""``zenit-hub doctor``, each call a process of its own: a driver made of C, a hub on loopback, a vLLM's metadata.

Eight broken situations, each named with its cause and what to type; and what a whole machine says.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.hub import LoopbackHub
from tests.rigs.nvml import GIB, NvmlRig
from tests.rigs.reading import COMMANDS, P3, Order, Reader, Told, cli, config_file

TOKEN = "hf_nobody_may_see_this"
CARD = {
    "name": "Card A",
    "uuid": "GPU-aaaa",
    "compute_capability": "9.0",
    "total_bytes": 80 * GIB,
    "reserved_bytes": GIB,
    "free_bytes": 78 * GIB,
}
NOT_INHERITED = ("CUDA_", "NVIDIA_")


@dataclass(frozen=True)
class Bench:
    """A machine with a card, a vLLM for it, and a hub. ``reader`` carries orders out there."""

    reader: Reader
    card: NvmlRig
    hub: LoopbackHub
    environment: dict[str, str]

    def ask(self, *words: str, **environ: str) -> Checks:
        return Checks(self.reader.ask(order(*words, **environ)))


def order(*words: str, **environ: str) -> Order:
    return cli("doctor", *words, "--json", environ=environ)


class Checks:
    """What was said, by name."""

    def __init__(self, told: Told) -> None:
        assert told["raised"] is None
        assert TOKEN not in told.said
        self.told = told
        self.status = told["status"]
        self.all: list[dict[str, Any]] = json.loads(told["out"])

    def __getitem__(self, name: str) -> dict[str, Any]:
        (found,) = [check for check in self.all if check["name"] == name]
        return found

    @property
    def wrong(self) -> dict[str, str]:
        """But for this machine's own memory, which may really be short just now (``test_doctor_memory.py``)."""
        return {
            check["name"]: check["status"]
            for check in self.all
            if check["status"] != "ok" and check["name"] != "host memory"
        }


def installed_vllm(folder: Path, version: str) -> str:
    """A folder for ``PYTHONPATH`` in which package metadata says that this vLLM is installed."""
    metadata = folder / f"vllm-{version}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")
    return str(folder)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("doctor")
    card = NvmlRig(folder / "nvml")
    site = installed_vllm(folder / "site", "0.33.0")
    with LoopbackHub() as hub, pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(NOT_INHERITED)]:
            patch.delenv(name)
        hub.create("zenit/whole", {"config.json": config_file()})
        hub.account("ann", token=TOKEN)
        environment = {
            **hub.environment(home=folder / "home"),
            **card.environment(),
            "PYTHONPATH": site,
            "PATH": str(Path(sys.executable).parent),
        }
        modules = (*COMMANDS, "zenit_hub.maintain.doctor.checks", "zenit_hub.maintain.doctor.gather")
        with Reader(folder, environment, modules) as reader:
            yield Bench(reader, card, hub, environment)


@pytest.fixture(autouse=True)
def whole(bench: Bench) -> Iterator[None]:
    """Each test begins with a card that is nearly empty and a hub that answers."""
    bench.card.mend()
    bench.card.put({"devices": [CARD]})
    yield
    bench.hub.heal()


def test_a_whole_machine_has_nothing_to_mend(bench: Bench) -> None:
    """Every check, in order, and what would be chosen."""
    checks = bench.ask("zenit/whole", HF_TOKEN=TOKEN)

    assert (checks.status, checks.wrong) == (0, {})
    assert [check["name"] for check in checks.all] == [
        "python",
        "vllm",
        "plug-in",
        "driver",
        "card 0",
        "CUDA_VISIBLE_DEVICES",
        "host memory",
        "hub",
        "token",
        "environment",
        "model",
        "section",
        "choice",
    ]
    assert (
        checks["card 0"]["message"]
        == "Card A (GPU-aaaa): 78.00 GiB free of 79.00 GiB, compute capability 9.0"
    )
    assert checks["driver"]["message"] == "NVIDIA driver 580.95.05, 1 card"
    assert checks["token"]["message"] == "of ann, from HF_TOKEN"
    assert checks["choice"]["message"].startswith("profile l1m, 1048576 tokens: the widest window that fits")
    assert all(check["next"] is None for check in checks.all)
    assert not {"vllm", "torch"} & {module.partition(".")[0] for module in checks.told["modules"]}


# --- eight broken situations


def test_no_nvml(bench: Bench, tmp_path: Path) -> None:
    """The library is not there: a process whose search for it ends in an empty file."""
    bare = NvmlRig(tmp_path / "bare")
    bare.put({"driver_error": "LibraryNotFound"})
    environment = {**os.environ, **bench.environment, **bare.environment()}
    child = subprocess.run(
        [sys.executable, "-m", "zenit_hub.cli.main", "doctor", "--json"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    (driver,) = [check for check in json.loads(child.stdout) if check["name"] == "driver"]
    assert (child.returncode, driver["status"]) == (1, "fail")
    assert "libnvidia-ml.so.1 is not there" in driver["message"]
    assert "docker run --gpus all" in driver["next"]


def test_driver_and_library_do_not_match(bench: Bench) -> None:
    """As after an update without a reboot."""
    bench.card.put({"driver_error": "LibRmVersionMismatch"})
    checks = bench.ask()

    assert (checks.status, checks.wrong) == (1, {"driver": "fail"})
    assert "mismatch of the NVIDIA driver and its library" in checks["driver"]["message"]
    assert "reboot" in checks["driver"]["next"]


@pytest.mark.parametrize(
    ("plugins", "then"),
    [
        ("lora_resolver", "export VLLM_PLUGINS=lora_resolver,zenit_hub, or unset it"),
        ("", "export VLLM_PLUGINS=zenit_hub, or unset it"),
        ("a, zenit_hub", "export VLLM_PLUGINS=a,zenit_hub, or unset it"),
    ],
)
def test_the_plugin_is_filtered_out(bench: Bench, plugins: str, then: str) -> None:
    """vLLM compares the names as they stand; empty lets none in."""
    checks = bench.ask(VLLM_PLUGINS=plugins)

    assert (checks.status, checks.wrong) == (1, {"plug-in": "fail"})
    assert f"VLLM_PLUGINS={plugins} leaves zenit_hub out" in checks["plug-in"]["message"]
    assert checks["plug-in"]["next"] == then


def test_a_model_without_a_section(bench: Bench, tmp_path: Path) -> None:
    """It serves, without profiles."""
    (tmp_path / "config.json").write_text('{"architectures": ["X"]}')
    checks = bench.ask(str(tmp_path))

    assert (checks.status, checks.wrong) == (0, {"section": "warn"})
    assert "the model carries no serving profiles" in checks["section"]["message"]
    assert checks["section"]["next"] == f"zenit-hub init {tmp_path} proposes a section"


def test_a_model_with_an_invalid_section(bench: Bench, tmp_path: Path) -> None:
    """Findings are counted, and the first is told; the valid profiles still serve."""
    section = json.loads(json.dumps(P3["lomonosov_serving_profiles"]))
    section["profiles"]["m256k"]["max_num_seqs"] = 0
    section["profiles"]["m256k"]["gpu_utilization"] = 0.5
    (tmp_path / "config.json").write_bytes(config_file(lomonosov_serving_profiles=section))
    checks = bench.ask(str(tmp_path))

    assert (checks.status, checks["section"]["status"]) == (1, "fail")
    assert checks["section"]["message"].startswith(
        "2 errors, the first: /lomonosov_serving_profiles/profiles/m256k/"
    )
    assert checks["section"]["next"] == f"zenit-hub validate {tmp_path}"
    assert checks["choice"]["message"].startswith("profile l1m")
    assert "profile m256k drops out" in checks["choice: profile_invalid"]["message"]


@pytest.mark.parametrize("status", [503, 502])
def test_the_hub_is_down(bench: Bench, status: int) -> None:
    """Its address and its answer are named; a folder does not need it."""
    bench.hub.down(status)
    checks = bench.ask(HF_TOKEN=TOKEN)

    assert (checks.status, checks.wrong) == (1, {"hub": "fail", "token": "warn"})
    assert checks["hub"]["message"] == f"{bench.hub.url} cannot be used: it answers {status}"
    assert "HF_ENDPOINT" in checks["hub"]["next"]
    assert "HF_HUB_OFFLINE=1" in checks["hub"]["next"]


def test_a_folder_needs_no_hub(bench: Bench, tmp_path: Path) -> None:
    """Nothing fails for it."""
    (tmp_path / "config.json").write_bytes(config_file())
    bench.hub.down()

    assert bench.ask(str(tmp_path)).status == 0


@pytest.mark.parametrize(
    ("token", "why"),
    [
        (f"{TOKEN}_of_nobody", "the Hub does not accept the token from HF_TOKEN"),
        (f"{TOKEN}\x01é", "the token from HF_TOKEN has a character that cannot be sent"),
    ],
)
def test_a_bad_token(bench: Bench, token: str, why: str) -> None:
    """It is named and not shown, and the model that cannot be read for it points there."""
    bench.hub.create(f"zenit/fresh-{len(token)}", {"config.json": config_file()})
    checks = bench.ask(f"zenit/fresh-{len(token)}", HF_TOKEN=token)

    assert (checks.status, checks.wrong) == (1, {"token": "fail", "model": "fail"})
    assert checks["token"]["message"].startswith(why)
    assert "unset HF_TOKEN" in checks["token"]["next"]


def test_a_card_is_nearly_full(bench: Bench) -> None:
    """What is free, who has the rest, what vLLM's own default meets there, and another card."""
    holders = [{"pid": os.getpid(), "used_bytes": 70 * GIB}, {"pid": 2**30, "used_bytes": 4 * GIB}]
    other = {**CARD, "uuid": "GPU-bbbb"}
    bench.card.put({"devices": [{**CARD, "free_bytes": 4 * GIB, "processes": holders}, other]})
    checks = bench.ask()

    card = checks["card 0"]
    assert (checks.status, checks.wrong) == (0, {"card 0": "warn"})
    assert "4.00 GiB free of 79.00 GiB" in card["message"]
    assert re.search(rf"Held by .*pid {os.getpid()}\)? 70.00 GiB, pid {2**30} 4.00 GiB", card["message"])
    assert (
        "own gpu_memory_utilization of 0.92 is refused here; profiles lower it to 0.0411" in card["message"]
    )
    assert "export CUDA_VISIBLE_DEVICES=GPU-bbbb" in card["next"]


def test_a_card_is_full(bench: Bench) -> None:
    """Nothing starts there."""
    bench.card.put({"devices": [{**CARD, "free_bytes": GIB // 2}]})
    checks = bench.ask("zenit/whole")

    assert (checks.status, checks["card 0"]["status"], checks["choice"]["status"]) == (1, "fail", "fail")
    assert "Nothing starts here" in checks["card 0"]["message"]
    assert checks["choice: nothing_fits"]["next"] == "zenit-hub plan zenit/whole"


# --- other models and shells


def test_a_model_that_is_not_there(bench: Bench) -> None:
    """The words of the reader of models, and its remedy."""
    checks = bench.ask("zenit/gone")

    assert (checks.status, checks.wrong) == (1, {"model": "fail"})
    assert "no such repo, or it is private" in checks["model"]["message"]
    assert "hf auth login" in checks["model"]["next"]


def test_a_revision_is_read_and_named_in_what_to_type(bench: Bench) -> None:
    """Where a branch has no section."""
    bench.hub.create("zenit/branched", {"config.json": config_file()})
    bench.hub.branch("zenit/branched", "bare")
    bench.hub.commit("zenit/branched", {"config.json": b"{}"}, revision="bare")
    checks = bench.ask("zenit/branched", "--revision", "bare")

    assert checks["section"]["next"] == "zenit-hub init zenit/branched --revision bare proposes a section"


def test_a_forced_name_that_is_not_declared(bench: Bench) -> None:
    """As the launch itself would refuse it."""
    checks = bench.ask("zenit/whole", ZENIT_SERVING_PROFILE="nope")

    assert (checks.status, checks.wrong) == (1, {"choice": "fail"})
    assert "not declared: nope" in checks["choice"]["message"]
    assert "ZENIT_SERVING_PROFILE=<one of them>" in checks["choice"]["next"]


def test_people_see_a_line_a_check_and_what_to_type_below(bench: Bench) -> None:
    """``-q`` leaves out what is well."""
    plain, quiet = bench.reader.together(
        *(cli("doctor", *words, environ={"VLLM_PLUGINS": "x"}) for words in ([], ["-q"]))
    )

    assert plain["status"] == quiet["status"] == 1
    lines = plain["out"].splitlines()
    assert lines[0].startswith("ok    python                3.")
    at = next(number for number, line in enumerate(lines) if line.startswith("fail"))
    assert lines[at + 1].strip() == "→ export VLLM_PLUGINS=x,zenit_hub, or unset it"
    assert lines[-1].startswith("1 of 10 checks failed")
    assert [line.split() for line in quiet["out"].splitlines()] == [
        line.split() for line in lines[at : at + 2]
    ]
    assert plain["err"] == quiet["err"] == ""


SHORT = """
import sys
from zenit_hub import device, read
from zenit_hub.cli.main import main
from zenit_hub.maintain.doctor import gather, hub
device.TIMEOUT_S, hub.DEADLINE_S, read.DEADLINE_S, gather.GATHER_S = 0.3, 0.3, 0.4, 1.5
sys.exit(main(["doctor", "zenit/slow", "--json"]))
"""


def test_a_driver_and_a_hub_that_hang_do_not_hang_it(bench: Bench) -> None:
    """Both are named, and everything else is told, after the deadlines (which are shorter here)."""
    bench.card.hang("nvmlInit", 20)
    bench.hub.stall()
    began_s = time.monotonic()
    child = subprocess.run(
        [sys.executable, "-c", SHORT],
        env={**os.environ, **bench.environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=15,
    )

    checks = {check["name"]: check for check in json.loads(child.stdout)}
    assert time.monotonic() - began_s < 10
    assert child.returncode == 1
    assert "NVML did not answer" in checks["driver"]["message"]
    assert "no answer in 0.3 s" in checks["hub"]["message"]
    assert checks["model"]["status"] == "fail"
    assert checks["plug-in"]["status"] == "ok"
