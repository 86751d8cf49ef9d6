from __future__ import annotations

import dataclasses

COUNT = 0


class Inner:
    pass


@dataclasses.dataclass
class Thing:
    number: int = 3
    inner: Inner | None = None


def double(number):
    return 2 * number
