"""Checkpoints: written in the background, whole or not at all, the last few kept.

A checkpoint appears together with the checksums of its files, and is restored only if
they are right. Damaged ones are set aside.
"""

import contextlib
import errno
import os
import pathlib
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp

from benchmarks.train import checksums
from benchmarks.train.folder import agreed
from benchmarks.train.quiet import silence_orbax

# What the first process says of its checkpoints, if it does not say a step.
_NONE, _DAMAGED = -1, -2


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
        self._saving = _NONE
        silence_orbax()
        self._manager = ocp.CheckpointManager(
            self._folder,
            options=ocp.CheckpointManagerOptions(
                max_to_keep=keep,
                cleanup_tmp_directories=True,
                enable_async_checkpointing=True,
                async_options=ocp.AsyncOptions(
                    post_finalization_callback=self._add_checksums
                ),
            ),
            item_names=("state", "notes"),
        )

    def newest(self, say: Callable[[str], None] = lambda _: None) -> int | None:
        """The step of the newest checkpoint that is whole; None if there is none.

        Those that are newer and damaged get another name, so that their steps can be
        saved again. Of several processes, the first one looks.

        Args:
          say: gets a line about each that is damaged, and one about what is used.

        Raises:
          ValueError: there are checkpoints, and none is whole.
        """
        found, error = _NONE, None
        if jax.process_index() == 0:
            try:
                found = self._look(say)
            except ValueError as failure:
                found, error = _DAMAGED, failure
        found = agreed(found)
        if found == _DAMAGED:
            raise error or ValueError(
                f"the first process found no whole checkpoint in {self._folder}"
            )
        self._manager.reload()
        return None if found == _NONE else found

    def _look(self, say: Callable[[str], None]) -> int:
        steps = sorted(
            (int(p.name) for p in self._folder.iterdir() if _is_step(p.name)),
            reverse=True,
        )
        damaged = {}
        for n, step in enumerate(steps):
            sealed = any(self._is_sealed(older) for older in steps[n:])
            reason = self._damage(step, sealed)
            if reason is None:
                break
            damaged[step] = reason
        else:
            if not damaged:
                return _NONE
            reasons = "; ".join(f"{step}: {why}" for step, why in damaged.items())
            raise ValueError(
                f"{self._folder} has no whole checkpoint: {reasons}; to start at step "
                f"0 again, remove {self._folder}"
            )
        for bad, reason in damaged.items():
            aside = self._set_aside(bad)
            say(f"checkpoint {bad} is damaged: {reason}; it is now {aside}")
        if damaged:
            lost = steps[0] - step
            say(f"going on from step {step}, {lost} steps are done again")
        if not sealed:
            say(
                f"checkpoint {step} is not verified: it has no checksums, as those of "
                "earlier versions"
            )
        return step

    def _is_sealed(self, step: int) -> bool:
        return (self.path(step) / checksums.NAME).is_file()

    def _damage(self, step: int, sealed: bool) -> str | None:
        """What is wrong with a checkpoint; only early ones may have no checksums."""
        if not self.path(step).is_dir():
            return "it is no folder"
        if self._is_sealed(step):
            return checksums.damage(self.path(step), step)
        return "it has no checksums" if sealed else None

    def _set_aside(self, step: int) -> pathlib.Path:
        aside = self.path(step).with_name(f"{step}.damaged")
        if aside.is_dir():
            shutil.rmtree(aside)
        os.replace(self.path(step), aside)
        return aside

    def _add_checksums(self) -> None:
        """Called by Orbax, in the background, before the folder gets its name."""
        found = self._folder.glob(f"{self._saving}.orbax-checkpoint-tmp*")
        [folder] = filter(pathlib.Path.is_dir, found)
        checksums.write(folder, self._saving)

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
        self.wait()
        self._saving = step
        with self._writing():
            self._manager.save(
                step,
                args=ocp.args.Composite(
                    state=ocp.args.StandardSave(_without_keys(state)),
                    notes=ocp.args.JsonSave(notes),
                ),
            )

    def restore(self, step: int, like: Any) -> tuple[Any, dict[str, Any]]:
        """The state of a step, placed as ``like`` is (abstract or not); the notes.

        Raises:
          ValueError: it cannot be restored, or is of another shape.
        """
        model = jax.tree.map(_abstract, _without_keys(like))
        try:
            found = self._manager.restore(
                step,
                args=ocp.args.Composite(
                    state=ocp.args.StandardRestore(model), notes=ocp.args.JsonRestore()
                ),
            )
        except Exception as error:  # what Orbax raises for a damaged file is anything
            raise ValueError(
                f"{self.path(step)} cannot be restored: {_reason(error)}; move it "
                "away to go on from the checkpoint before"
            ) from error
        return _with_keys(found["state"], like), found["notes"]

    def wait(self) -> None:
        """Waits until what was saved is on disk."""
        with self._writing():
            self._manager.wait_until_finished()

    def close(self) -> None:
        """Waits, and ends the background work."""
        with self._writing():
            self._manager.close()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # what Orbax raises for a full disk is anything
            raise OSError(
                f"cannot write {self.path(self._saving)}: {_reason(error)}"
            ) from error


def _is_step(name: str) -> bool:
    return name.isdecimal() and str(int(name)) == name


def _reason(error: BaseException) -> str:
    """Why something failed, in a line: what the system says, if it is known."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = str(error).strip() or type(error).__name__
    for code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO):
        if os.strerror(code) in text:
            return os.strerror(code)
    return text.splitlines()[0][:200]


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
