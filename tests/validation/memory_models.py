"""Forty-eight models of public libraries, with random weights, each at the width of a published one.

The depth of those of transformers that repeat one block is cut to 4 blocks, which changes no kind of tensor and keeps
runs short. Those after the first thirty were chosen by their kinds of layers before any of them was counted.
"""

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch

Tensor = torch.Tensor
WORDS, SOUND, IMAGE = (16, 512), (8, 80, 3000), (64, 3, 224, 224)  # so large that activations decide the peak
SHORT = {"num_hidden_layers": 4}


@dataclass(frozen=True)
class Model:
    """An architecture of a library: `head` is its class or name, `config` what differs from the library's own sizes.

    library: transformers, diffusers, timm or torchvision.
    shape: of a batch. inputs: what forward calls the batch; more: what else it takes of words. mask: the argument for
    which of them attend to which, where without one the library would read the values of the batch.
    """

    head: str
    config: dict[str, Any]
    shape: tuple[int, ...] = WORDS
    inputs: str = "input_ids"
    more: tuple[str, ...] = ()
    mask: str = ""
    library: str = "transformers"

    def make(self) -> torch.nn.Module:
        """Make the network, with weights as they are allocated."""
        if find_spec("torchvision"):  # the other libraries import it where it is
            load_torchvision()
        if self.library == "timm":
            import timm

            return timm.create_model(self.head, **self.config)
        if self.library == "torchvision":
            return load_torchvision().models.get_model(self.head, **self.config)
        if self.library == "diffusers":
            import diffusers

            return getattr(diffusers, self.head)(**self.config)
        import transformers
        from transformers.initialization import no_init_weights

        kind = getattr(transformers, self.head)
        with no_init_weights():
            return kind(kind.config_class(use_cache=False, **self.config))

    def batch(self, device: torch.device, dtype: torch.dtype, size: int) -> dict[str, Tensor]:
        """Make a batch of `size` examples."""
        shape = (size, *self.shape[1:])
        if self.library != "transformers":
            x = torch.zeros(shape, dtype=dtype, device=device)
            if not self.inputs:
                return {"x": x}
            times = torch.zeros(size, dtype=torch.int64, device=device)
            text = torch.zeros(size, 77, 768, dtype=dtype, device=device)
            given = {"sample": x, "hidden_states": x, "timestep": times, "class_labels": times}
            given["encoder_hidden_states"] = text
            return {name: given[name] for name in (self.inputs, *self.more)}
        words = torch.zeros(*shape[:2], dtype=torch.int64, device=device)
        x = words if self.inputs == "input_ids" else torch.zeros(*shape, dtype=dtype, device=device)
        arguments = {self.inputs: x} | {name: words[:, :64].contiguous() for name in self.more}
        if self.mask:
            steps = (words[:, :64] if self.more else words).shape[1]
            arguments[self.mask] = torch.ones(size, 1, steps, steps, dtype=torch.bool, device=device).tril()
        return arguments

    def output(self, net: torch.nn.Module, batch: dict[str, Tensor]) -> Tensor:
        """Return what the network makes of a batch."""
        if "x" in batch:
            return net(batch["x"])
        out = net(**batch)
        return out.logits if self.library == "transformers" else out.sample


def load_torchvision() -> Any:
    """Import torchvision, also where its compiled operations do not fit this torch: no model here calls them."""
    try:
        import torchvision
    except RuntimeError:
        for name in ("nms", "qnms"):  # what it describes as it is imported
            torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        import torchvision

    return torchvision


def _words(head: str, **config: Any) -> Model:
    return Model(head, SHORT | config)


def _decoder(head: str, **config: Any) -> Model:
    return Model(head, SHORT | config, mask="attention_mask")


def _images(head: str, **config: Any) -> Model:
    return Model(head, config, IMAGE, "pixel_values")


def _of(library: str, head: str) -> Model:
    return Model(head, {}, (32, 3, 224, 224), "", library=library)


_BASE = {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}
_1024 = {"hidden_size": 1024, "num_attention_heads": 16, "intermediate_size": 4096}
_FROM_2 = {"max_position_embeddings": 514}  # the first of 512 words has position 2
_TO_WORDS: dict[str, Any] = {"more": ("decoder_input_ids",), "mask": "decoder_attention_mask"}

MODELS = (
    _words("BertForMaskedLM"),
    _words("RobertaForMaskedLM", **_FROM_2),
    Model("DistilBertForMaskedLM", {"n_layers": 4}),
    _words("AlbertForMaskedLM", **_BASE),
    _words("ElectraForPreTraining", embedding_size=768, **_BASE),
    _decoder("RoFormerForMaskedLM"),
    _words("MPNetForMaskedLM", **_FROM_2),
    _decoder("SqueezeBertForMaskedLM"),
    _words("CamembertForMaskedLM", **_FROM_2),
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
    _decoder("Qwen3ForCausalLM", **_1024 | {"num_key_value_heads": 8, "vocab_size": 32000}),
    _decoder("Olmo2ForCausalLM", **_1024 | {"num_key_value_heads": 16, "vocab_size": 32000}),
    Model("T5ForConditionalGeneration", {"num_layers": 3, "num_decoder_layers": 3}, **_TO_WORDS),
    Model("UNet2DModel", {"sample_size": 64}, (16, 3, 64, 64), "sample", ("timestep",), library="diffusers"),
    Model("UNet2DConditionModel", {"sample_size": 64, "cross_attention_dim": 768, "layers_per_block": 1},
          (4, 4, 64, 64), "sample", ("timestep", "encoder_hidden_states"), library="diffusers"),
    Model("AutoencoderKL", {"block_out_channels": (128, 256), "down_block_types": ("DownEncoderBlock2D",) * 2,
          "up_block_types": ("UpDecoderBlock2D",) * 2}, (8, 3, 64, 64), "sample", library="diffusers"),
    Model("DiTTransformer2DModel", {"num_layers": 4}, (16, 4, 32, 32), "hidden_states",
          ("timestep", "class_labels"), library="diffusers"),
    _of("timm", "efficientnet_b0"),
    _of("timm", "mobilenetv3_large_100"),
    _of("timm", "vit_base_patch16_224"),
    _of("timm", "eva02_tiny_patch14_224"),
    _of("timm", "mixer_b16_224"),
    _of("timm", "coatnet_0_rw_224"),
    _of("timm", "densenet121"),
    _of("timm", "resnext50_32x4d"),
    _of("torchvision", "resnet50"),
    _of("torchvision", "vgg16_bn"),
    _of("torchvision", "shufflenet_v2_x1_0"),
)  # fmt: skip
