"""Pictures of runs. Matplotlib is imported where it is used: the library needs none."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ctagd_optax.testbed import style
from ctagd_optax.testbed._landscape import Landscape, surface
from ctagd_optax.testbed._result import Result


def frame(landscape: Landscape, margin: float = 1.0) -> tuple[float, float, float]:
    """Centre and half-width of the square that holds the target and the start."""
    target = np.asarray(landscape.train.target[0], np.float64)
    distance = float(np.linalg.norm(np.asarray(landscape.start) - target))
    return float(target[0]), float(target[1]), distance + margin


def plot(results: Sequence[Result], *, run: int = 0, dark: bool = False) -> Any:
    """Draws paths over the test surface (left) and test loss against steps (right).

    A dot ends a run that converged, a cross one that did not.

    Args:
      results: the optimizers to compare, on the same landscapes.
      run: which run.
      dark: for a dark page.

    Returns:
      A Matplotlib figure.

    Examples:
      >>> from ctagd_optax import testbed
      >>> figure = testbed.plot([testbed.run("sgd", runs=1)])
      >>> [axes.get_title() for axes in figure.axes[:2]]
      ['Paths over the test surface', 'Test loss']
    """
    check_installed("matplotlib", "a picture")
    check_run(results, run)
    with style.theme(dark):
        return _draw_run(results, run, dark)


def _draw_run(results: Sequence[Result], run: int, dark: bool) -> Any:
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    landscape = results[0].landscape(run)
    figure = Figure(figsize=(12, 6.2), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.15))
    bar = figure.colorbar(
        _draw_surface(left, landscape, landscape.test_average, dark),
        ax=left,
        label="test loss",
        shrink=0.9,
        format="%.0f",
    )
    end = max(int(result.steps[run]) for result in results)
    highest = float(results[0].test_loss[run, 0])
    lowest = min(float(result.test_loss[run].min()) for result in results)
    handles = []
    for i, (result, color, size) in enumerate(_drawn(results, dark, 7.0)):
        level = 3 - i / len(results)  # the first lies on top
        steps = int(result.steps[run])
        path, loss = result.paths[run, : steps + 1], result.test_loss[run, : steps + 1]
        good = bool(result.converged[run])
        # Dots are the steps; lines are faint, as a wild path would cover all others.
        left.plot(*path.T, color=color, linewidth=1, alpha=0.35, zorder=level)
        left.plot(*path.T, ".", color=color, markersize=4.5, zorder=level)
        right.plot(loss, color=color, linewidth=1.8, alpha=0.9, zorder=level)
        marker = {
            "marker": "o" if good else "X",
            "color": color,
            "markersize": size,
            "markeredgecolor": style.PAGE[dark],
            "linestyle": "none",
            "zorder": 2 + level,
        }
        left.plot(*path[-1], **marker)
        marker["markersize"] = 8  # these rarely meet
        right.plot(steps, min(max(loss[-1], lowest), highest), **marker)
        word = f"{steps} steps" if good else result.status[run]
        handles.append(
            Line2D([], [], color=color, linewidth=2, label=f"{result.name} ({word})")
        )
    left.plot(
        *landscape.start,
        marker="*",
        color=style.PAGE[dark],
        markersize=16,
        markeredgecolor=style.INK[dark],
        zorder=6,
    )
    left.set_title("Paths over the test surface")
    left.set_xlabel(r"$\theta_1$")
    left.set_ylabel(r"$\theta_2$")
    left.grid(visible=False)
    right.set_title("Test loss")
    right.set_xlabel("step")
    right.set_xlim(0, end * 1.03)
    room = 0.05 * (highest - lowest)
    right.set_ylim(lowest - room, highest + room)
    for axes in (left, right, bar.ax):
        style.keep(axes, dark)
    figure.legend(handles=handles, frameon=False, loc="outside lower center", ncols=4)
    return figure


def _drawn(
    results: Sequence[Result], dark: bool, smallest: float
) -> list[tuple[Result, str, float]]:
    """Optimizers with their colours, and the sizes of their dots."""
    names = [result.name for result in results]
    found = [pair[dark] for pair in style.colours(names)]
    return list(zip(results, found, style.dot_sizes(len(names), smallest), strict=True))


def animate(
    results: Sequence[Result],
    path: str | Path,
    *,
    run: int = 0,
    steps: int = 120,
    frames_per_second: int = 12,
    dark: bool = False,
) -> None:
    """Films the drifting train surface while the optimizers walk on it.

    Args:
      results: the optimizers to compare, on the same landscapes.
      path: a .gif file, or an .mp4 file where ffmpeg is installed.
      run: which run.
      steps: steps to show; fewer where all runs are over before.
      frames_per_second: speed; one frame is one step.
      dark: for a dark page.

    Raises:
      ValueError: the format is unknown, or is mp4 without ffmpeg.
      ImportError: Matplotlib is not installed.
    """
    check_run(results, run)
    check_movie(path)
    with style.theme(dark):
        _film(results, path, run, steps, frames_per_second, dark)


def _film(
    results: Sequence[Result],
    path: str | Path,
    run: int,
    steps: int,
    frames_per_second: int,
    dark: bool,
) -> None:
    from matplotlib.animation import FFMpegWriter
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from PIL import Image

    landscape = results[0].landscape(run)
    steps = min(steps, max(int(result.steps[run]) for result in results))
    cx, cy, half = frame(landscape)
    x = jnp.linspace(cx - half, cx + half, 61)
    y = jnp.linspace(cy - half, cy + half, 61)
    snapshots = int(landscape.train.scale.shape[0])

    def snapshot(t: jax.Array) -> jax.Array:
        return surface(lambda theta: landscape.train_loss(theta, t), x, y)

    surfaces = np.asarray(jax.jit(jax.vmap(snapshot))(jnp.arange(snapshots)))
    levels = np.linspace(*_levels(surfaces), 12)
    drawn, greys = _drawn(results, dark, 9.0), style.surface_colours(dark)
    figure = Figure(figsize=(8.6, 6.5), dpi=64)
    figure.set_layout_engine("none")
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_axes((0.01, 0.02, 0.72, 0.93))

    def draw(t: int) -> None:
        axes.clear()
        # A step was made on the snapshot before it; at the start the first one waits.
        seen = max(t - 1, 0) % snapshots
        axes.contourf(x, y, surfaces[seen], levels=levels, cmap=greys, extend="both")
        for i, (result, color, size) in enumerate(drawn):
            level = 3 - i / len(results)  # the first lies on top
            walked = result.paths[run, : t + 1]
            axes.plot(*walked.T, color=color, linewidth=1.4, alpha=0.6, zorder=level)
            axes.plot(
                *_into_frame(walked[-1], cx, cy, half),
                marker="o",
                color=color,
                markersize=size,
                markeredgecolor=style.PAGE[dark],
                linestyle="none",
                label=result.name,
                zorder=2 + level,
            )
        axes.set(
            xlim=(cx - half, cx + half),
            ylim=(cy - half, cy + half),
            xticks=[],
            yticks=[],
            aspect="equal",
        )
        axes.spines[:].set_visible(False)
        axes.set_title(f"step {t}, train snapshot {seen + 1} of {snapshots}", size=13)
        # Beside the surface, where it hides nothing.
        axes.legend(
            loc="center left",
            bbox_to_anchor=(1.0, 0.5),
            frameon=False,
            fontsize=13,
            labelspacing=1.2,
            handletextpad=0.6,
        )

    if Path(path).suffix.lower() == ".mp4":
        writer = FFMpegWriter(fps=frames_per_second)
        with writer.saving(figure, str(path), dpi=figure.dpi):
            for t in range(steps + 1):
                draw(t)
                writer.grab_frame()
        return
    images, gif_colors = [], _gif_palette([color for _, color, _ in drawn], dark)
    for t in range(steps + 1):
        draw(t)
        canvas.draw()
        image = Image.fromarray(np.asarray(canvas.buffer_rgba())[..., :3])
        # Few colours and no dithering: a third of the size, and calm areas.
        images.append(image.quantize(palette=gif_colors, dither=Image.Dither.NONE))
    images[0].save(
        path,
        format="GIF",
        save_all=True,
        append_images=images[1:],
        duration=1000 // frames_per_second,
        loop=0,
    )


def _gif_palette(names: Sequence[str], dark: bool) -> Any:
    """The surface's greys, those of text, each optimizer's colour, and blends."""
    from matplotlib.colors import to_rgb
    from PIL import Image

    surface_greys = style.surface_colours(dark)(np.linspace(0, 1, 13))[:, :3]
    own = np.asarray([to_rgb(name) for name in names])
    page, ink = np.asarray([to_rgb(c[dark]) for c in (style.PAGE, style.INK)])
    text = page + np.linspace(0, 1, 8)[:, None] * (ink - page)
    blends = [(0.6 * own + 0.4 * grey) for grey in surface_greys[::4]]
    table = np.concatenate([own, surface_greys, text, *blends])[:256]
    image = Image.new("P", (1, 1))
    image.putpalette(np.round(255 * table).astype(np.uint8).tobytes())
    return image


def check_movie(path: str | Path) -> None:
    """Raises an error for a movie that cannot be written."""
    check_installed("matplotlib", "a film")
    from matplotlib.animation import FFMpegWriter

    suffix = Path(path).suffix.lower()
    if suffix not in (".gif", ".mp4"):
        raise ValueError(f"a film must be a .gif or .mp4 file, got {Path(path).name}")
    if suffix == ".mp4" and not FFMpegWriter.isAvailable():
        raise ValueError("an .mp4 film needs ffmpeg, which is not installed; use .gif")


def check_installed(package: str, user: str) -> None:
    """Raises an ImportError that says what to install, if a package is missing."""
    if importlib.util.find_spec(package) is None:
        raise ImportError(f"{user} needs {package}: pip install 'ctagd-optax[testbed]'")


def check_run(results: Sequence[Result], run: int) -> None:
    """Raises a ValueError where there is nothing to draw."""
    if not results:
        raise ValueError("results must not be empty")
    if not 0 <= run < results[0].runs:
        raise ValueError(f"run must be in 0..{results[0].runs - 1}, got {run}")


def _levels(values: np.ndarray) -> tuple[float, float]:
    # The rim of the bowl would take all the colours: they go to the lower part.
    return float(values.min()), float(np.quantile(values, 0.9))


def _draw_surface(axes: Any, landscape: Landscape, loss: Any, dark: bool) -> Any:
    cx, cy, half = frame(landscape)
    x = jnp.linspace(cx - half, cx + half, 121)
    y = jnp.linspace(cy - half, cy + half, 121)
    values = np.asarray(surface(loss, x, y))
    levels = np.linspace(*_levels(values), 22)
    greys = style.surface_colours(dark)
    filled = axes.contourf(x, y, values, levels=levels, cmap=greys, extend="max")
    axes.contour(
        x, y, values, levels=levels[::2], colors=style.PAGE[dark], linewidths=0.4
    )
    axes.set(xlim=(cx - half, cx + half), ylim=(cy - half, cy + half), aspect="equal")
    return filled


def _into_frame(point: np.ndarray, cx: float, cy: float, half: float) -> Any:
    center = np.asarray([cx, cy])
    return np.clip(point, center - 0.98 * half, center + 0.98 * half)
