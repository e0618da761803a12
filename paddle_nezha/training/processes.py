"""The processes of one training: a single one, or those that `paddle.distributed.launch` started, joined by fleet."""

import os
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from paddle_nezha._paddle import nn, paddle

# What the launcher gives each process: how many there are.
_COUNT = "PADDLE_TRAINERS_NUM"


class Processes:
    """This process among those of the training.

    Args:
        rank: 0 .. count - 1; 0 writes the files that are written once.
        count: how many there are.
        sharding: whether each keeps the optimizer's state of its share of the parameters alone (stage 1).
        by_fleet: whether fleet joined them; else plain data parallelism did.
    """

    def __init__(self, rank: int, count: int, sharding: bool, by_fleet: bool = True):
        self.rank, self.count, self.sharding, self._by_fleet = rank, count, sharding, by_fleet

    @classmethod
    def join(cls, sharding: bool = False) -> "Processes":
        """Joins the processes that the launcher started; without a launcher this one is alone.

        Args:
            sharding: stage 1 over all processes in place of plain data parallelism.
        """
        count = int(os.environ.get(_COUNT, "1"))
        if count == 1:
            return cls(0, 1, False)
        from paddle.distributed import fleet

        strategy = fleet.DistributedStrategy()
        degrees = {
            "dp_degree": 1 if sharding else count,
            "mp_degree": 1,
            "pp_degree": 1,
            "sharding_degree": count if sharding else 1,
        }
        try:
            strategy.hybrid_configs = degrees
        except TypeError:  # Paddle 2.6's fleet cannot read its own settings with protobuf 6 and later
            if sharding:
                raise ValueError(
                    "sharding needs Paddle's fleet, which in this release does not work with the installed protobuf: "
                    "pip install 'protobuf<6', or leave sharding out."
                ) from None
            paddle.distributed.init_parallel_env()
            return cls(paddle.distributed.get_rank(), count, False, by_fleet=False)
        fleet.init(is_collective=True, strategy=strategy)
        return cls(paddle.distributed.get_rank(), count, sharding)

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def distribute(self, layer: nn.Layer, optimizer: Any) -> "tuple[nn.Layer, Any]":
        """The same with their gradients averaged over all processes when they are complete."""
        if self.count == 1:
            return layer, optimizer
        if not self._by_fleet:
            return paddle.DataParallel(layer), optimizer
        from paddle.distributed import fleet

        return fleet.distributed_model(layer), fleet.distributed_optimizer(optimizer)

    def distribute_scaler(self, scaler: Any) -> Any:
        if self.count == 1 or not self._by_fleet:
            return scaler
        from paddle.distributed import fleet

        return fleet.distributed_scaler(scaler)

    def without_exchange(self, layer: nn.Layer) -> "AbstractContextManager[Any]":
        """Within the block a backward pass adds to this process's own gradients, and exchanges none."""
        return layer.no_sync() if isinstance(layer, paddle.DataParallel) else nullcontext()

    def sum(self, values: np.ndarray) -> np.ndarray:
        """The sum of float64 numbers over all processes."""
        if self.count == 1:
            return values
        total = paddle.to_tensor(np.asarray(values, "float64"))
        paddle.distributed.all_reduce(total)
        return total.numpy()

    def wait(self) -> None:
        """Until every process is here."""
        self.sum(np.zeros(1))
