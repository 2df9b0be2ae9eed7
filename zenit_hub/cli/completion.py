"""``zenit-hub completion``: a script for a shell, made from the parsers.

The script holds every word itself, so that a Tab starts no Python.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from zenit_hub.cli.output import Sink

if TYPE_CHECKING:
    from zenit_hub.cli.words import Argument, Command

_LETTERS = 72
"""Of a description beside a word; the help has all of it."""

_EPILOG = """exit status: 0 done; 2 usage

examples:
  eval "$(zenit-hub completion bash)"     # in this shell, or in ~/.bashrc
  zenit-hub completion zsh > "${fpath[1]}/_zenit-hub"
  zenit-hub completion fish > ~/.config/fish/completions/zenit-hub.fish"""


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.epilog = _EPILOG
    parser.add_argument("shell", choices=SCRIPTS, metavar="SHELL", help="bash, zsh or fish")


def run(options: argparse.Namespace, sink: Sink) -> int:
    """Prints the script."""
    from zenit_hub.cli.words import all_commands

    sink.data("\n".join(SCRIPTS[options.shell](all_commands())))
    return 0


def bash(commands: Iterable[Command]) -> Iterator[str]:
    """Words from lists; where there is none, the shell's own completion of files."""
    commands = list(commands)
    yield "# zenit-hub for bash: made by `zenit-hub completion bash`"
    yield "_zenit_hub() {"
    yield "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command= words= at"
    yield "    COMPREPLY=()"
    yield "    # --option=value comes as three words"
    yield "    if [[ $word == = ]]; then word=; elif [[ $before == = ]]; then before=${COMP_WORDS[COMP_CWORD-2]}; fi"
    yield "    for ((at = 1; at < COMP_CWORD; at++)); do"
    yield "        case ${COMP_WORDS[at]} in"
    yield "            --) return ;;"
    yield "            -*) ;;"
    yield "            *) command=${COMP_WORDS[at]}; break ;;"
    yield "        esac"
    yield "    done"
    yield "    for ((at = at + 1; at < COMP_CWORD; at++)); do"
    yield "        if [[ ${COMP_WORDS[at]} == -- ]]; then return; fi"
    yield "    done"
    yield "    case $command,$before in"
    for command in commands:
        valued = [option for option in command.options if option.value]
        for option in valued:
            if option.choices:
                yield f"        {_cases(command, [option])}) words='{' '.join(option.choices)}' ;;"
        free = [option for option in valued if not option.choices]
        if free:
            yield f"        {_cases(command, free)}) ;;"
    yield "        *)"
    yield "            case $command,$word in"
    yield f"                ,*) words='{' '.join(['--help', '--version', *(each.name for each in commands)])}' ;;"
    for command in commands:
        yield f"                {command.name},-*) words='{' '.join(_names(command.options))}' ;;"
        choices = [choice for operand in command.operands for choice in operand.choices]
        if choices:
            yield f"                {command.name},*) words='{' '.join(choices)}' ;;"
    yield "            esac ;;"
    yield "    esac"
    yield '    if [[ -n $words ]]; then COMPREPLY=($(compgen -W "$words" -- "$word")); fi'
    yield "}"
    yield "complete -o bashdefault -o default -F _zenit_hub zenit-hub"


def zsh(commands: Iterable[Command]) -> Iterator[str]:
    """For a file ``_zenit-hub`` in ``fpath``, and for ``eval``."""
    commands = list(commands)
    yield "#compdef zenit-hub"
    yield "# zenit-hub for zsh: made by `zenit-hub completion zsh`"
    yield "_zenit_hub() {"
    yield "    local context state state_descr line curcontext=$curcontext"
    yield "    typeset -A opt_args"
    yield "    local -a commands=("
    for command in commands:
        yield f"        {_quoted(f'{command.name}:{_short(command.summary)}')}"
    yield "    )"
    yield "    _arguments -C '(- *)--version[show the version and end]' '(- *)'{-h,--help}'[show help and end]' \\"
    yield "        '1:command:->command' '*::argument:->argument'"
    yield "    case $state in"
    yield "        command) _describe -t commands command commands ;;"
    yield "        argument)"
    yield "            case $words[1] in"
    for command in commands:
        yield f"                {command.name})"
        yield "                    _arguments -S \\"
        for option in command.options:
            for name in option.names:
                yield f"                        {_quoted(_zsh_option(name, option))} \\"
        operand = command.operands[0]
        yield f"                        {_quoted(f'*:{operand.value}:{_zsh_values(operand)}')}"
        yield "                    ;;"
    yield "            esac ;;"
    yield "    esac"
    yield "}"
    yield 'if [[ $funcstack[1] == _zenit-hub ]]; then _zenit_hub "$@"; else compdef _zenit_hub zenit-hub; fi'


def fish(commands: Iterable[Command]) -> Iterator[str]:
    """One line for each word."""
    yield "# zenit-hub for fish: made by `zenit-hub completion fish`"
    yield "complete -c zenit-hub -f"
    yield "complete -c zenit-hub -n __fish_use_subcommand -l version -d 'show the version and end'"
    yield "complete -c zenit-hub -s h -l help -d 'show help and end'"
    for command in commands:
        about = _fish_quoted(_short(command.summary))
        yield f"complete -c zenit-hub -n __fish_use_subcommand -a {command.name} -d {about}"
    for command in commands:
        here = f"complete -c zenit-hub -n '__fish_seen_subcommand_from {command.name}'"
        for operand in command.operands:
            yield f"{here} -F" if operand.files else f"{here} -a {_fish_quoted(' '.join(operand.choices))}"
        for option in command.options:
            if "--help" in option.names:
                continue
            spelled = " ".join(_fish_name(name) for name in option.names)
            values = " -r" if option.value else ""
            if option.choices:
                values += f" -a {_fish_quoted(' '.join(option.choices))}"
            elif option.files:
                values += " -F"
            yield f"{here} {spelled}{values} -d {_fish_quoted(_short(option.help))}"


SCRIPTS = {"bash": bash, "zsh": zsh, "fish": fish}


def _cases(command: Command, options: Iterable[Argument]) -> str:
    return "|".join(f"{command.name},{name}" for name in _names(options))


def _names(options: Iterable[Argument]) -> list[str]:
    return [name for option in options for name in option.names]


def _fish_name(name: str) -> str:
    return f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"


def _zsh_option(name: str, option: Argument) -> str:
    about = _short(option.help).replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]")
    value = f":{option.value}:{_zsh_values(option)}" if option.value else ""
    # More than once does no harm, and some may be.
    return f"*{name}[{about}]{value}"


def _zsh_values(argument: Argument) -> str:
    if argument.choices:
        return f"({' '.join(argument.choices)})"
    return "_files" if argument.files else " "


def _short(text: str) -> str:
    return textwrap.shorten(text, _LETTERS, placeholder=" …")


def _quoted(text: str) -> str:
    """In single quotes, into which bash and zsh do not look."""
    return "'" + text.replace("'", "'\\''") + "'"


def _fish_quoted(text: str) -> str:
    """The same for fish, to which a backslash means something there."""
    return _quoted(text.replace("\\", "\\\\"))
