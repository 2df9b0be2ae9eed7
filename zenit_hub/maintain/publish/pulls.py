"""Our own pull request, found again: a second publication updates it instead of opening another."""

from __future__ import annotations

from zenit_hub.maintain.publish.hub import Hub, Message, Pull

_MARKER = "<!-- zenit-hub publish -->"


def marked(message: Message) -> Message:
    """The message of a pull request, by which :func:`own_pull` knows it.

    The Hub shows it as Markdown. In a block of code a device's name links nowhere and calls nobody; none of the
    lines is the end of one.
    """
    return Message(message.title, f"```text\n{message.body}\n```\n\n{_MARKER}")


def own_pull(hub: Hub, branch: str, author: str) -> Pull | None:
    """The newest open pull request of ``author`` to ``branch`` that a publication opened."""
    for number in hub.open_pulls(author):
        pull = hub.pull(number)
        if _MARKER in pull.body and pull.branch == branch.removeprefix("refs/heads/"):
            return pull
    return None
