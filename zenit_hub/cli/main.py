"""``zenit-hub``: the parser, the one ``try`` and the table of exit statuses."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from zenit_hub.cli.output import Sink
from zenit_hub.errors import UsageError, ZenitHubError
from zenit_hub.text import printable

COMMANDS = {
    "card": "the part of a model card that says which window which GPU gets, made from the config",
    "init": "propose a first section of serving profiles for a model that carries none",
    "measure": "find what each profile needs free, by running the engine on this machine",
    "plan": "what `vllm serve` would do with a model on this machine, without starting it",
    "publish": "put measurements into a model repo on the Hub: one commit, or one pull request",
    "validate": "check the serving profiles in a config.json, a model folder or a Hub repo",
}
"""Command → one line of help. The module of the same name is imported only when it is called."""

_EPILOG = """examples:
  zenit-hub plan org/model
  zenit-hub plan ./model -- --max-model-len 256k
  zenit-hub validate ./model/config.json"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Exit status: 0 done, 1 an error, 2 usage, 3 a strict launch would refuse."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    # The Hub client tells of every retry; what comes of it is said once, by us.
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")
    sink = Sink()
    try:
        return _run(words, sink)
    except ZenitHubError as error:
        sink.error(str(error))
        return error.exit_status
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except MemoryError:
        sink.error("there is not enough memory for this")
        return 1
    except OSError as error:
        sink.error(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}")
        return 1
    except Exception as error:
        # Whatever was not foreseen: its kind, since its words may quote what must not be shown.
        sink.error(
            f"something went wrong in zenit-hub ({type(error).__name__}): please report it with the command"
        )
        return 1


def _run(words: list[str], sink: Sink) -> int:
    parser = argparse.ArgumentParser(
        prog="zenit-hub",
        description="Serving profiles that a Hugging Face model repo carries itself.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="show the version and end")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    called = next((word for word in words if not word.startswith("-")), None)
    rest: list[str] = []
    if called is not None and called not in COMMANDS:
        # A word behind an option may be its value, and a secret.
        got = printable(called) if words[0] == called else None
        raise UsageError("there is no such command", got=got, allowed=", ".join(COMMANDS))
    for name, summary in COMMANDS.items():
        command = commands.add_parser(
            name, help=summary, description=summary, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        if name == called:
            module = importlib.import_module(f"zenit_hub.cli.{name}")
            module.configure(command)
            if getattr(module, "TAKES_REST", False) and "--" in words:
                words, rest = words[: words.index("--")], words[words.index("--") + 1 :]
            command.set_defaults(run=module.run, rest=rest)
    options, unknown = parser.parse_known_args(words)
    if unknown:
        raise _not_known(unknown, options.command)
    if options.version:
        # Looking through the installed packages costs more than most commands.
        from importlib.metadata import version

        sink.data(f"zenit-hub {version('zenit-hub')}")
        return 0
    if options.command is None:
        parser.print_help()
        return 0
    status: int = options.run(options, sink)
    sink.flush()
    return status


def _not_known(words: list[str], command: str | None) -> UsageError:
    from zenit_hub.redact import redacted

    see = f"zenit-hub {command} --help" if command else "zenit-hub --help"
    belongs = (
        "What belongs to vllm serve stands after --: zenit-hub plan MODEL -- …. " if command == "plan" else ""
    )
    return UsageError(
        "not an argument of this command",
        got=printable(" ".join(redacted(words))),
        next_step=f"{belongs}See `{see}`.",
    )


if __name__ == "__main__":
    sys.exit(main())
