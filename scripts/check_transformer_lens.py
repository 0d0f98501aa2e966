# SPDX-License-Identifier: Apache-2.0
"""Compares the output of `qkv inspect --save` with TransformerLens' cache, for random GPT-2 and LLaMA models (GQA,
RoPE). Needs torch, transformers, tokenizers and transformer-lens 2.16.1.

    check_transformer_lens.py QKV
"""
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformer_lens import HookedTransformer, HookedTransformerConfig
from transformer_lens.pretrained.weight_conversions import convert_gpt2_weights, convert_llama_weights
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

TEXT = "the cat sat on the mat, and the dog ran"
NO_TOKENS = {"bos_token_id": None, "eos_token_id": None}


def save_byte_tokenizer(folder):
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(letters)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(f"{folder}/tokenizer.json")


def gpt2():
    model = GPT2LMHeadModel(GPT2Config(vocab_size=256, n_positions=64, n_embd=48, n_layer=3, n_head=4, attn_pdrop=0,
                                       embd_pdrop=0, resid_pdrop=0, **NO_TOKENS))
    return model, convert_gpt2_weights, {"d_mlp": 192, "act_fn": "gelu_new", "normalization_type": "LN"}


def llama():
    model = LlamaForCausalLM(LlamaConfig(vocab_size=256, hidden_size=48, intermediate_size=80, num_hidden_layers=3,
                                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
                                         rms_norm_eps=1e-5, tie_word_embeddings=False, **NO_TOKENS))
    return model, convert_llama_weights, {
        "d_mlp": 80, "act_fn": "silu", "normalization_type": "RMS", "n_key_value_heads": 2, "gated_mlp": True,
        "positional_embedding_type": "rotary", "rotary_dim": 12, "rotary_base": 10000, "rotary_adjacent_pairs": False,
        "final_rms": True, "original_architecture": "LlamaForCausalLM"}


def check(qkv, name, make):
    model, convert, options = make()
    model.eval()
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    config = HookedTransformerConfig(n_layers=3, d_model=48, n_ctx=64, d_head=12, n_heads=4, d_vocab=256, eps=1e-5, **options)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        save_byte_tokenizer(folder)
        subprocess.run([qkv, "inspect", "-m", folder, "-p", TEXT, "--save", f"{folder}/arrays"], check=True,
                       stdout=subprocess.DEVNULL)
        arrays = {p.name.removesuffix(".npy"): np.load(p) for p in pathlib.Path(folder, "arrays").glob("*.npy")}
    lens = HookedTransformer(config)
    lens.load_state_dict(convert(model, config), strict=False)
    with torch.no_grad():
        logits, cache = lens.run_with_cache(torch.tensor(arrays.pop("tokens")))
    worst = np.abs(arrays.pop("logits") - logits.numpy()).max()
    for key, ours in arrays.items():
        theirs = cache[key].numpy()
        assert ours.shape == theirs.shape, (key, ours.shape, theirs.shape)
        finite = np.isfinite(theirs)
        assert (ours[~finite] == theirs[~finite]).all(), key
        worst = max(worst, np.abs(ours[finite] - theirs[finite]).max() / max(1, np.abs(theirs[finite]).max()))
    missing = sorted({k.replace("blocks.0.", "") for k in cache if not k.startswith(("blocks.1.", "blocks.2.")) and k not in arrays})
    print(f"{name}: {len(arrays)} arrays, names and shapes equal, largest difference {worst:.1e}; "
          f"only in TransformerLens: {', '.join(missing) or 'nothing'}")
    assert worst < 1e-5


torch.manual_seed(0)
for case_name, case in [("gpt2", gpt2), ("llama", llama)]:
    check(sys.argv[1], case_name, case)
