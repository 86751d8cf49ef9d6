"""Differences of `prove` that the server's release explains, because this runtime behaves as the newest one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from bls_notebook.checking.releases import changes
from bls_notebook.shipping.records import Unequal

# What a line of a difference contains if releases differ, and the change in releases.json.
_SIGNS = {
    r"Failed to check model readiness: .*Request for unknown model": "release-too-new:ready",
    r"sequence batching control '[^']*' data-type is": "release-too-new:correlation",
    r"unexpected number of string elements": "release-bug:text-control",
    r"an error only on the server: TypeError: __init__\(\): incompatible constructor": "release-too-old:parameters",
    r"'[\w.]*ResponseIterator' object has no attribute 'cancel'": "release-too-old:cancel",
}
_SIGNS_OF_CALLERS = {r"error code: gRPC status \w+ here, INTERNAL on the server": "release-too-old:error-code"}


def release_reasons(unequal: Iterable[Unequal], release: str, calls: bool = False) -> Iterator[str]:
    """Yield a sentence for each change of a later release that explains some of the differences.

    ``calls``: the model calls others, whose error it may pass on.
    """
    lines = [line for each in unequal for line in each.what]
    signs = _SIGNS | (_SIGNS_OF_CALLERS if calls else {})
    found = {rule for sign, rule in signs.items() if any(re.search(sign, line, re.DOTALL) for line in lines)}
    for rule in sorted(found):
        change = changes()[rule]
        at = change.since if rule.startswith("release-too-new") else change.until
        if release and release < at:
            yield f"the server's release {release} explains a difference: {change.name} changed in {at}; not the model"
