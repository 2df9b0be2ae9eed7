"""A loopback hub: a small Hugging Face hub in memory that the real client takes for the real one.

    with LoopbackHub() as hub:
        token = hub.account("zenit")
        hub.create("zenit/altay", {"config.json": b"{}"})
        HfApi(endpoint=hub.url, token=token).model_info("zenit/altay")

``python -m tests.rigs.hub`` runs one in a process of its own.
"""

from .discussions import Discussion
from .faults import Fault
from .journal import Request
from .objects import blob_id, directory_files
from .refusals import Kind, Refusal
from .repository import Repository
from .server import LoopbackHub

__all__ = [
    "Discussion",
    "Fault",
    "Kind",
    "LoopbackHub",
    "Refusal",
    "Repository",
    "Request",
    "blob_id",
    "directory_files",
]
