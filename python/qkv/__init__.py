# SPDX-License-Identifier: Apache-2.0
"""Attention, forward and backward, and small language models, in C++.

    import numpy as np, qkv
    out, lse = qkv.attention(q, k, v, causal="top_left", return_lse=True)

qkv.torch has the drop-in for PyTorch (imported by itself: import qkv.torch). docs/python.md tells the rest.
"""
from ._qkv import __version__, attention, attention_backward, attention_steps, kernel_set, num_threads, set_num_threads
from ._results import AttentionGradients, AttentionSteps, FileError

__all__ = [
    "AttentionGradients", "AttentionSteps", "FileError", "__version__", "attention", "attention_backward",
    "attention_steps", "kernel_set", "num_threads", "set_num_threads",
]
