"""Our own pull request, found again: a second publication updates it instead of opening another."""

from __future__ import annotations

from zenit_hub.maintain.publish.hub import Hub, Message, Pull

_MARKER = "<!-- zenit-hub publish -->"


def marked(message: Message) -> Message:
    """The message of a pull request, by which :func:`own_pull` knows it."""
    return Message(message.title, f"{message.body}\n\n{_MARKER}")


def own_pull(hub: Hub, branch: str, author: str) -> Pull | None:
    """The newest open pull request of ``author`` to ``branch`` that a publication opened."""
    for number in hub.open_pulls(author):
        pull = hub.pull(number)
        if _MARKER in pull.body and pull.branch == branch:
            return pull
    return None
