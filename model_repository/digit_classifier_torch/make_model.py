"""Make 1/model.pt: the regression of `digit_classifier` as a PyTorch module, saved as TorchScript.

    python make_model.py

Needs scikit-learn and torch. Triton reads neither this file nor anything else beside the version folders.
It trains like ../digit_classifier/1/model.py, so both models give the same answers.
"""

import io
import zipfile
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression


class DigitClassifier(torch.nn.Module):
    """One weighted sum per digit, turned into probabilities; the label is the index of the largest.

    Triton maps outputs by position: the first value that `forward` returns is the first output of
    config.pbtxt, unless outputs are named <name>__<index>.
    """

    def __init__(self, weights, intercepts):
        super().__init__()
        self.sums = torch.nn.Linear(64, 10)
        self.sums.weight.data = torch.from_numpy(weights.astype(np.float32))
        self.sums.bias.data = torch.from_numpy(intercepts.astype(np.float32))

    def forward(self, features):
        probabilities = self.sums(features).softmax(dim=1)
        label = probabilities.argmax(dim=1, keepdim=True).to(torch.int32)
        return probabilities, label


def train():
    digits = load_digits()
    features = digits.data / digits.data.max(axis=1, keepdims=True)
    taught = np.arange(len(features)) % 3 != 0
    model = LogisticRegression(C=1.0, solver="newton-cg", tol=1e-8)
    return model.fit(features[taught], digits.target[taught])


def module_of(model):
    return torch.jit.script(DigitClassifier(model.coef_, model.intercept_).eval())


def save(module, file):
    """Save the model without the paths of this machine, which TorchScript keeps for tracebacks."""
    buffer = io.BytesIO()
    torch.jit.save(module, buffer)
    with zipfile.ZipFile(buffer) as whole, zipfile.ZipFile(file, "w") as kept:
        for member in whole.infolist():
            if not member.filename.endswith(".debug_pkl"):
                kept.writestr(member, whole.read(member))


def main():
    save(module_of(train()), Path(__file__).parent / "1" / "model.pt")


if __name__ == "__main__":
    main()
