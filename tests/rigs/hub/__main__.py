"""``python -m tests.rigs.hub``: a loopback hub in a process of its own, until it is interrupted."""

from __future__ import annotations

import argparse
import signal
import threading
from pathlib import Path

from . import LoopbackHub, directory_files


def main() -> None:
    """Print the URL on a line of its own, and serve."""
    parser = argparse.ArgumentParser(prog="python -m tests.rigs.hub", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument(
        "--repo",
        action="append",
        default=[],
        metavar="OWNER/NAME=DIRECTORY",
        help="serve a directory as a repo",
    )
    parser.add_argument(
        "--token", action="append", default=[], metavar="USER=TOKEN", help="let a user in with write access"
    )
    parser.add_argument("--redirects", action="store_true", help="put files behind a relative 307")
    arguments = parser.parse_args()
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    with LoopbackHub(port=arguments.port, redirects=arguments.redirects) as hub:
        for repo_id, _, directory in (each.partition("=") for each in arguments.repo):
            hub.create(repo_id, directory_files(Path(directory)))
        for user, _, token in (each.partition("=") for each in arguments.token):
            hub.account(user, token=token)
        print(hub.url, flush=True)
        ended.wait()


if __name__ == "__main__":
    main()
