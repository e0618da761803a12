"""Writes the TensorFlow checkpoints beside this file: `python make_sample.py`, with tensorflow-cpu==2.21.0.

The tests import `bert`, `slots`, `partitioned` and `others` from here, which need NumPy alone.
"""

import os
import sys
import zlib
from pathlib import Path

import numpy as np

HIDDEN, INNER, VOCABULARY, LAYERS = 16, 19, 31, 2  # small and odd, but for the square matrices
STEP = 90
OPTIMIZER = {"global_step": np.int64(STEP), "loss_scale": np.float32(2.0**15), "good_steps": np.int32(7)}


def bert():
    """Huawei's names and layout (kernels [in, out], `output_weights` [out, in]) with seeded values."""
    shapes = {
        "bert/embeddings/word_embeddings": (VOCABULARY, HIDDEN),
        "bert/embeddings/token_type_embeddings": (2, HIDDEN),
        **_norm("bert/embeddings"),
    }
    for number in range(LAYERS):
        layer = f"bert/encoder/layer_{number}"
        for part in ("query", "key", "value"):
            shapes.update(_dense(f"{layer}/attention/self/{part}", HIDDEN, HIDDEN))
        shapes.update(_dense(f"{layer}/attention/output/dense", HIDDEN, HIDDEN))
        shapes.update(_norm(f"{layer}/attention/output"))
        shapes.update(_dense(f"{layer}/intermediate/dense", HIDDEN, INNER))
        shapes.update({**_dense(f"{layer}/output/dense", INNER, HIDDEN), **_norm(f"{layer}/output")})
    shapes.update(_dense("bert/pooler/dense", HIDDEN, HIDDEN))
    shapes.update({**_dense("cls/predictions/transform/dense", HIDDEN, HIDDEN), **_norm("cls/predictions/transform")})
    shapes["cls/predictions/output_bias"] = (VOCABULARY,)
    shapes.update({"cls/seq_relationship/output_weights": (2, HIDDEN), "cls/seq_relationship/output_bias": (2,)})
    return {name: _values(name, shape) for name, shape in shapes.items()}


def slots():
    """What the optimizer adds to `bert`: two moments of every variable."""
    return {
        f"{name}/{slot}": _values(f"{name}/{slot}", array.shape)
        for name, array in bert().items()
        for slot in ("adam_m", "adam_v")
    }


def partitioned():
    """Variables stored in slices: their number, and the whole. One has starts beyond 64, coded in two bytes."""
    return {
        "bert/embeddings/word_embeddings": (2, bert()["bert/embeddings/word_embeddings"]),
        "probe/columns": (3, _values("probe/columns", (2, 10))),
        "probe/rows": (3, (np.arange(300) % 251).astype(np.uint8)),
    }


def others():
    """One variable of each remaining dtype; the last is bfloat16, given here as the float32 of the same value."""
    return {
        "double": _values("double", (3, 2)).astype(np.float64),
        "half": _values("half", (5,)).astype(np.float16),
        "flag": np.array([True, False, True]),
        "empty": np.zeros((0, 3), np.float32),
        "scalar": np.float32(1.5),
        **{
            f"integer/{dtype}": np.array([np.iinfo(dtype).min, 0, np.iinfo(dtype).max], dtype)
            for dtype in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
        },
        "brain": (_values("brain", (2, 3)).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32),
    }


def _dense(name, inputs, outputs):
    return {f"{name}/kernel": (inputs, outputs), f"{name}/bias": (outputs,)}


def _norm(name):
    return {f"{name}/LayerNorm/gamma": (HIDDEN,), f"{name}/LayerNorm/beta": (HIDDEN,)}


def _values(name, shape):
    # The legacy generator, whose numbers NumPy has promised never to change.
    seed = np.random.RandomState(zlib.crc32(name.encode()))
    return seed.standard_normal(shape).astype(np.float32)


def main(folder):
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    import tensorflow as tf

    def slicing(array):
        def initial(shape, dtype, partition_info):
            ranges = zip(partition_info.var_offset, shape)
            return tf.constant(array[tuple(slice(start, start + size) for start, size in ranges)], dtype)

        return initial

    def save(variables, prefix, devices=1, slices=None, **options):
        """`slices`: names to (number of slices, whole array), partitioned along the longest axis."""
        with tf.Graph().as_default():
            for number, (name, array) in enumerate(variables.items()):
                with tf.device(f"/cpu:{number % devices}"):
                    tf.compat.v1.get_variable(name, initializer=tf.constant(array), use_resource=False)
            for name, (count, array) in (slices or {}).items():
                with tf.device("/cpu:0"):
                    tf.compat.v1.get_variable(
                        name,
                        array.shape,
                        array.dtype,
                        initializer=slicing(array),
                        partitioner=tf.compat.v1.fixed_size_partitioner(count, int(np.argmax(array.shape))),
                        use_resource=False,
                    )
            config = tf.compat.v1.ConfigProto(device_count={"CPU": devices})
            with tf.compat.v1.Session(config=config) as session:
                session.run(tf.compat.v1.global_variables_initializer())
                saver = tf.compat.v1.train.Saver(save_relative_paths=True, **options)
                (folder / prefix).parent.mkdir(parents=True, exist_ok=True)
                saver.save(session, str(folder / prefix), STEP, write_meta_graph=False)

    save({**bert(), **slots(), **OPTIMIZER}, "single/model.ckpt")
    whole = {name: array for name, array in bert().items() if name not in partitioned()}
    save(whole, "sharded/model.ckpt", devices=2, slices=partitioned(), sharded=True)
    dtypes = {name: array for name, array in others().items() if name != "brain"}
    dtypes["brain"] = tf.cast(others()["brain"], tf.bfloat16)
    save({**dtypes, "text": np.array(["哪吒", ""])}, "dtypes/model.ckpt")
    save({"old": np.arange(6, dtype=np.float32)}, "v1/model.ckpt", write_version=tf.compat.v1.train.SaverDef.V1)

    model = tf.Module()
    model.kernel = tf.Variable(bert()["bert/pooler/dense/kernel"], name="kernel")
    (folder / "object").mkdir(exist_ok=True)
    tf.train.Checkpoint(model=model).save(str(folder / "object" / "ckpt"))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent)
