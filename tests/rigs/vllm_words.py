"""``vllm serve`` of a page: its words are read as vLLM reads them, and what it would start with is said in one line."""

from __future__ import annotations

import os
import sys

from zenit_hub.arguments import read_arguments
from zenit_hub.compat import NEWEST_SUPPORTED
from zenit_hub.errors import UsageError

SHOWN = ("ZENIT_SERVING_", "PYTORCH_")


def main() -> int:
    command, *words = sys.argv[1:]
    if command != "serve":
        print(f"vllm {command}: only serve is known here", file=sys.stderr)
        return 2
    model = [] if words[:1] == [] or words[0].startswith("-") else [words.pop(0)]
    try:
        read = read_arguments(words, NEWEST_SUPPORTED)
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2
    if read.unknown:
        print(f"vllm {NEWEST_SUPPORTED} knows no {' '.join(read.unknown)}", file=sys.stderr)
        return 2
    variables = [f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith(SHOWN)]
    print(" ".join([*variables, "vllm", "serve", *model, *words]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
