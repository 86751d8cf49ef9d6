from __future__ import annotations

import zlib
from base64 import b64decode
from typing import Any

import numpy as np
import pytest

from bls_notebook import pb_utils
from bls_notebook.pb_utils.dtypes import to_bits
from bls_notebook.records.responses import Figures, Media
from bls_notebook.repository.requests.tensor_summary import GLANCE, figures, layout_of, pictures, png, quick_summary


def pixels(media: Media) -> np.ndarray[Any, Any]:
    """Read a picture that `png` wrote."""
    data = b64decode(media.data)
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = (int.from_bytes(data[at : at + 4], "big") for at in (16, 20))
    channels = {0: 1, 2: 3, 6: 4}[data[25]]
    body = data[data.index(b"IDAT") + 4 : data.index(b"IEND") - 8]
    rows = np.frombuffer(zlib.decompress(body), np.uint8).reshape(height, 1 + width * channels)
    assert not rows[:, 0].any()
    return rows[:, 1:].reshape(height, width, channels)


def seen(array: Any) -> tuple[Media, ...]:
    return pictures(array, figures(array, GLANCE), 16, 64)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i1", "i8", "u1", "u8", "?"])
def test_figures_are_numpys(dtype: str) -> None:
    array = (np.random.default_rng(1).normal(size=(7, 33, 5)) * 40).astype(dtype)
    array.flat[0] = 0
    found: Any = figures(array, GLANCE, histogram=True)
    assert (found.least, found.greatest) == (array.min(), array.max())
    assert found.mean == pytest.approx(array.mean(dtype=float), abs=1e-9)
    assert sum(found.histogram) == array.size


def test_nan_and_infinity_are_counted_and_left_out() -> None:
    array = np.array([np.nan, 1, np.inf, 3, -np.inf, np.nan], np.float32)
    assert figures(array, GLANCE) == Figures(1.0, 3.0, 2.0, 2, 2)
    assert figures(array[:1], GLANCE) == Figures(nans=1)


def test_extreme_numbers_do_no_harm_and_a_huge_tensor_is_sampled() -> None:
    most = np.finfo(np.float64).max
    found: Any = figures(np.array([-most, most] * 20), GLANCE, histogram=True)
    big: Any = figures(np.array([0, 2**64 - 1], np.uint64), GLANCE)
    huge: Any = figures(np.zeros((3, 1000, 100), np.uint8), 50_000)
    assert (found.least, found.greatest, found.histogram) == (-most, most, ())
    assert (big.greatest, huge.every) == (2**64 - 1, 32)


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((28, 28), (-1, 0, 1, -1)), ((28, 20, 1), (-1, 0, 1, 2)), ((28, 20, 3), (-1, 0, 1, 2)),
        ((28, 20, 4), (-1, 0, 1, 2)), ((1, 28, 20), (-1, 1, 2, 0)), ((3, 28, 20), (-1, 1, 2, 0)),
        ((5, 28, 20), (0, 1, 2, -1)), ((5, 28, 20, 3), (0, 1, 2, 3)), ((5, 3, 28, 20), (0, 2, 3, 1)),
    ],
)  # fmt: skip
def test_shapes_of_images(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    way: Any = layout_of(shape)
    assert (way.batch, way.height, way.width, way.channel) == axes
    assert seen(np.zeros(shape))


@pytest.mark.parametrize("shape", [(), (100,), (4, 4), (8, 1000), (2, 3, 4, 28, 28), (5, 2, 28, 20), (0, 28, 28)])
def test_shapes_that_are_no_image(shape: tuple[int, ...]) -> None:
    assert seen(np.zeros(shape)) == ()


def test_a_picture_has_the_tensors_own_pixels() -> None:
    image = np.random.default_rng(0).integers(0, 256, (9, 11, 3), np.uint8)
    assert np.array_equal(pixels(seen(image)[0]), image)
    assert np.array_equal(pixels(seen(image.transpose(2, 0, 1))[0]), image)
    grey = pixels(seen(image[..., 0] / np.float32(255))[0])
    assert np.array_equal(grey[..., 0], image[..., 0])


def test_captions_tell_the_range_of_shades() -> None:
    ramp = np.linspace(0, 1, 80, dtype=np.float32).reshape(8, 10)
    said = [seen(array)[0].said for array in (ramp, ramp * 2 - 1, ramp * 255, ramp * 5 - 2, ramp > 0.5)]
    assert said == [
        "0 to 1 as black to white", "-1 to 1 as black to white", "0 to 255 as black to white",
        "stretched: -2 black, 3 white", "True is white",
    ]  # fmt: skip
    ramp[0, 0] = np.nan
    assert tuple(pixels(seen(ramp)[0])[0, 0]) == (213, 94, 0)


def test_large_pictures_and_batches_are_shown_in_part_and_that_is_told() -> None:
    found = seen(np.zeros((100, 200, 100), np.uint8))
    assert len(found) == 16
    assert pixels(found[0]).shape == (50, 25, 1)
    assert "at 1/4 of its size, the first 16 of 100" in found[0].said


def test_encoded_pictures_and_bfloat16_are_seen_too() -> None:
    data = png(np.zeros((8, 9, 3), np.uint8))
    found = quick_summary(pb_utils.Tensor("T", np.array([data, b"words", None], object)))["pictures"]
    assert [(each.kind, each.width, each.height) for each in found] == [("image/png", 9, 8)]
    tensor = pb_utils.Tensor._of("T", to_bits(np.arange(1, 101, dtype=np.float32)), "BF16")
    assert quick_summary(tensor)["figures"].greatest == 100


def test_small_tensors_and_those_on_a_gpu_have_no_summary(simulated_gpu: Any) -> None:
    assert quick_summary(pb_utils.Tensor("T", np.arange(12))) == {}
    array = simulated_gpu.zeros((64, 64))
    assert quick_summary(pb_utils.Tensor.from_dlpack("T", array)) == {}
