"""Thirty models of the `transformers` library, with random weights, each at the width of a published one.

The depth of those that repeat one block is cut to 4 blocks, which changes no kind of tensor and keeps runs short.
"""

from dataclasses import dataclass
from typing import Any

import torch

Tensor = torch.Tensor
WORDS, SOUND, IMAGE = (16, 512), (8, 80, 3000), (64, 3, 224, 224)  # so large that activations decide the peak
SHORT = {"num_hidden_layers": 4}


@dataclass(frozen=True)
class Model:
    """An architecture of the library: `head` is its class, `config` what differs from the library's default sizes.

    shape: of a batch. inputs: what forward calls the batch; more: what else it takes of words. mask: the argument for
    which of them attend to which, where without one the library would read the values of the batch.
    """

    head: str
    config: dict[str, Any]
    shape: tuple[int, ...] = WORDS
    inputs: str = "input_ids"
    more: tuple[str, ...] = ()
    mask: str = ""

    def make(self) -> torch.nn.Module:
        """With weights as they are allocated."""
        import transformers
        from transformers.initialization import no_init_weights

        kind = getattr(transformers, self.head)
        with no_init_weights():
            return kind(kind.config_class(use_cache=False, **self.config))

    def batch(self, device: torch.device, dtype: torch.dtype, size: int) -> dict[str, Tensor]:
        """Of `size` examples."""
        shape = (size, *self.shape[1:])
        words = torch.zeros(*shape[:2], dtype=torch.int64, device=device)
        x = words if self.inputs == "input_ids" else torch.zeros(*shape, dtype=dtype, device=device)
        arguments = {self.inputs: x} | {name: words[:, :64].contiguous() for name in self.more}
        if self.mask:
            steps = (words[:, :64] if self.more else words).shape[1]
            arguments[self.mask] = torch.ones(size, 1, steps, steps, dtype=torch.bool, device=device).tril()
        return arguments


def _words(head: str, **config: Any) -> Model:
    return Model(head, SHORT | config)


def _decoder(head: str, **config: Any) -> Model:
    return Model(head, SHORT | config, mask="attention_mask")


def _images(head: str, **config: Any) -> Model:
    return Model(head, config, IMAGE, "pixel_values")


_BASE = {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}
_1024 = {"hidden_size": 1024, "num_attention_heads": 16, "intermediate_size": 4096}
_TO_WORDS: dict[str, Any] = {"more": ("decoder_input_ids",), "mask": "decoder_attention_mask"}

MODELS = (
    _words("BertForMaskedLM"),
    _words("RobertaForMaskedLM"),
    Model("DistilBertForMaskedLM", {"n_layers": 4}),
    _words("AlbertForMaskedLM", **_BASE),
    _words("ElectraForPreTraining", embedding_size=768, **_BASE),
    _decoder("RoFormerForMaskedLM"),
    _words("MPNetForMaskedLM"),
    _decoder("SqueezeBertForMaskedLM"),
    _words("CamembertForMaskedLM"),
    Model("GPT2LMHeadModel", {"n_layer": 4}, mask="attention_mask"),
    _decoder("Starcoder2ForCausalLM", **_1024),
    _decoder("GPTNeoXForCausalLM", **_1024),
    Model("BloomForCausalLM", {"n_layer": 4, "hidden_size": 1024, "n_head": 16}),
    _decoder("LlamaForCausalLM", **_1024 | {"intermediate_size": 2816, "num_key_value_heads": 4}),
    _decoder("MistralForCausalLM", **_1024 | {"intermediate_size": 3584, "num_key_value_heads": 8}),
    _decoder("Qwen2ForCausalLM", **_1024 | {"hidden_size": 896, "num_attention_heads": 14, "num_key_value_heads": 2}),
    _decoder("GemmaForCausalLM", **_1024 | {"vocab_size": 32000, "num_key_value_heads": 1, "head_dim": 64}),
    _decoder("PhiForCausalLM", **_1024),
    Model("BartForConditionalGeneration", {"encoder_layers": 3, "decoder_layers": 3}, **_TO_WORDS),
    Model("WhisperForConditionalGeneration", {"encoder_layers": 3, "decoder_layers": 3}, SOUND, "input_features",
          **_TO_WORDS),
    _images("ViTForImageClassification", **SHORT),
    _images("BeitForImageClassification", **SHORT),
    _images("Dinov2ForImageClassification", **SHORT),
    _images("PvtV2ForImageClassification"),
    _images("Swinv2ForImageClassification"),
    _images("ConvNextForImageClassification"),
    _images("ConvNextV2ForImageClassification"),
    _images("ResNetForImageClassification"),
    _images("RegNetForImageClassification"),
    _images("SegformerForImageClassification"),
)  # fmt: skip
