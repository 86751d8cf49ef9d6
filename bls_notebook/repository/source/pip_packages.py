"""The distributions that provide importable modules.

Guarantee: never a guess, because `pip install` of a guessed name runs somebody else's code. A distribution is in the
table if its own documentation says that it provides the module, or known from the metadata of what is installed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.metadata import distribution, packages_distributions
from importlib.util import find_spec

_OTHER_NAMES = {
    "absl": "absl-py", "attr": "attrs", "bs4": "beautifulsoup4", "Crypto": "pycryptodome",
    "cv2": "opencv-python-headless", "dateutil": "python-dateutil", "docx": "python-docx",
    "dotenv": "python-dotenv", "flash_attn": "flash-attn", "g2p_en": "g2p-en", "git": "gitpython",
    "google.protobuf": "protobuf", "grpc": "grpcio", "huggingface_hub": "huggingface-hub", "hydra": "hydra-core",
    "jwt": "pyjwt", "Levenshtein": "Levenshtein", "magic": "python-magic", "MeCab": "mecab-python3",
    "nemo": "nemo_toolkit", "OpenSSL": "pyopenssl", "PIL": "pillow", "pkg_resources": "'setuptools<81'",
    "pynvml": "nvidia-ml-py", "pywt": "PyWavelets", "rapidjson": "python-rapidjson",
    "sentence_transformers": "sentence-transformers", "serial": "pyserial", "skimage": "scikit-image",
    "sklearn": "scikit-learn", "speech_recognition": "SpeechRecognition", "tritonclient": "'tritonclient[all]'",
    "umap": "umap-learn", "unidecode": "Unidecode", "whisper": "openai-whisper", "yaml": "PyYAML", "zmq": "pyzmq",
}  # fmt: skip
_SAME_NAMES = frozenset({
    "accelerate", "albumentations", "bitsandbytes", "boto3", "deepspeed", "diffusers", "einops", "fastapi", "ftfy",
    "jieba", "jiwer", "joblib", "librosa", "loguru", "matplotlib", "nltk", "numba", "numpy", "omegaconf", "onnx",
    "openai", "orjson", "pandas", "peft", "prometheus_client", "psutil", "pycuda", "pydantic", "pydub", "pypinyin",
    "redis", "regex", "requests", "safetensors", "scipy", "sentencepiece", "soundfile", "spacy", "tensorflow",
    "tensorrt", "tiktoken", "timm", "tokenizers", "torch", "torchaudio", "torchvision", "tqdm", "transformers",
    "ultralytics", "vllm", "xgboost",
})  # fmt: skip
_ALTERNATIVES = {  # the machine, or the code's use of a GPU, decides
    "cudf": "cudf-cu12 or cudf-cu13, for the version of CUDA", "cupy": "cupy-cuda12x or cupy-cuda13x, for the "
    "version of CUDA", "faiss": "faiss-cpu, or a build for CUDA", "mmcv": "mmcv, or mmcv-lite without CUDA",
    "nvidia.dali": "nvidia-dali-cuda120 or nvidia-dali-cuda130, for the version of CUDA",
    "onnxruntime": "onnxruntime, or onnxruntime-gpu for CUDA", "paddle": "paddlepaddle, or paddlepaddle-gpu for CUDA",
}  # fmt: skip
_STEMS = {"cv2": "opencv", "cupy": "cupy", "faiss": "faiss", "nvidia": "nvidia-", "paddle": "paddlepaddle"}
_NOT_HERE = frozenset({"tensorrt", "tensorrt_llm", "pycuda", "cudf", "flash_attn", "nvidia.dali", "deepspeed"})


def distribution_of(module: str) -> str:
    """Return the argument of `pip install` for a module, given its dotted name; empty if it is not certain."""
    parents = _with_parents(module)
    top = parents[-1]
    known = next((_OTHER_NAMES[name] for name in parents if name in _OTHER_NAMES), "")
    if known or top in _SAME_NAMES:
        return known or top
    if any(name in _ALTERNATIVES for name in parents):
        return ""
    installed = set(packages_distributions().get(top, ()))
    spec = find_spec(top) if len(installed) == 1 else None
    if spec is None or spec.origin is None:  # not installed, or a namespace of several distributions
        return ""
    (name,) = installed
    return "" if distribution(name).read_text("direct_url.json") else name  # else not from an index


def install_advice(modules: Iterable[str], command: str) -> str:
    """Return how to install modules: one `command` for the known distributions, and words for the others."""
    known = {module: distribution_of(module) for module in modules}
    names = dict.fromkeys(filter(None, known.values()))
    advice = [f"`{command} {' '.join(names)}`"] if names else []
    for module in (module for module, name in known.items() if not name):
        choice = next((_ALTERNATIVES[name] for name in _with_parents(module) if name in _ALTERNATIVES), "")
        advice.append(f"`{module}`: " + (choice or "the distribution is unknown"))
    return "; ".join(advice)


def _with_parents(module: str) -> list[str]:
    parts = module.split(".")
    return [".".join(parts[:length]) for length in range(len(parts), 0, -1)]


def installed_as(module: str) -> str:
    """Return the prefix of a module's package name in requirement files; builds of a package differ in the rest."""
    return _STEMS.get(module) or re.split(r"[<\[]", distribution_of(module).strip("'") or module)[0].lower()


def needs_gpu(module: str) -> bool:
    """Whether a module cannot be used without a CUDA GPU."""
    return module.partition(".")[0] in _NOT_HERE or module in _NOT_HERE
