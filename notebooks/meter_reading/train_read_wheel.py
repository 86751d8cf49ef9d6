"""Train the network of `read_wheel` on the digits that come with scikit-learn, and save its weights."""

import sys
from pathlib import Path

import torch
from sklearn.datasets import load_digits

CODE = Path(__file__).parent / "models" / "read_wheel" / "1"
sys.path.insert(0, str(CODE))
from network import Wheel  # noqa: E402

torch.manual_seed(0)
digits = load_digits()
held_out = torch.arange(len(digits.images)) % 3 == 0
images = torch.tensor(digits.images)[:, None].float() / 16
labels = torch.tensor(digits.target)

network = Wheel()
optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
for _ in range(200):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(network(images[~held_out]), labels[~held_out]).backward()
    optimizer.step()

right = (network(images[held_out]).argmax(1) == labels[held_out]).float().mean()
print(f"right on pictures not seen before: {right:.1%}")
torch.save(network.state_dict(), CODE / "wheels.pt")
