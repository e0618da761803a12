"""Where the two sides compute. On a GPU both are made exact and repeatable first; the truth always stays on the CPU.

The GPU part is written and has not been measured.
"""

import os
import warnings

# Read by the CUDA libraries when they start, so set before a framework does.
_EXACT_GPU = {
    "NVIDIA_TF32_OVERRIDE": "0",  # TensorFloat-32 keeps 10 bits of a float32's 23
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",  # without it cuBLAS may sum in another order each time
    "FLAGS_cudnn_deterministic": "1",
    "FLAGS_embedding_deterministic": "1",
}


class DeviceMissing(RuntimeError):
    """The device is not there for one of the frameworks; the message says which."""


def quiet_imports() -> None:
    """Paddle looks for ccache when it is imported, and warns each process that has none; nothing here compiles."""
    warnings.filterwarnings("ignore", message="No ccache found")


def prepare(device: str) -> None:
    """Makes `device` the one both frameworks compute on, in this process.

    Args:
        device: "cpu" or "gpu".

    Raises:
        DeviceMissing: no GPU, or a build without one.
    """
    quiet_imports()
    if device == "gpu":
        os.environ.update(_EXACT_GPU)
    from paddle_nezha._paddle import paddle

    import torch  # isort: skip  (after Paddle, as everywhere)

    if device == "cpu":
        paddle.set_device("cpu")
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", torch.get_num_threads())))
        return
    if not paddle.is_compiled_with_cuda() or paddle.device.cuda.device_count() == 0:
        raise DeviceMissing("Paddle sees no GPU: install paddlepaddle-gpu on a machine with one, or use --device cpu.")
    if not torch.cuda.is_available():
        raise DeviceMissing("PyTorch sees no GPU: install its CUDA build on a machine with one, or use --device cpu.")
    paddle.set_device("gpu")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.use_deterministic_algorithms(True)


def torch_device(device: str) -> str:
    """PyTorch's word for it."""
    return "cuda" if device == "gpu" else "cpu"
