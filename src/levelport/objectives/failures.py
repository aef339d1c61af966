"""What torch says when a loss cannot be differentiated (twice), as sentences that name the cause and the remedy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from levelport.objective import ObjectiveError

CALLED_BACKWARD = (
    "the loss called backward(). Return the loss itself, as in lambda: loss_fn(model(x), y): gradients and "
    "Hessian-vector products are derived from it."
)

SPARSE_GRADIENT = (
    "a parameter has a sparse gradient, which has no second derivative. Use nn.Embedding(..., sparse=False)."
)

IN_FORWARD = (
    (
        ("Inference tensors cannot be saved", "on inference tensor", "to inference tensor"),
        "the loss uses a tensor that was made inside torch.inference_mode(), which autograd cannot work with. Make the "
        "data and the model outside, or pass copies: tensor.clone() outside of inference mode.",
    ),
    (
        ("leaf Variable that requires grad is being used in an in-place", "is being modified inplace"),
        "the loss changes x in place. Let it work on a copy: x = x.clone().",
    ),
)
"""(what torch's message contains, the sentence), for the loss itself."""

IN_BACKWARD = (
    (
        ("donated buffers", "aot_autograd"),
        "the loss runs through torch.compile, whose backward pass cannot be differentiated again. Use the module as it "
        "was before compiling in this loss: compiled._orig_mod is the same module with the same parameters.",
    ),
    (
        ("incompatible with .grad()",),
        "the loss uses reentrant activation checkpointing, which hides derivatives. Pass use_reentrant=False to "
        "torch.utils.checkpoint.checkpoint.",
    ),
    (
        ("through the graph a second time", "saved intermediate values"),
        "the graph of the loss is gone: the loss calls backward() itself, or it uses a tensor that was computed before "
        "it and is freed. Compute everything from the parameters inside the loss and return it.",
    ),
    (
        ("modified by an inplace operation",),
        "the loss changes a tensor in place that its derivative needs. Replace operations such as x += 1 or x.relu_() "
        "by x = x + 1 or x.relu().",
    ),
    (("sparse",), SPARSE_GRADIENT),
    (
        ("_embedding_bag",),
        "nn.EmbeddingBag has no second derivative. Use nn.Embedding and reduce its output, for instance by "
        ".mean(dim=1): the weights are the same.",
    ),
    (
        ("scaled_dot_product", "flash_attention"),
        "the loss chooses a fused kernel of attention by itself, and that has no second derivative: {message} Leave "
        "the choice out, or make it torch.nn.attention.SDPBackend.MATH.",
    ),
    (
        ("not implemented", "differentiate twice", "does not support", "once_differentiable"),
        "an operation of the loss has no second derivative: {message} Replace it by one that has.",
    ),
)
"""The same for derivatives."""


@contextmanager
def explained(*, derivative: bool) -> Iterator[None]:
    """Turns torch's complaints about the loss, or about its derivatives, into errors with a remedy."""
    try:
        yield
    except ObjectiveError:
        raise
    except RuntimeError as error:
        message = str(error)
        for signs, sentence in (*IN_FORWARD, *(IN_BACKWARD if derivative else ())):
            if any(sign in message for sign in signs):
                raise ObjectiveError(sentence.format(message=message.splitlines()[0])) from error
        raise
