"""Names of distributions: known or none."""

from __future__ import annotations

from importlib.metadata import packages_distributions

import pytest

from bls_notebook.repository.source import pip_packages
from bls_notebook.repository.source.pip_packages import distribution_of, install_advice


def plain(name: str) -> str:
    return name.strip("'").partition("<")[0].partition("[")[0].lower().replace("_", "-")


def test_the_table_agrees_with_the_metadata_of_installed_distributions() -> None:
    installed = {
        top: {name.lower().replace("_", "-") for name in names} for top, names in packages_distributions().items()
    }
    table = pip_packages._TABLE["distributions"]
    checked = {module for module in table if module in installed}
    assert {"PIL", "sklearn", "yaml", "numpy", "dateutil"} <= checked
    assert [module for module in checked if plain(table[module]) not in installed[module] and module != "cv2"] == []


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("cv2", "opencv-python-headless"), ("sklearn.svm", "scikit-learn"), ("google.protobuf.json_format", "protobuf"),
        ("google.nothing", ""), ("torch", "torch"), ("riva", ""), ("clip", ""), ("cupy", ""), ("utils", ""),
        ("pytest", "pytest"), ("bls_notebook", ""),
    ],
)  # fmt: skip
def test_a_distribution_is_known_or_empty(module: str, name: str) -> None:
    assert distribution_of(module) == name


def test_what_to_install() -> None:
    advice = install_advice(["torch", "riva", "PIL.Image", "cupy", "pkg_resources"], "%pip install")
    assert advice == (
        "`%pip install torch pillow 'setuptools<81'`; `riva`: the distribution is unknown; "
        "`cupy`: cupy-cuda12x or cupy-cuda13x, for the version of CUDA"
    )
