from __future__ import annotations

import asyncio

from bls_notebook.profiling.stack_sampler import _waiting


def test_who_gathers_waits_where_what_is_gathered_does() -> None:
    async def main() -> None:
        lock = asyncio.Lock()

        async def locked() -> None:
            async with lock:
                pass

        async def gathers() -> None:
            await asyncio.gather(locked(), asyncio.create_task(locked()))

        await lock.acquire()
        task = asyncio.create_task(gathers())
        for _ in range(4):
            await asyncio.sleep(0)
        standing = list(_waiting(task))
        assert [one.get_coro().__name__ for one in standing] == ["locked", "locked"]  # type: ignore[union-attr]
        lock.release()
        await task

    asyncio.run(main())
