"""``zenit-hub``: the parser, the one ``try`` and the table of exit statuses."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from zenit_hub import env
from zenit_hub.cli.options import settle
from zenit_hub.cli.output import Sink, sentence
from zenit_hub.cli.parser import COMMANDS, build_parser, commands_of
from zenit_hub.errors import UsageError, ZenitHubError
from zenit_hub.text import printable


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Exit status: 0 done, 1 an error, 2 usage, 3 a strict launch would refuse."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    # The Hub client tells of every retry; what comes of it is said once, by us.
    os.environ.setdefault(env.HUB_VERBOSITY, "error")
    sink = Sink()
    try:
        return _run(words, sink)
    except ZenitHubError as error:
        sink.error(sentence(error))
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
        sink.error(sentence(error))
        return 1
    except Exception as error:
        # Whatever was not foreseen: its kind, since its words may quote what must not be shown.
        sink.error(
            f"something went wrong in zenit-hub ({type(error).__name__}): please report it with the command"
        )
        return 1


def _run(words: list[str], sink: Sink) -> int:
    called = next((word for word in words if not word.startswith("-")), None)
    if called is not None and called not in COMMANDS:
        # A word behind an option may be its value, and a secret.
        got = printable(called) if words[0] == called else None
        raise UsageError("there is no such command", got=got, allowed=", ".join(COMMANDS))
    parser = build_parser(() if called is None else (called,))
    rest: list[str] = []
    if called is not None and commands_of(parser)[called].get_default("takes_rest") and "--" in words:
        words, rest = words[: words.index("--")], words[words.index("--") + 1 :]
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
    options.rest = rest
    sink.suit(settle(options))
    status: int = options.run(options, sink)
    sink.flush()
    return status


def _not_known(words: list[str], command: str | None) -> UsageError:
    see = f"zenit-hub {command} --help" if command else "zenit-hub --help"
    belongs = ""
    if command in ("plan", "export"):
        belongs = f"What belongs to vllm serve stands after --: zenit-hub {command} MODEL -- …. "
    return UsageError(
        "not an argument of this command",
        got=printable(" ".join(_without_values(words, belongs_to_vllm=bool(belongs)))),
        next_step=f"{belongs}See `{see}`.",
    )


def _without_values(words: list[str], *, belongs_to_vllm: bool) -> list[str]:
    """What was typed, without what may be a secret behind an option of ours with a slip of the finger."""
    from zenit_hub.redact import HIDDEN, redacted

    shown: list[str] = []
    hiding = False
    for word in redacted(words):
        flag, equals, _ = word.partition("=")
        if belongs_to_vllm or not (hiding or flag.startswith("-")):
            shown.append(word)
        elif flag.startswith("-"):
            shown.append(f"{flag}{equals and f'={HIDDEN}'}")
        else:
            shown.append(HIDDEN)
        hiding = flag.startswith("-") and not equals
    return shown


if __name__ == "__main__":
    sys.exit(main())
