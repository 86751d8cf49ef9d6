"""Texts of errors, without what differs between two servers that say the same."""

from __future__ import annotations

import re

# What only one of the two entrances says: HTTP has "[request id: ...]" before some errors; a request from the
# notebook comes in as a model's calls do, and what is wrong with it is told as they are told.
PREFIX = re.compile(r"^(Model \S+ - Error when running inference: )?(\[request id: [^\]]*\] )?")
# Two errors that HTTP finds by itself, and words in its own way.
ENTRANCE = [
    (
        re.compile(
            r"Failed for execute the inference request. Model '(\S+)' is not ready.*"
            r"|Request for unknown model: '(\S+)'(?: version \d+)? is not found"
        ),
        "no such model",
    ),
    (
        re.compile(
            r"Model \S+ is using the decoupled.*|HTTP end point doesn't support models with decoupled.*"
        ),
        "decoupled",
    ),
]
# Both sides' own classes, in texts that name a class.
CLASS = re.compile(r"<class '[\w.]*\.(\w+)'>")
# A traceback with the files and lines of one side.
TRACEBACK = re.compile(r"\s*\bAt:\s.*", re.DOTALL)
# Which of the instances ran: 'name_0_0', and 'name' in newer servers.
INSTANCE = re.compile(r"_\d+(_\d+)?'")
FOLDER = re.compile(r"[^\s'\"]*/models/")
ADDRESS = re.compile(r"0x[0-9a-f]+")


def normal(text: str) -> str:
    """Return an error's text without what differs from run to run, and without HTTP's prefix."""
    text = TRACEBACK.sub("", PREFIX.sub("", text))
    for pattern, told in ENTRANCE:
        if pattern.fullmatch(text):
            return told
    text = CLASS.sub(r"<class '\1'>", text)
    text = ADDRESS.sub("0x", INSTANCE.sub("'", FOLDER.sub("", text)))
    return " ".join(text.split()).strip(" ;")
