"""Checkpoints: written in the background, whole or not at all, the last few kept."""

import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp


class Checkpoints:
    """The checkpoints of a run, by step.

    Args:
      folder: where they are kept.
      keep: how many of the last ones.
    """

    def __init__(self, folder: pathlib.Path, keep: int = 2):
        if keep < 1:
            raise ValueError(f"keep must be at least 1, got {keep}")
        self._folder = folder.absolute()
        self._manager = ocp.CheckpointManager(
            self._folder,
            options=ocp.CheckpointManagerOptions(
                max_to_keep=keep,
                cleanup_tmp_directories=True,
                enable_async_checkpointing=True,
            ),
            item_names=("state", "notes"),
        )

    def last(self) -> int | None:
        """The step of the newest checkpoint; None if there is none."""
        return self._manager.latest_step()

    def steps(self) -> list[int]:
        """The steps of all that are kept."""
        return list(self._manager.all_steps())

    def path(self, step: int) -> pathlib.Path:
        """The folder of a step's checkpoint."""
        return self._folder / str(step)

    def save(self, step: int, state: Any, notes: dict[str, Any]) -> None:
        """Starts to write a state and some notes; an earlier write ends first."""
        self._manager.save(
            step,
            args=ocp.args.Composite(
                state=ocp.args.StandardSave(_without_keys(state)),
                notes=ocp.args.JsonSave(notes),
            ),
        )

    def restore(self, step: int, like: Any) -> tuple[Any, dict[str, Any]]:
        """The state of a step, placed as ``like`` is (abstract or not); the notes."""
        found = self._manager.restore(
            step,
            args=ocp.args.Composite(
                state=ocp.args.StandardRestore(
                    jax.tree.map(_abstract, _without_keys(like))
                ),
                notes=ocp.args.JsonRestore(),
            ),
        )
        return _with_keys(found["state"], like), found["notes"]

    def wait(self) -> None:
        """Waits until what was saved is on disk."""
        self._manager.wait_until_finished()

    def close(self) -> None:
        """Waits, and ends the background work."""
        self._manager.close()


def _is_key(x: Any) -> bool:
    return jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key)


def _impl(key: Any) -> Any:
    return jax.random.key_impl(jnp.empty((), key.dtype))  # the key may be abstract


def _without_keys(tree: Any) -> Any:
    """Random keys as the numbers they are made of, which can be written."""

    def data(x: Any) -> Any:
        if not _is_key(x):
            return x
        if isinstance(x, jax.ShapeDtypeStruct):
            numbers = jax.eval_shape(jax.random.key_data, x)
            return jax.ShapeDtypeStruct(
                numbers.shape, numbers.dtype, sharding=x.sharding
            )
        return jax.random.key_data(x)

    return jax.tree.map(data, tree)


def _with_keys(tree: Any, like: Any) -> Any:
    return jax.tree.map(
        lambda x, model: (
            jax.random.wrap_key_data(x, impl=_impl(model)) if _is_key(model) else x
        ),
        tree,
        like,
    )


def _abstract(x: jax.Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding)
