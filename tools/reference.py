"""Write the reference in ``.docs/reference/`` anew: ``python -m tools.reference``, ``--check`` in CI.

Everything in it comes from where the program itself has it: the parsers, the schema, ``env.py``, the table of
warnings, docstrings. ``tests/test_reference.py`` fails where a page says something else.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from pathlib import Path

from tools import reference_pages

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".docs" / "reference"
MADE = "<!-- made by `python -m tools.reference`: edit the source, not this page -->"


def pages() -> dict[str, str]:
    """File name → text."""
    made = {
        "cli.md": reference_pages.cli(),
        "profile-keys.md": reference_pages.profile_keys(),
        "environment.md": reference_pages.environment(),
        "warnings.md": reference_pages.warnings(),
        "python.md": reference_pages.python(),
    }
    return {name: f"{MADE}\n\n{text.rstrip()}\n" for name, text in made.items()}


def drift(folder: Path) -> list[str]:
    """Where the pages in ``folder`` differ from what they should be, as a diff."""
    wanted = pages()
    lines: list[str] = []
    for name in sorted({*wanted, *(file.name for file in folder.glob("*.md"))}):
        file = folder / name
        is_ = file.read_text(encoding="utf-8") if file.is_file() else ""
        lines += difflib.unified_diff(
            is_.splitlines(), wanted.get(name, "").splitlines(), name, f"{name}, made now", lineterm="", n=1
        )
    return lines


def write(folder: Path) -> None:
    """All pages, and no others."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = pages()
    for file in folder.glob("*.md"):
        if file.name not in wanted:
            file.unlink()
    for name, text in wanted.items():
        (folder / name).write_text(text, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the reference anew, or say where it has drifted.")
    parser.add_argument("--check", action="store_true", help="only compare; exit 1 where a page differs")
    if not parser.parse_args().check:
        write(FOLDER)
        return 0
    found = drift(FOLDER)
    if found:
        print("\n".join(found))
        print("The reference has drifted. Type: python -m tools.reference", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
