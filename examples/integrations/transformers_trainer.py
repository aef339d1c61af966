"""Transformers: a small random GPT-2, with dropout, teleports on two batches that are chosen once.

python examples/integrations/transformers_trainer.py
"""

from __future__ import annotations

import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from levelport import Every
from levelport.integrations.transformers import TeleportCallback
from levelport.solvers import Krylov


def main() -> None:
    torch.manual_seed(0)
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=50, n_positions=16, n_embd=16, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
    )
    texts = torch.randint(50, (64, 12))
    data = [{"input_ids": row, "labels": row} for row in texts]
    batches = [{"input_ids": part, "labels": part} for part in texts[:16].split(8)]
    teleports = TeleportCallback(
        Every(8),
        batches,
        solver=Krylov(max_hvps=10),
        on_teleport=lambda r: print(f"loss {r.value_after:.4f}, gradient x {r.gain:.2f}"),
    )
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder, max_steps=16, use_cpu=True, report_to=[], disable_tqdm=True, save_strategy="no"
        )
        Trainer(model=model, args=arguments, train_dataset=data, callbacks=[teleports]).train()


if __name__ == "__main__":
    main()
