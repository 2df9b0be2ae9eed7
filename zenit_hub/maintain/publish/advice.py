"""What a person can do about a failure that no other try mends: what happened, and what to type."""

from __future__ import annotations

from dataclasses import dataclass

from zenit_hub.maintain.publish.hub import Hub
from zenit_hub.maintain.publish.outcomes import HubFailure, PublishingFailed, Trouble
from zenit_hub.text import printable


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked for. ``command``: what was typed, without a token, for the sentence about the next step."""

    branch: str = "main"
    create_pr: bool = False
    dry_run: bool = False
    force: bool = False
    command: str = "zenit-hub publish MEASUREMENT --repo ORG/MODEL"


def explained(failure: HubFailure, hub: Hub, asked: Asked, tries: int) -> PublishingFailed:
    """The failure as an error that ends the command."""
    what, then = _words(failure, hub, asked)
    said = f" (the Hub: {failure.said})" if failure.said and failure.said not in what else ""
    return PublishingFailed(f"{what}{said}", next_step=then, trouble=failure.trouble, tries=tries)


def _words(failure: HubFailure, hub: Hub, asked: Asked) -> tuple[str, str]:
    repo, trouble = printable(hub.repo), failure.trouble
    if trouble is Trouble.UNAUTHORIZED:
        return _who_asks(hub)
    if trouble is Trouble.FORBIDDEN:
        return _not_allowed(repo, asked)
    if trouble is Trouble.GATED:
        return (
            f"access to {repo} is restricted, and this token has none",
            f"Ask for it at {printable(hub.page)}, then run the same command again.",
        )
    if trouble is Trouble.NO_REPO:
        return (
            f"the Hub has no model repo {repo}, or this token may not see it",
            f"Check the id. Nothing here creates a repo: `hf repos create {repo}` does.",
        )
    if trouble is Trouble.NO_REVISION:
        return (
            f"{repo} has no branch {printable(asked.branch)}",
            "Name one that is there with --revision, or leave it out for main.",
        )
    if trouble is Trouble.BAD_METADATA:
        return (
            f"the Hub does not accept the metadata at the top of {repo}'s README.md, which publish leaves as it is",
            "Mend the YAML between the two --- lines, then run the same command again.",
        )
    if trouble is Trouble.CLIENT:
        return (
            f"the Hub's client failed with {failure.said or 'an error'}",
            "Check HF_ENDPOINT, the network, the proxy variables, the token and the Hub's cache (HF_HOME).",
        )
    status = f" ({failure.status})" if failure.status is not None else ""
    return (
        f"the Hub refuses the request{status}",
        f"Nothing was changed. Look at what would be sent: {asked.command} --dry-run",
    )


def _who_asks(hub: Hub) -> tuple[str, str]:
    log_in = "Log in with `hf auth login`, or give a token with write access in HF_TOKEN or with --token."
    if hub.has_token:
        return "the Hub does not accept the token (401): it is wrong, or no longer valid", log_in
    return "the Hub asks who you are (401), and there is no token", log_in


def _not_allowed(repo: str, asked: Asked) -> tuple[str, str]:
    if asked.create_pr:
        return (
            f"this token may not open pull requests in {repo} (403)",
            "Use a token with write access: `hf auth login`, HF_TOKEN or --token.",
        )
    if asked.branch.startswith("refs/pr/"):
        return (
            f"this token may not write to {asked.branch} of {repo} (403)",
            "Only its author may, and who may write to the repo. For one of your own: --create-pr, without --revision.",
        )
    return (
        f"this token may not write to {repo} (403)",
        f"Propose it as a pull request instead: {asked.command} --create-pr",
    )
