"""The simulated and real GPUs of tests/devices."""

from __future__ import annotations

from tests.devices.conftest import device_kind, gpu, repo, simulated, two

__all__ = ["device_kind", "gpu", "repo", "simulated", "two"]
