# SPDX-License-Identifier: Apache-2.0
"""Attention, forward and backward, and small language models, implemented in C++.

    import numpy as np, qkv
    out, lse = qkv.attention(q, k, v, causal="top_left", return_lse=True)

qkv.torch is the drop-in replacement for PyTorch (import it separately: import qkv.torch). Documentation:
docs/python.md.
"""
from ._qkv import (Engine, KvCache, Model, Tokenizer, Trace, Trainer, __version__, attention, attention_backward,
                   attention_steps, devices, fast_bf16, head_effect, head_scores, inspect, kernel_set, num_threads,
                   preset_names, set_num_threads)
from ._results import (AttentionGradients, AttentionSteps, EvalReport, FileError, Generated, HeadEffect, HeadScores,
                       LensStage, QueueFullError, StepReport, TrainingDiverged)

__all__ = [
    "AttentionGradients", "AttentionSteps", "Engine", "EvalReport", "FileError", "Generated", "HeadEffect", "HeadScores",
    "KvCache", "LensStage", "Model", "QueueFullError", "StepReport", "Tokenizer", "Trace", "Trainer",
    "TrainingDiverged", "__version__", "attention", "attention_backward", "attention_steps", "devices", "fast_bf16",
    "head_effect", "head_scores", "inspect", "kernel_set", "num_threads", "preset_names", "set_num_threads",
]
