#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of `scripts/bench_peers.py --what train`: ANDREA's decoder (norms without gain after the embedding and
before each block, ReLU, learned positions, no biases, untied head) and consecutive AdamW steps. bf16 is autocast over
f32 parameters, as in PyTorch's documentation. Prints one JSON object."""
import argparse
import json
import statistics
import time

SIZES = {"andrea-12m": dict(layers=6, heads=12, width=384, ctx=1024, vocab=2305),
         "andrea-120m": dict(layers=12, heads=12, width=768, ctx=1024, vocab=8449)}


def make_model(torch, sizes):
    nn, functional = torch.nn, torch.nn.functional
    width, heads = sizes["width"], sizes["heads"]

    def norm(x):
        return functional.rms_norm(x, (width,), eps=1e-5)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = nn.Linear(width, 3 * width, bias=False)
            self.out = nn.Linear(width, width, bias=False)
            self.up = nn.Linear(width, 4 * width, bias=False)
            self.down = nn.Linear(4 * width, width, bias=False)

        def forward(self, x):
            batch, ctx, _ = x.shape
            q, k, v = self.qkv(norm(x)).view(batch, ctx, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
            read = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(read.transpose(1, 2).reshape(batch, ctx, width))
            return x + self.down(functional.relu(self.up(norm(x))))

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(sizes["vocab"], width)
            self.positions = nn.Embedding(sizes["ctx"], width)
            self.blocks = nn.ModuleList(Block() for _ in range(sizes["layers"]))
            self.head = nn.Linear(width, sizes["vocab"], bias=False)

        def forward(self, tokens, targets):
            x = norm(self.tokens(tokens) + self.positions.weight[:tokens.shape[1]])
            for block in self.blocks:
                x = block(x)
            logits = self.head(x)
            return functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())

    return Decoder()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="andrea-120m", choices=SIZES)
    parser.add_argument("--dtype", default="bf16", choices=["f32", "bf16"])
    parser.add_argument("--mode", default="eager", choices=["eager", "compiled"])
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    import torch
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    sizes = SIZES[arguments.preset]
    model = make_model(torch, sizes)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.99), weight_decay=0.1, fused=True)
    loss_of = torch.compile(model) if arguments.mode == "compiled" else model
    tokens = torch.randint(sizes["vocab"], (arguments.batch_size, sizes["ctx"] + 1))
    seconds = []
    for _ in range(arguments.steps + 1):
        start = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=arguments.dtype == "bf16"):
            loss = loss_of(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds.append(time.perf_counter() - start)
    step = statistics.median(seconds[1:])
    print(json.dumps({"version": torch.__version__, "parameters": sum(p.numel() for p in model.parameters()),
                      "tokens_per_s": arguments.batch_size * sizes["ctx"] / step}))


if __name__ == "__main__":
    main()
