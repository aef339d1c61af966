"""Transformers: small random BERT, GPT-2, Llama; Trainer with dropout, checkpointing, resume bit for bit; PEFT."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed: make integrations")

import transformers as hf

from levelport import Every, Teleporter
from levelport.integrations.transformers import TeleportCallback
from levelport.solvers import Auto, Krylov

WORDS, LENGTH = 40, 8
resumes = pytest.mark.skipif(
    not hasattr(torch.compiler, "set_stance"), reason="Transformers loads checkpoints with torch 2.6 or later alone"
)


def gpt2(dropout: float = 0.0) -> Any:
    torch.manual_seed(0)
    config = hf.GPT2Config(
        vocab_size=WORDS,
        n_positions=16,
        n_embd=16,
        n_layer=2,
        n_head=2,
        resid_pdrop=dropout,
        embd_pdrop=dropout,
        attn_pdrop=dropout,
        bos_token_id=0,
        eos_token_id=0,
    )
    return hf.GPT2LMHeadModel(config)


def llama() -> Any:
    torch.manual_seed(0)
    return hf.LlamaForCausalLM(
        hf.LlamaConfig(
            vocab_size=WORDS,
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=16,
        )
    )


def bert() -> Any:
    torch.manual_seed(0)
    config = hf.BertConfig(
        vocab_size=WORDS,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=16,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return hf.BertForMaskedLM(config)


def tokens(samples: int = 8) -> torch.Tensor:
    return torch.randint(WORDS, (samples, LENGTH), generator=torch.Generator().manual_seed(1))


def batch(samples: int = 8) -> dict[str, torch.Tensor]:
    ids = tokens(samples)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}


@pytest.mark.parametrize("make", [bert, gpt2, llama])
def test_default_attention_teleports_as_eager_attention_does(make: Any) -> None:
    gains = []
    for implementation in ("sdpa", "eager"):
        model = make().double()  # in single precision ten products make 1e-3 of the last bits
        model.set_attn_implementation(implementation)
        teleporter = Teleporter(torch.optim.AdamW(model.parameters(), lr=1e-3), Every(1), solver=Auto(max_hvps=10))
        result = teleporter.maybe(lambda model=model: model(**batch()).loss)
        assert result is not None
        assert result.teleport.violation == 0.0
        gains.append(result.gain)
    assert gains[0] > 1.0
    assert gains[0] == pytest.approx(gains[1], rel=1e-3)


def train(callbacks: list[Any], path: Path, *, model: Any = None, resume: Any = None, **options: Any) -> Any:
    options.setdefault("max_steps", 8)
    options.setdefault("save_strategy", "no")
    data = [{"input_ids": row, "labels": row} for row in tokens(32)]
    arguments = hf.TrainingArguments(
        output_dir=str(path),
        per_device_train_batch_size=4,
        learning_rate=0.01,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        logging_strategy="no",
        seed=3,
        **options,
    )
    trainer = hf.Trainer(
        model=gpt2(0.1) if model is None else model,
        args=arguments,
        train_dataset=data,
        eval_dataset=data[:4],
        callbacks=callbacks,
    )
    trainer.train(resume_from_checkpoint=resume)
    return trainer


OPTIONS = {
    "plain": {},
    "accumulation": {"gradient_accumulation_steps": 2},
    "checkpointing": {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": False}},
    "checkpointing by default": {"gradient_checkpointing": True},
    "bf16": {"bf16": True},
    "clipping": {"max_grad_norm": 0.1},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_trainer_teleports_before_steps_without_counting_them(options: dict[str, Any], tmp_path: Path) -> None:
    found: list[Any] = []
    callback = TeleportCallback(Every(3, start=1), [batch()], solver=Auto(max_hvps=3), on_teleport=found.append)
    trainer = train([callback], tmp_path, **options)
    assert trainer.state.global_step == 8
    assert callback.teleporter is not None
    assert callback.teleporter.iteration == 8
    assert 1 <= len(found) <= 3  # a move that was undone is not tried again at once
    assert all(result.teleport.violation == 0.0 and result.gain >= 1.0 for result in found)
    assert any(result.gain > 1.0 for result in found)


@resumes
def test_training_resumes_bit_for_bit(tmp_path: Path) -> None:
    """Eight steps at once, and four and four: the parameters agree to the last bit, dropout included."""

    def run(steps: int, resume: Any = None) -> tuple[Any, TeleportCallback]:
        callback = TeleportCallback(Every(3, start=1), [batch()], solver=Krylov(max_hvps=3))
        trainer = train(
            [callback],
            tmp_path,
            resume=resume,
            max_steps=steps,
            save_strategy="steps",
            save_steps=4,
            lr_scheduler_type="constant",
        )
        return trainer.model, callback

    whole, counted = run(8)
    resumed, recounted = run(8, str(tmp_path / "checkpoint-4"))
    for (name, a), b in zip(whole.state_dict().items(), resumed.state_dict().values(), strict=True):
        assert torch.equal(a, b), name
    assert counted.teleporter is not None
    assert recounted.teleporter is not None
    assert counted.teleporter.state_dict()["spent"] == recounted.teleporter.state_dict()["spent"]


@resumes
def test_a_checkpoint_without_our_file_is_refused(tmp_path: Path) -> None:
    train([], tmp_path, max_steps=4, save_strategy="steps", save_steps=4)
    with pytest.raises(FileNotFoundError, match=r"levelport\.pt is not there"):
        train([TeleportCallback(Every(3), [batch()])], tmp_path, resume=str(tmp_path / "checkpoint-4"))


def test_hyperparameter_search_keeps_our_file_with_the_trial(tmp_path: Path) -> None:
    callback = TeleportCallback(Every(3), [batch()])
    arguments = SimpleNamespace(output_dir=str(tmp_path))
    state = SimpleNamespace(global_step=4, is_hyper_param_search=True, is_world_process_zero=True)
    for age, trial in enumerate(("run-0", "run-1")):
        folder = tmp_path / trial / "checkpoint-4"
        folder.mkdir(parents=True)
        (folder / "trainer_state.json").write_text("{}")
        os.utime(folder / "trainer_state.json", (1000 + age, 1000 + age))
        callback.on_save(arguments, state, None)
        assert (folder / "levelport.pt").exists()
    assert not (tmp_path / "checkpoint-4").exists()


def test_without_a_teleport_training_is_what_it_was_bit_for_bit(tmp_path: Path) -> None:
    plain = train([], tmp_path, max_steps=4).model
    watched = train([TeleportCallback(Every(1, start=100), [batch()])], tmp_path, max_steps=4).model
    for a, b in zip(plain.state_dict().values(), watched.state_dict().values(), strict=True):
        assert torch.equal(a, b)


def test_teleports_after_evaluation_see_training_mode(tmp_path: Path) -> None:
    modes: list[bool] = []

    def loss(model: Any, batch: Any) -> torch.Tensor:
        modes.append(model.training)
        out: torch.Tensor = model(**batch).loss
        return out

    callback = TeleportCallback(Every(2, start=1), [batch()], loss=loss, solver=Krylov(max_hvps=2))
    train([callback], tmp_path, max_steps=4, eval_strategy="steps", eval_steps=1)
    assert modes
    assert all(modes)


def test_batches_are_asked_for() -> None:
    with pytest.raises(ValueError, match="at least one batch"):
        TeleportCallback(Every(3))


def test_low_rank_adapters_teleport_alone(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft", reason="peft is not installed: make integrations")
    model = peft.get_peft_model(gpt2(), peft.LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True))
    frozen = {name: p.detach().clone() for name, p in model.named_parameters() if not p.requires_grad}
    found: list[Any] = []
    train(
        [TeleportCallback(Every(3, start=2), [batch()], solver=Auto(max_hvps=4), on_teleport=found.append)],
        tmp_path,
        model=model,
    )
    assert 1 <= len(found) <= 2
    assert max(result.gain for result in found) > 1.0
    assert all(torch.equal(frozen[name], p) for name, p in model.named_parameters() if name in frozen)
