"""Files that are none: what a repo or a caller can name must not hang or fill a server."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from zenit_hub.answer import Unreadable
from zenit_hub.cli.main import main
from zenit_hub.files import read_limited, replace_file
from zenit_hub.read import read_file


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    """A named pipe that nobody writes to."""
    path = tmp_path / "config.json"
    os.mkfifo(path)
    return path


def test_one_byte_more_than_allowed_is_read(tmp_path: Path) -> None:
    """So that its reader knows that the file is larger."""
    file = tmp_path / "file"
    file.write_bytes(b"12345")
    assert read_limited(file, 3) == b"1234"
    assert read_limited(file, 5) == b"12345"


def test_a_pipe_and_an_endless_device_are_not_read(pipe: Path, tmp_path: Path) -> None:
    """Neither as they are nor behind a link, as a git repo can hold one."""
    endless = tmp_path / "endless.json"
    endless.symlink_to("/dev/zero")
    for path in (pipe, endless, tmp_path):
        found = read_file(path)
        assert isinstance(found, Unreadable)
    assert read_file(tmp_path / "absent.json") is None


def test_an_error_names_the_file_that_was_asked_for(tmp_path: Path) -> None:
    """Not Python's number of an open folder, and not the file beside it that would have become it."""
    with pytest.raises(IsADirectoryError) as reading:
        read_limited(tmp_path, 1)
    with pytest.raises(FileNotFoundError) as writing:
        replace_file(tmp_path / "no" / "README.md", b"")

    assert reading.value.filename == str(tmp_path)
    assert writing.value.filename == str(tmp_path / "no" / "README.md")


@pytest.mark.parametrize(
    "words",
    [
        ["plan", "{folder}"],
        ["validate", "{folder}"],
        ["validate", "{folder}/config.json"],
        ["plan", "{folder}", "--machine", "{folder}/config.json"],
        ["plan", "{folder}", "--", "--config", "{folder}/pipe.yaml"],
    ],
    ids=" ".join,
)
def test_no_command_waits_for_a_pipe(
    pipe: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, wherever the pipe is named."""
    os.mkfifo(pipe.parent / "pipe.yaml")
    status = main([word.format(folder=pipe.parent) for word in words])
    out, err = capsys.readouterr()
    assert status in (0, 1, 2)
    assert "no regular file" in (out + err)


def test_yaml_that_multiplies_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nine levels of aliases are a few hundred bytes and a billion values."""
    bomb = tmp_path / "bomb.yaml"
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]
    bomb.write_text("\n".join(levels))
    assert main(["plan", str(tmp_path), "--", "--config", str(bomb)]) == 2
    assert "expands too far" in capsys.readouterr().err
