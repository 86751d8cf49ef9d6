"""The pip packages that provide importable modules."""

from __future__ import annotations

import re

_PACKAGES = {
    "absl": "absl-py", "attr": "attrs", "bs4": "beautifulsoup4", "clip": "openai-clip",
    "Crypto": "pycryptodome", "cuda": "cuda-python", "cupy": "cupy-cuda12x", "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil", "docx": "python-docx", "dotenv": "python-dotenv", "faiss": "faiss-cpu",
    "fitz": "pymupdf", "git": "gitpython", "google.protobuf": "protobuf", "grpc": "grpcio",
    "hydra": "hydra-core", "jwt": "pyjwt", "magic": "python-magic", "MeCab": "mecab-python3",
    "mmcv": "mmcv-lite", "nemo": "nemo_toolkit", "nvidia.dali": "nvidia-dali-cuda120", "OpenSSL": "pyopenssl",
    "paddle": "paddlepaddle", "PIL": "pillow", "pkg_resources": "setuptools<81", "pywt": "PyWavelets",
    "pynvml": "nvidia-ml-py",
    "rapidjson": "python-rapidjson", "serial": "pyserial", "skimage": "scikit-image",
    "sklearn": "scikit-learn", "speech_recognition": "SpeechRecognition",
    "torch": "torch --index-url https://download.pytorch.org/whl/cpu", "tritonclient": "tritonclient[all]",
    "umap": "umap-learn", "whisper": "openai-whisper", "yaml": "PyYAML", "zmq": "pyzmq",
}  # fmt: skip


_STEMS = {"cv2": "opencv", "cupy": "cupy", "faiss": "faiss", "nvidia": "nvidia-"}
_NOT_HERE = frozenset({"tensorrt", "tensorrt_llm", "pycuda", "cudf", "flash_attn", "nvidia.dali", "deepspeed"})


def package_of(module: str) -> str:
    """Return the arguments of `pip install` for a module, given its dotted name."""
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        package = _PACKAGES.get(".".join(parts[:length]))
        if package is not None:
            return package
    return parts[0]


def installed_as(module: str) -> str:
    """Return the prefix of a module's package name in requirement files; builds of a package differ in the rest."""
    return _STEMS.get(module) or re.split(r"[\s<\[]", package_of(module))[0].lower()


def needs_gpu(module: str) -> bool:
    """Whether a module cannot be used without a CUDA GPU."""
    return module.partition(".")[0] in _NOT_HERE or module in _NOT_HERE
