# SPDX-License-Identifier: Apache-2.0
"""Result and exception types."""
from __future__ import annotations

import typing


class AttentionGradients(typing.NamedTuple):
    """Result of attention_backward; None for gradients that were not requested."""

    dq: typing.Any
    dk: typing.Any
    dv: typing.Any
    dmask: typing.Any
    dsinks: typing.Any


class AttentionSteps(typing.NamedTuple):
    """Result of attention_steps, each [..., n_head, q_len, kv_len]."""

    scores: typing.Any
    softcapped: typing.Any
    masked: typing.Any
    probs: typing.Any


class Generated(typing.NamedTuple):
    """Result of Model.generate with details=True, and of a request of Engine."""

    text: typing.Any  # new text, or None for a prompt of ids
    tokens: typing.Any  # new token ids
    reason: str  # "max_tokens", "end_token", "context_full", "callback", "stop_string", "cancelled" or "failed"
    prompt_evaluated: int  # prompt tokens evaluated
    prompt_seconds: float
    generate_seconds: float
    prompt_cached: int = 0  # prompt tokens found in the prefix cache


class StepReport(typing.NamedTuple):
    """Result of one training step."""

    step: int
    loss: float  # nats per token, before the update
    grad_norm: float
    learning_rate: float
    tokens: int
    seconds: float
    skipped: bool  # NaN or infinity: nothing was updated
    spike: float


class EvalReport(typing.NamedTuple):
    """Result of an evaluation."""

    step: int
    loss: float  # nats per token
    bits_per_byte: float
    tokens: int
    best: bool


class LensStage(typing.NamedTuple):
    """Logit lens: predictions if the model ended at a layer."""

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
    """Effect of changing heads on the next-token prediction."""

    before: typing.Any  # [vocab_size] probabilities
    after: typing.Any
    kl: float  # nats


class TrainingDiverged(RuntimeError):
    """Too many consecutive steps had NaN or infinity."""

    def __init__(self, message: str, step: int = 0):
        super().__init__(message)
        self.step = step

    def __reduce__(self):
        return type(self), (*self.args, self.step)


class QueueFullError(RuntimeError):
    """The engine's queue is full: submit again later."""


class FileError(OSError):
    """A missing, unreadable, unwritable or malformed file."""

    def __init__(self, message: str, path: str = "", offset: int = -1):
        super().__init__(message)
        self.path = path
        self.offset = offset  # byte offset of the error; below 0: none

    def __reduce__(self):
        return type(self), (*self.args, self.path, self.offset)


#: NumPy, PyTorch or JAX arrays, or anything that exports DLPack or the buffer protocol.
Array = typing.Any
#: An int, a sequence of them or an array of 32- or 64-bit integers.
Integers = typing.Any
#: bytes, for classes that have a method of that name.
Bytes = bytes
