"""A change as people read it."""

from __future__ import annotations

import time

from zenit_hub.maintain.publish.diff import unified


def test_a_changed_line_with_what_is_around_it() -> None:
    """Three lines on each side, counted from the top of the file."""
    old = "".join(f"{n}\n" for n in range(1, 21)).encode()
    assert unified("a.txt", old, old.replace(b"10\n", b"ten\n")).splitlines() == [
        "--- a/a.txt",
        "+++ b/a.txt",
        "@@ -7,7 +7,7 @@",
        *(" 7", " 8", " 9", "-10", "+ten", " 11", " 12", " 13"),
    ]


def test_changes_far_apart_are_counted_right() -> None:
    """The second one's line numbers, too."""
    old = "".join(f"{n}\n" for n in range(1, 101)).encode()
    new = old.replace(b"\n10\n", b"\nten\nand more\n").replace(b"\n90\n", b"\nninety\n")
    hunks = [line for line in unified("a.txt", old, new).splitlines() if line.startswith("@@")]
    assert hunks == ["@@ -7,7 +7,8 @@", "@@ -87,7 +88,7 @@"]


def test_a_new_file_is_told_by_its_size() -> None:
    """It stands on this machine already."""
    assert unified("a.json", None, b"12345") == "--- /dev/null\n+++ b/a.json\n(new, 5 bytes)\n"


def test_a_strangers_control_characters_do_not_reach_the_terminal() -> None:
    """Tabs stay, the carriage returns of a file that has them are not shown, the rest is escaped."""
    shown = unified("a.txt", b"\tx\r\n", "\ty\x1b[31m\u202e\r\n".encode())
    assert shown.splitlines()[3:5] == ["-\tx", "+\ty\\u001b[31m\\u202e"]
    assert "\x1b" not in shown


def test_a_minified_file_is_cut() -> None:
    """Its one line would fill the terminal; what changes is said in a sentence elsewhere."""
    old = b'{"a": 1, ' + b'"x": "' + b"y" * 100_000 + b'"}'
    assert len(unified("config.json", old, old.replace(b"1", b"2"))) < 1000


def test_a_long_file_is_compared_quickly() -> None:
    """A hundred thousand lines around a changed one."""
    old = b"".join(b"line %d\n" % n for n in range(100_000))
    began_s = time.monotonic()
    shown = unified("README.md", old, old.replace(b"line 50000\n", b"changed\n"))
    assert "@@ -49998,7 +49998,7 @@" in shown
    assert time.monotonic() - began_s < 2
