"""Draw the picture of the README anew: ``python -m tools.picture``, ``--check`` in CI.

It is a terminal as SVG: what ``zenit-hub plan`` really writes, recorded on a pseudo-terminal, and below it the lines
that the plug-in puts into vLLM's log for the same launch. The model is the example of this repo, the machine a
described one, so that the same bytes come out everywhere. ``tests/test_picture.py`` fails where the file shows
something else.
"""

from __future__ import annotations

import argparse
import json
import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path

from zenit_hub import say
from zenit_hub.arguments import read_arguments
from zenit_hub.stage import ask, stage_of

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / ".docs" / "plan.svg"
MODEL, MACHINE = "zenit-altay", "card.json"
COLUMNS = 104

CARD = {
    "platform": "cuda",
    "vllm_version": "0.33.0",
    "devices": [
        {
            "name": "NVIDIA GeForce RTX 5090",
            "compute_capability": "12.0",
            "total_bytes": 34190917632,
            "reserved_bytes": 486539264,
            "free_bytes": 33285996544,
        }
    ],
}
"""An idle one: 31.00 of 31.39 GiB free."""

TITLE = "zenit-hub plan for a described RTX 5090, and what vLLM's log says"
FONTS = "ui-monospace,SFMono-Regular,Menlo,Consolas,'Liberation Mono',monospace"
SIZE, ADVANCE, LEADING, MARGIN, HEAD = 14, 8.4, 20, 18, 40
"""Letters of 14 units that are 8.4 wide, lines 20 apart. Every run of letters is stretched to its columns, so that a
table stays one whatever font there is."""

_LIGHT = {
    "paper": "fill:#ffffff;stroke:#d1d9e0",
    "ink": "fill:#1f2328",
    "soft": "fill:#59636e",
    "typed": "fill:#0969da",
    "good": "fill:#1a7f37",
    "warn": "fill:#9a6700",
}
_DARK = {
    "paper": "fill:#0d1117;stroke:#3d444d",
    "ink": "fill:#e6edf3",
    "soft": "fill:#9aa4af",
    "typed": "fill:#58a6ff",
    "good": "fill:#3fb950",
    "warn": "fill:#d29922",
}
_STYLES = {"": "ink", "1": "good", "33": "warn", "36": "soft", "32": "good", "31": "warn"}
"""What the terminal was told (SGR) → what is drawn. Bold is the chosen row."""


@dataclass(frozen=True, slots=True)
class Run:
    """Letters of one style."""

    text: str
    style: str = "ink"


Line = tuple[Run, ...]


def picture() -> str:
    """The whole SVG."""
    with tempfile.TemporaryDirectory(prefix="zenit-hub-picture-") as name:
        folder = Path(name)
        (folder / MODEL).mkdir()
        shutil.copy(ROOT / "model_card" / "config.example.json", folder / MODEL / "config.json")
        (folder / MACHINE).write_text(json.dumps(CARD), encoding="utf-8")
        plan = ["zenit-hub", "plan", MODEL, "--machine", MACHINE]
        lines = [_typed(" ".join(plan)), *_wrapped(_recorded(plan, folder))]
        lines += [(), _typed(f"vllm serve {MODEL}"), *_wrapped(_logged(folder))]
    return _svg(lines)


def _typed(command: str) -> Line:
    return (Run("$ ", "soft"), Run(command, "typed"))


def _recorded(command: list[str], folder: Path) -> list[Line]:
    """What a command writes to a terminal, its stdout and stderr as a person sees them."""
    ours, theirs = pty.openpty()
    try:
        child = subprocess.Popen(
            [str(Path(sys.executable).with_name(command[0])), *command[1:]],
            cwd=folder,
            env={
                "PATH": os.environ.get("PATH", ""),
                "TERM": "xterm",
                "COLUMNS": str(COLUMNS),
                "LC_ALL": "C.UTF-8",
            },
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        written = _all_of(ours).decode("utf-8")
    finally:
        os.close(ours)
    if child.wait() != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{written}")
    return [_styled(line) for line in written.replace("\r\n", "\n").rstrip("\n").split("\n")]


def _all_of(terminal: int) -> bytes:
    """Everything until the other side has closed, which Linux reports as an error."""
    parts = []
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:
            break
        if not part:
            break
        parts.append(part)
    return b"".join(parts)


def _styled(line: str) -> Line:
    """A line with the terminal's colour codes as runs."""
    runs, code = [], ""
    for piece in re.split(r"(\x1b\[[0-9;]*m)", line):
        if piece.startswith("\x1b["):
            code = piece[2:-1].lstrip("0")
        elif piece:
            runs.append(Run(piece, _STYLES[code]))
    return tuple(runs)


def _logged(folder: Path) -> list[Line]:
    """The lines of the plug-in for the same launch, by the functions that the hook calls."""
    stage = stage_of(folder / MACHINE)
    found, _ = ask(str(folder / MODEL), None, read_arguments((), stage.around.engine.version), stage)
    warned = [(Run("WARNING … ", "warn"), Run(line)) for line in say.warnings(found)]
    return [*warned, *((Run("INFO … ", "soft"), Run(line)) for line in say.lines(found))]


def _wrapped(lines: list[Line]) -> Iterator[Line]:
    """As a terminal breaks them: at its edge."""
    for line in lines:
        row: list[Run] = []
        room = COLUMNS
        for run in line:
            text = run.text
            while len(text) > room:
                yield (*row, Run(text[:room], run.style))
                text, row, room = text[room:], [], COLUMNS
            row.append(Run(text, run.style))
            room -= len(text)
        yield tuple(row)


def _svg(lines: list[Line]) -> str:
    width = 2 * MARGIN + COLUMNS * ADVANCE
    height = HEAD + len(lines) * LEADING + MARGIN
    about = f"{MODEL} on a described RTX 5090 with 31.00 GiB free. " + " ".join(
        "".join(run.text for run in line) for line in lines
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" '
        f'height="{height}" role="img" aria-labelledby="plan-title plan-desc">',
        f'<title id="plan-title">{TITLE}</title>',
        f'<desc id="plan-desc">{escape(" ".join(about.split()))}</desc>',
        f"<style>{_style()}</style>",
        f'<rect x="0.5" y="0.5" width="{width - 1:.0f}" height="{height - 1}" rx="10" class="paper"/>',
        *(
            f'<circle cx="{MARGIN + 6 + step * 18}" cy="20" r="5" class="soft" opacity="0.5"/>'
            for step in range(3)
        ),
        f'<text x="{width / 2:.1f}" y="25" text-anchor="middle" class="soft">{TITLE}</text>',
    ]
    for number, line in enumerate(lines):
        parts += _row(line, HEAD + (number + 1) * LEADING - 6)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _row(line: Line, y: int) -> Iterator[str]:
    column = 0
    for run in line:
        for word in re.finditer(r"\S+(?: \S+)*", run.text):
            x = MARGIN + (column + word.start()) * ADVANCE
            length = len(word[0]) * ADVANCE
            yield (
                f'<text x="{x:.1f}" y="{y}" textLength="{length:.1f}" lengthAdjust="spacingAndGlyphs" '
                f'class="{run.style}">{escape(word[0])}</text>'
            )
        column += len(run.text)


def _style() -> str:
    light, dark = ("".join(f".{name}{{{rule}}}" for name, rule in rules.items()) for rules in (_LIGHT, _DARK))
    fixed = f"text{{font-family:{FONTS};font-size:{SIZE}px}}.good{{font-weight:700}}"
    return f"{fixed}{light}@media (prefers-color-scheme:dark){{{dark}}}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Draw the picture of the README anew, or say that it has drifted."
    )
    parser.add_argument("--check", action="store_true", help="only compare; exit 1 where the file differs")
    made = picture()
    if not parser.parse_args().check:
        FILE.write_text(made, encoding="utf-8")
        return 0
    if FILE.is_file() and FILE.read_text(encoding="utf-8") == made:
        return 0
    print(f"{FILE.relative_to(ROOT)} has drifted. Type: python -m tools.picture", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
