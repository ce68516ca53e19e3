"""For all tests: what must be in the environment before anything imports Triton, which reads it once."""

import os

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
