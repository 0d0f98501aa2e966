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


class Generated(typing.NamedTuple):
    """What Model.generate returns with details=True, and what Engine tells at the end of a request."""

    text: typing.Any  # the new text, or None for a prompt of ids
    tokens: typing.Any  # the new ids
    reason: str  # "max_tokens", "end_token", "context_full", "callback", "stop_string", "cancelled" or "failed"
    prompt_evaluated: int  # tokens of the prompt that were evaluated
    prompt_seconds: float
    generate_seconds: float
    prompt_cached: int = 0  # tokens of the prompt that another request had evaluated


class StepReport(typing.NamedTuple):
    """What one step of a trainer was."""

    step: int
    loss: float  # nats a token, before the update
    grad_norm: float
    learning_rate: float
    tokens: int
    seconds: float
    skipped: bool  # NaN or infinity: nothing was changed
    spike: float


class EvalReport(typing.NamedTuple):
    """What an evaluation found."""

    step: int
    loss: float  # nats a token
    bits_per_byte: float
    tokens: int
    best: bool


class LensStage(typing.NamedTuple):
    """What the model would say if it stopped at a layer."""

    top_ids: typing.Any  # [ctx, top]
    top_probs: typing.Any  # [ctx, top]
    next_prob: typing.Any  # [ctx]
    last_prob: typing.Any  # [ctx]
    entropy: typing.Any  # [ctx], nats


class HeadScores(typing.NamedTuple):
    """How much a head behaves in known ways, 0 to 1 each."""

    layer: int
    head: int
    previous_token: float
    first_token: float
    duplicate_token: float
    induction: float


class HeadEffect(typing.NamedTuple):
    """What becomes of the next token when heads are changed."""

    before: typing.Any  # [vocab_size] probabilities
    after: typing.Any
    kl: float  # nats


class TrainingDiverged(RuntimeError):
    """Too many steps in a row had NaN or infinity."""

    def __init__(self, message: str, step: int = 0):
        super().__init__(message)
        self.step = step

    def __reduce__(self):
        return type(self), (*self.args, self.step)


class QueueFullError(RuntimeError):
    """An engine's queue is full: submit again later."""


class FileError(OSError):
    """A file that is missing, unreadable, unwritable or not what it claims to be."""

    def __init__(self, message: str, path: str = "", offset: int = -1):
        super().__init__(message)
        self.path = path
        self.offset = offset  # the byte to blame; below 0: none

    def __reduce__(self):
        return type(self), (*self.args, self.path, self.offset)


#: Arrays of NumPy, PyTorch or JAX, or whatever DLPack or the buffer protocol show.
Array = typing.Any
#: A whole number, a sequence of them or an array of 32 or 64 bits.
Integers = typing.Any
#: bytes, where a class has a method of that name.
Bytes = bytes
