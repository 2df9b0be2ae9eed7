"""`zenit-hub validate`: what is printed and the exit status."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from zenit_hub import read
from zenit_hub.cli.main import main
from zenit_hub.errors import ModelNotFound

EXAMPLES = Path(__file__).parent / "examples"
VALID = EXAMPLES / "valid" / "zenit-altay.json"
INVALID = EXAMPLES / "invalid" / "two-mistakes.json"
WARNED = EXAMPLES / "valid" / "warn-no-section.json"


def test_a_valid_file_is_said_to_be_valid(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", str(VALID)]) == 0
    assert capsys.readouterr().out == f"{VALID}: valid\n"


def test_people_get_file_line_level_place_message_and_fix(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", str(INVALID)]) == 1

    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == (
        f"{INVALID}:10: error: /lomonosov_serving_profiles/profiles/p/max_num_seqs: "
        "`max_num_seqs` is 0, allowed: a whole number from 1 to 65536"
    )
    assert lines[1] == "    fix: write a whole number from 1 to 65536"
    assert lines[-1] == f"{INVALID}: not valid (2 errors)"


def test_json_is_one_object_for_one_target_as_the_contract_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "--json", str(INVALID)]) == 1

    answer = json.loads(capsys.readouterr().out)
    assert set(answer) == {"file", "valid", "findings"}
    assert (answer["file"], answer["valid"]) == (str(INVALID), False)
    assert [set(finding) for finding in answer["findings"]] == [
        {"level", "path", "line", "message", "fix"}
    ] * 2
    assert answer["findings"][1]["line"] == 11


def test_json_is_a_list_for_several_targets(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "--json", str(VALID), str(INVALID), str(WARNED)]) == 1
    assert [one["valid"] for one in json.loads(capsys.readouterr().out)] == [True, False, True]


def test_a_warning_alone_is_valid(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", str(WARNED)]) == 0
    assert "valid (1 warning)" in capsys.readouterr().out


def test_a_folder_means_its_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_bytes(INVALID.read_bytes())

    assert main(["validate", str(tmp_path), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["file"] == str(tmp_path / "config.json")


def test_a_folder_that_exists_wins_over_a_repo_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "org" / "model").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)

    assert main(["validate", "org/model"]) == 1
    assert "the folder holds no config.json" in capsys.readouterr().out


@pytest.mark.parametrize("target", ["nowhere", "nowhere/config.json", "./no/where", "/nowhere", "a b/c"])
def test_what_is_neither_a_path_nor_a_hub_id_says_what_to_type(
    target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["validate", target]) == 1
    assert "a Hub repo like org/model" in capsys.readouterr().out


def test_a_hub_repo_is_read_at_its_revision(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def config_bytes(model: str, revision: str | None) -> bytes:
        asked.append((model, revision))
        return b'{"serving_profiles": {"repo": "a/b", "profiles": {"p": {"max_model_len": 1}}}}'

    monkeypatch.setattr(read, "config_bytes", config_bytes)

    assert main(["validate", "example-org/example-model", "--revision", "refs/pr/2"]) == 0
    assert asked == [("example-org/example-model", "refs/pr/2")]
    assert "warning: /serving_profiles/repo: the figures were measured on a/b" in capsys.readouterr().out


def test_a_hub_repo_that_cannot_be_read_is_an_error_of_that_target_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def config_bytes(model: str, revision: str | None) -> bytes:
        raise ModelNotFound("the Hub has no such repo", got=model, next_step="Check the id.")

    monkeypatch.setattr(read, "config_bytes", config_bytes)

    assert main(["validate", "--json", "example-org/gone", str(VALID)]) == 1
    gone, valid = json.loads(capsys.readouterr().out)
    assert gone["findings"] == [
        {
            "level": "error",
            "path": "",
            "line": None,
            "message": "the Hub has no such repo",
            "fix": "Check the id.",
        }
    ]
    assert valid["valid"]


def test_figures_of_another_repo_are_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "config.json"
    file.write_text('{"serving_profiles": {"repo": "a/b", "profiles": {"p": {"max_model_len": 1}}}}')

    assert main(["validate", str(file), "--repo", "other-org/finetune"]) == 1
    assert "error: /serving_profiles/repo" in capsys.readouterr().out
    assert main(["validate", str(file), "--repo", "a/b"]) == 0


@pytest.mark.parametrize(
    "words",
    [["--repo", "no repo", str(VALID)], ["--revision", "main", str(VALID)], []],
    ids=["not a repo", "a revision of a file", "no target"],
)
def test_a_wrong_command_line_is_a_usage_error(words: list[str]) -> None:
    try:
        status: object = main(["validate", *words])
    except SystemExit as leaving:
        status = leaving.code

    assert status == 2


def test_a_file_is_validated_without_an_engine_or_a_hub_client() -> None:
    heavy = ["torch", "vllm", "transformers", "huggingface_hub", "requests", "httpx"]
    program = (
        "import sys; from zenit_hub.cli.main import main; status = main(sys.argv[1:]);"
        f"sys.exit(repr([name for name in {heavy} if name in sys.modules]) if status == 0 else status)"
    )

    done = subprocess.run(
        [sys.executable, "-c", program, "validate", str(VALID)], capture_output=True, text=True, check=False
    )

    assert done.stderr.strip() == "[]"
