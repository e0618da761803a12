"""PaddleNLP's Trainer and Auto classes for these models.

    from paddle_nezha.interop import register
    register()
    model = NeZhaForSequenceClassification.from_pretrained(folder, num_labels=2)  # or by an Auto class
    Trainer(model=model, tokenizer=NeZhaTokenizer.from_pretrained(folder), args=..., train_dataset=...).train()

`Trainer` writes whole checkpoints of PaddleNLP's own model classes alone (of others the bare parameters), and goes by
`isinstance`. So each class here gets a subclass that is PaddleNLP's too: the Auto classes open folders as those, and a
model that a Trainer is given becomes one. Read in, and tested with, PaddleNLP 3.0.0b4.

What remains PaddleNLP's own: a Trainer knows the labels of a question's span by
``TrainingArguments(label_names=["start_positions", "end_positions"])`` alone.
"""

import os
import sys
from importlib import import_module
from types import ModuleType
from typing import Any, Optional

from paddle_nezha.auto import MODEL_CLASSES
from paddle_nezha.config import NEZHA_PRETRAINED_INIT_CONFIGURATION, NeZhaConfig
from paddle_nezha.model import NeZhaPretrainedModel
from paddle_nezha.tokenizer import NeZhaTokenizer

_FLAG = "NeZha"  # what PaddleNLP's class names of this model begin with
_MODEL_TYPE = NeZhaConfig.model_type
# PaddleNLP's maps name a package below paddlenlp.transformers, and read classes from its module `modeling`.
_PACKAGE = "paddle_nezha"
_MODULES = (f"paddlenlp.transformers.{_PACKAGE}", f"paddlenlp.transformers.{_PACKAGE}.modeling")
# How PaddleNLP finds and reads files; here a folder says that itself.
_SEARCH = {"_from_auto", "convert_from_torch", "from_aistudio", "from_hf_hub", "low_cpu_mem_usage", "subfolder"}


def register() -> None:
    """Enters these models, their config and their tokenizer in PaddleNLP's Auto classes, in the place of PaddleNLP's
    own NeZha, and makes its Trainer take them. A second call changes nothing.

    PaddleNLP's own NeZha classes remain as they are, under their own import.

    Raises:
        ModuleNotFoundError: no PaddleNLP; the message says how to install it.
    """
    if _MODULES[0] in sys.modules:
        return
    try:
        import_module("paddlenlp")
    except ModuleNotFoundError as error:
        if error.name != "paddlenlp":
            raise
        raise ModuleNotFoundError(
            "register() enters these models in PaddleNLP, which is not installed: pip install --no-deps "
            "paddlenlp==3.0.0b4, after what requirements/oracles.txt of a checkout lists.",
            name="paddlenlp",
        ) from None
    base = import_module("paddlenlp.transformers").PretrainedModel
    classes = {kind: _in_paddlenlp(kind, base) for kind in MODEL_CLASSES.values()}
    _enter_models(classes)
    _enter_config_and_tokenizer()
    _enter_trainer(classes)


class _Opened:
    """`from_pretrained` as PaddleNLP's Auto classes call it."""

    @classmethod
    def from_pretrained(cls, folder: Any, **options: Any) -> Any:
        """As the class does it, with PaddleNLP's options for where files are and how they are read."""
        folder = os.path.join(folder, options["subfolder"]) if options.get("subfolder") else folder
        return super().from_pretrained(folder, **_without_search(options))  # type: ignore[misc]


class _Trained(_Opened):
    """A model of this package that is PaddleNLP's too."""

    @classmethod
    def from_pretrained(cls, folder: Any, *, config: Optional[NeZhaConfig] = None, **options: Any) -> Any:
        """Likewise; the settings of a `config` win over the folder's, as in PaddleNLP."""
        if config is not None:
            notes = {"model_type", *config.unread}
            options = {**{name: value for name, value in config.to_dict().items() if name not in notes}, **options}
        return super().from_pretrained(folder, **options)

    def save_pretrained(
        self,
        folder: Any,
        is_main_process: bool = True,
        state_dict: Optional[dict] = None,
        save_function: Any = None,
        variant: Optional[str] = None,
        weights: Optional[str] = None,
        **_: Any,
    ) -> None:
        """As the class does it; a Trainer, which gives a `save_function`, gets `model_state.pdparams`, since it resumes
        from that alone.

        Raises:
            ValueError: a part of a model, as tensor and pipeline parallelism and a sharded save write them.
        """
        if state_dict is not None or variant:
            raise ValueError(
                f"A NeZha is saved whole, but this asks for a part of it (variant={variant!r}): train with data "
                "parallelism, without tensor_parallel_degree, pipeline_parallel_degree and save_sharded_model."
            )
        if is_main_process:
            weights = weights or ("safetensors" if save_function is None else "pdparams")
            super().save_pretrained(folder, weights=weights)  # type: ignore[misc]


class _Config(NeZhaConfig):
    """The config as `AutoConfig` builds it and `AutoTokenizer` reads it."""

    pretrained_init_configuration = NEZHA_PRETRAINED_INIT_CONFIGURATION
    tokenizer_class = None  # no class of PaddleNLP's: whatever the registered one is

    @classmethod
    def from_dict(cls, raw: "dict[str, Any]", **overrides: Any) -> NeZhaConfig:
        return super().from_dict(raw, **_without_search(overrides))


def _without_search(options: "dict[str, Any]") -> "dict[str, Any]":
    return {name: value for name, value in options.items() if name not in _SEARCH}


def _in_paddlenlp(kind: "type[NeZhaPretrainedModel]", base: type) -> type:
    """The subclass of a model class that is a subclass of PaddleNLP's `PretrainedModel` too, under the same name, which
    a saved config repeats. PaddleNLP's own methods come last, so none of them replaces one of ours."""
    return type(base)(kind.__name__, (_Trained, kind, base), {"__module__": _MODULES[1], "__doc__": kind.__doc__})


def _enter_models(classes: "dict[type[NeZhaPretrainedModel], type]") -> None:
    for name in _MODULES:
        module = ModuleType(name, "NeZha of paddle_nezha, for PaddleNLP's Auto classes.")
        module.__dict__.update({kind.__name__: found for kind, found in classes.items()})
        module.__dict__["__all__"] = [kind.__name__ for kind in classes]
        sys.modules[name] = module
    auto = import_module("paddlenlp.transformers.auto.modeling")
    auto.MAPPING_NAMES[_FLAG] = _PACKAGE  # AutoModel reads it again when it is given a task
    for name in auto.__all__:
        names = getattr(getattr(auto, name), "_name_mapping", None) or {}
        if f"{_FLAG}Model_Import_Class" in names:
            names[names[f"{_FLAG}Model_Import_Class"]] = _PACKAGE


def _enter_config_and_tokenizer() -> None:
    configuration = import_module("paddlenlp.transformers.auto.configuration")
    configuration.AutoConfig.MAPPING_NAMES[_MODEL_TYPE] = [_Config]
    configuration.AutoConfig.name2class = None  # made from the former at the next use
    configuration.AutoConfig.register(_MODEL_TYPE, _Config, exist_ok=True)
    auto = import_module("paddlenlp.transformers.auto.tokenizer")
    tokenizer = type(NeZhaTokenizer.__name__, (_Opened, NeZhaTokenizer), {"__doc__": NeZhaTokenizer.__doc__})
    auto.TOKENIZER_MAPPING_NAMES.pop(_MODEL_TYPE)  # looked through before what is registered
    auto.AutoTokenizer.register(_Config, tokenizer, exist_ok=True)
    known = auto.AutoTokenizer._tokenizer_mapping
    for names in [names for names, kind in known.items() if kind.__name__ == NeZhaTokenizer.__name__]:
        known[names] = tokenizer


def _enter_trainer(classes: "dict[type[NeZhaPretrainedModel], type]") -> None:
    base: Any = import_module("paddlenlp.trainer.trainer_callback").TrainerCallback
    trainer = import_module("paddlenlp.trainer.trainer")

    class TakeNeZha(base):
        """Makes a model of this package that a Trainer is given PaddleNLP's too. Nothing in the model changes."""

        def on_init_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            if type(model) in classes:
                model.__class__ = classes[type(model)]
            if args.unified_checkpoint and type(model) in classes.values():
                model.config.tensor_parallel_degree = 1  # it asks the config, and writes it there

    trainer.DEFAULT_CALLBACKS.append(TakeNeZha)
