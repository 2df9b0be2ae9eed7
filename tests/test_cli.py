"""``zenit-hub``: exit statuses, what stands on stdout and what on stderr, ``plan`` for people."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.stage import GIB, config, needs, unrated
from zenit_hub.cli import main as cli
from zenit_hub.cli.main import main
from zenit_hub.cli.output import Sink

THREE = config(
    {
        "wide": needs(40, 16384, description="One request over the whole window"),
        "narrow": needs(10, 4096, max_num_seqs=2, noosphere_mode="deep"),
        "bare": unrated(8192),
    },
    default_profile="narrow",
)
CARD = {"name": "Card A", "total_bytes": 32 * GIB, "free_bytes": 30 * GIB, "compute_capability": "9.0"}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model's folder with three profiles, beside it a machine with one card."""
    folder = tmp_path / "model"
    folder.mkdir()
    write(folder / "config.json", THREE)
    write(tmp_path / "machine.json", {"devices": [CARD]})
    return folder


def write(file: Path, content: object) -> None:
    file.write_text(json.dumps(content), encoding="utf-8")


def plan(model: Path, *words: str, machine: dict[str, Any] | None = None) -> int:
    file = model.parent / "machine.json"
    if machine is not None:
        write(file, machine)
    return main(["plan", str(model), "--machine", str(file), *words])


# --- the command line


def test_no_command_is_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    """On stdout, with an example, and no error."""
    assert main([]) == 0
    out, err = capsys.readouterr()
    assert "examples:" in out
    assert err == ""


@pytest.mark.parametrize(
    "words", [["--help"], ["plan", "--help"], ["plan", "-h", "--", "x"], ["validate", "-h"]]
)
def test_help_ends_well(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Each command has one, with examples and its exit statuses."""
    with pytest.raises(SystemExit) as ended:
        main(words)

    assert ended.value.code == 0
    assert "examples:" in capsys.readouterr().out


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    """One line."""
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("zenit-hub 0.")


@pytest.mark.parametrize(
    "words",
    [["plan"], ["validate"], ["plan", "--machine"]],
)
def test_a_wrong_command_line_is_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """And says what is allowed, on stderr."""
    with pytest.raises(SystemExit) as ended:
        main(words)

    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (2, "")
    assert "usage: zenit-hub" in err


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (["plan", "a", "b"], "zenit-hub plan MODEL --"),
        (["plan", "a", "--max-model-len", "8k"], "zenit-hub plan MODEL --"),
        (["validate", "a", "--nope"], "zenit-hub validate --help"),
        (["--nope"], "zenit-hub --help"),
        (["nope"], ", plan, "),
    ],
)
def test_an_unknown_argument_is_2(words: list[str], remedy: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One line, which says where vllm's own arguments belong."""
    assert main(words) == 2

    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert remedy in err


# --- plan


def test_the_answer_has_every_key_of_the_contract(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And nothing else is on stdout."""
    assert plan(model, "--json") == 0

    out, err = capsys.readouterr()
    answer = json.loads(out)
    assert err == ""
    assert list(answer) == [
        "model",
        "commit",
        "profile",
        "reason",
        "fits",
        "memory",
        "set",
        "kept",
        "env",
        "considered",
        "warnings",
        "command",
    ]
    assert set(answer["memory"]) == {
        "source",
        "unknown",
        "devices",
        "free_bytes",
        "total_bytes",
        "budget_bytes",
    }
    assert set(answer["considered"]["wide"]) == {
        "verdict",
        "max_model_len",
        "requires_free_bytes",
        "budget_bytes",
        "short_bytes",
    }


def test_people_see_the_window_the_reason_what_was_rejected_and_what_to_type(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A table, the explicit command, and the line for production."""
    assert plan(model) == 0

    out = capsys.readouterr().out
    assert out.splitlines() == [
        f"{model}: profile narrow, 4096 tokens: the widest window that fits the free memory.",
        "memory: 30.00 GiB free of 32.00 GiB on Card A, budget 29.25 GiB",
        "",
        "  profile window needs     verdict",
        "  wide    16384  40.00 GiB too large by 10.75 GiB",
        "→ narrow  4096   10.00 GiB fits",
        "  bare    8192   —         not measured",
        "",
        "set: max_model_len=4096, max_num_seqs=2, gpu_memory_utilization=0.914",
        "",
        "the same with every value explicit, also without this plug-in:",
        f"  ZENIT_EFFECTIVE_MAX_MODEL_LEN=4096 ZENIT_NOOSPHERE_MODE=deep vllm serve {model} "
        "--max-model-len 4096 --max-num-seqs 2 --gpu-memory-utilization 0.914",
        "",
        "for production, where a restart must not come back narrower:",
        f"  ZENIT_SERVING_PROFILE=narrow ZENIT_SERVING_STRICT=1 vllm serve {model}",
    ]


def test_warnings_are_on_stderr_with_their_codes(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The answer alone is on stdout."""
    assert plan(model, machine={"devices": []}) == 0

    out, err = capsys.readouterr()
    assert "memory: not known (no device is visible)" in out
    assert err.startswith("Warning: the free memory is not known")
    assert err.endswith("[memory_unknown]\n")


@pytest.mark.parametrize(
    ("content", "reason", "words"),
    [
        ({}, "no_section", "the model carries no serving profiles"),
        (config({}), "invalid", "the serving profiles cannot be used"),
        (config({"p": unrated(1)}, architectures=["Other"]), "other_architecture", "another architecture"),
        (config({"p": unrated(1)}), "no_default", "takes part"),
        ([], "unreadable", "config.json cannot be used"),
    ],
)
def test_no_profile_is_an_answer_too(
    model: Path, capsys: pytest.CaptureFixture[str], content: object, reason: str, words: str
) -> None:
    """Exit status 0, for machines and for people."""
    write(model / "config.json", content)

    assert plan(model, "--json") == 0
    assert json.loads(capsys.readouterr().out)["reason"] == reason
    assert plan(model) == 0
    assert words in capsys.readouterr().out


def test_what_the_shell_says_of_serving_is_not_for_a_described_machine(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said, not silently passed over: a name that is mistyped there would seem to be right."""
    monkeypatch.setenv("ZENIT_SERVING_PROFILE", "milion")
    assert plan(model) == 0
    warnings = capsys.readouterr().err

    assert "Warning: ZENIT_SERVING_PROFILE of this shell" in warnings
    assert 'put them under "env"' in warnings


def test_off_is_an_answer_without_a_look_at_the_model(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also for a model that does not exist."""
    machine = {"env": {"ZENIT_SERVING_PROFILE": "off"}}

    assert plan(model.parent / "nope", "--json", machine=machine) == 0
    assert json.loads(capsys.readouterr().out)["reason"] == "off"


@pytest.mark.parametrize(
    "model_name", ["/nope", "./nope", "a b", "", "no/such/repo/at/all", "\x1b[31m", "~nobody/x"]
)
def test_a_model_that_does_not_exist_is_1_and_one_line(
    model: Path, capsys: pytest.CaptureFixture[str], model_name: str
) -> None:
    """Escaped, and without asking the Hub."""
    status = main(["plan", model_name, "--machine", str(model.parent / "machine.json"), "--json"])

    out, err = capsys.readouterr()
    assert (status, out) == (1, "")
    assert err.count("\n") == 1
    assert err.rstrip("\n").isprintable()


def test_a_forced_name_that_is_not_declared_is_1(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The declared ones are listed."""
    assert plan(model, "--json", machine={"env": {"ZENIT_SERVING_PROFILE": "nope"}}) == 1

    out, err = capsys.readouterr()
    assert out == ""
    assert "wide, narrow, bare" in err


@pytest.mark.parametrize(
    ("words", "environment", "status"),
    [
        ((), {}, 0),
        (("--strict",), {}, 3),
        ((), {"ZENIT_SERVING_STRICT": "1"}, 3),
        ((), {"ZENIT_SERVING_STRICT": "0"}, 0),
        ((), {"ZENIT_SERVING_STRICT": ""}, 0),
    ],
)
def test_a_refusal_is_3_and_the_answer_is_there_all_the_same(
    model: Path,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    environment: dict[str, str],
    status: int,
) -> None:
    """With the option, or as the launch itself would have it."""
    machine = {"devices": [{**CARD, "free_bytes": 5 * GIB}], "env": environment}
    write(model / "config.json", config({"p": needs(10)}))

    assert plan(model, "--json", *words, machine=machine) == status

    out, err = capsys.readouterr()
    assert json.loads(out)["reason"] == "nothing_fits"
    assert ("a strict launch would refuse" in err) is (status == 3)


def test_what_stands_behind_the_dashes_is_vllms(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also words that are ours in front of them; the first dashes count."""
    assert plan(model, "--json", "--", "--revision", "x", "--seed", "7") == 0

    assert " --revision x --seed 7 " in json.loads(capsys.readouterr().out)["command"]


@pytest.mark.parametrize(
    "words", [["--max-model-len", "many"], ["--max-model-len"], ["-tp", "2.5"], ["stray"]]
)
def test_malformed_words_of_vllm_are_2(
    model: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    """One line, no answer."""
    assert plan(model, "--json", "--", *words) == 2

    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1


def test_our_revision_is_typed_for_vllm_and_its_own_wins(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command is what would serve what was looked at."""
    assert plan(model, "--json", "--revision", "q4") == 0
    assert " --revision q4" in json.loads(capsys.readouterr().out)["command"]


def test_secrets_are_not_shown(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither in the command nor in the line for production."""
    for json_flag in (["--json"], []):
        assert plan(model, *json_flag, "--", "--api-key", "geheim", "--hf-token=geheim") == 0
        out, err = capsys.readouterr()
        assert "geheim" not in out + err
        assert "…" in (json.loads(out)["command"] if json_flag else out)


def test_a_config_file_stands_for_its_folder(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As it is typed for vLLM."""
    machine = str(model.parent / "machine.json")

    assert main(["plan", str(model / "config.json"), "--machine", machine, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["command"].startswith(f"vllm serve {model} ")


def test_a_strangers_words_reach_a_terminal_escaped(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Names, keys and values of the section, names of cards."""
    evil = "\x1b[31m\u202e\n"
    section = config({f"p{evil}": {}, "q": unrated(1, **{f"key{evil}": 1}), "r": {"max_model_len": evil}})
    write(model / "config.json", section)

    assert plan(model, machine={"devices": [{**CARD, "name": f"Card{evil}"}]}) == 0

    out, err = capsys.readouterr()
    assert all(line.isprintable() for line in (out + err).split("\n"))
    assert "\\u001b" in out
    assert "\\u202e" in err


# --- what goes wrong outside


def test_an_interruption_is_130(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the shell has it."""

    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_run", interrupted)
    assert main(["plan"]) == 130


def test_an_error_of_the_system_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the file, where there is one."""

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device", "/x")

    monkeypatch.setattr(cli, "_run", full)
    assert main(["plan"]) == 1
    assert capsys.readouterr().err == "Error: No space left on device: /x\n"


def test_a_reader_that_goes_away_is_no_traceback(model: Path) -> None:
    """``zenit-hub plan … | head -1``."""
    machine = str(model.parent / "machine.json")
    command = [sys.executable, "-m", "zenit_hub.cli.main", "plan", str(model), "--machine", machine]
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as closed:
        child = subprocess.run(command, stdout=closed, stderr=subprocess.PIPE, text=True, check=False)

    assert child.stderr == ""
    assert child.returncode == 1


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_any_encoding_gets_the_answer(encoding: str) -> None:
    """Text with escapes, JSON with JSON's own; half a surrogate pair too."""
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    sink = Sink(out, out)

    sink.data("… \udcff")
    sink.json({"model": "… \udcff"})
    sink.warning("→")
    sink.flush()

    shown = out.buffer.getvalue().decode(encoding) if isinstance(out.buffer, io.BytesIO) else ""
    assert json.loads(shown[shown.index("{") : shown.rindex("}") + 1]) == {"model": "… \udcff"}


def test_colours_are_for_terminals_that_want_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """And never against ``NO_COLOR``."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    plain, coloured = io.StringIO(), Terminal()
    Sink(plain, plain).error("x")
    Sink(coloured, coloured).error("x")
    monkeypatch.setenv("NO_COLOR", "1")
    Sink(coloured, coloured).error("x")

    assert plain.getvalue() == "Error: x\n"
    assert coloured.getvalue() == "\x1b[31mError\x1b[0m: x\nError: x\n"
