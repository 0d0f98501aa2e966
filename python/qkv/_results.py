# SPDX-License-Identifier: Apache-2.0
"""What functions return and throw, beside arrays."""
from __future__ import annotations

import typing


class AttentionGradients(typing.NamedTuple):
    """What attention_backward returns; None is a gradient that was not wanted."""

    dq: typing.Any
    dk: typing.Any
    dv: typing.Any
    dmask: typing.Any
    dsinks: typing.Any


class AttentionSteps(typing.NamedTuple):
    """What attention_steps returns, each [..., n_head, q_len, kv_len]."""

    scores: typing.Any
    softcapped: typing.Any
    masked: typing.Any
    probs: typing.Any


class FileError(OSError):
    """A file that is missing, unreadable, unwritable or not what it claims to be."""

    def __init__(self, message: str, path: str = "", offset: int = -1):
        super().__init__(message)
        self.path = path
        self.offset = offset  # the byte to blame; below 0: none


#: Arrays of NumPy, PyTorch or JAX, or whatever DLPack or the buffer protocol show.
Array = typing.Any
#: A whole number, a sequence of them or an array of 32 or 64 bits.
Integers = typing.Any
