"""The paper's drifting landscape, on which any Optax optimizer can be watched."""

from ctagd_optax.testbed._explore import explore_page
from ctagd_optax.testbed._internals import (
    CTAGDSettings,
    Internals,
    RobustInternals,
    RobustSettings,
)
from ctagd_optax.testbed._landscape import (
    Landscape,
    LandscapeConfig,
    Snapshots,
    surface,
)
from ctagd_optax.testbed._optimizers import (
    PICTURE_OPTIMIZERS,
    TABLE_OPTIMIZERS,
    Optimizer,
    get_optimizer,
    inner_iterations,
    newton,
    optax_optimizers,
)
from ctagd_optax.testbed._plots import animate, plot
from ctagd_optax.testbed._result import Interval, Result
from ctagd_optax.testbed._rows import Row, markdown
from ctagd_optax.testbed._runner import RunConfig, make_landscapes, run
from ctagd_optax.testbed._table import Table, compare, make_table
from ctagd_optax.testbed._tuning import Trial, TuningConfig

__all__ = [
    "PICTURE_OPTIMIZERS",
    "TABLE_OPTIMIZERS",
    "CTAGDSettings",
    "Internals",
    "Interval",
    "Landscape",
    "LandscapeConfig",
    "Optimizer",
    "Result",
    "RobustInternals",
    "RobustSettings",
    "Row",
    "RunConfig",
    "Snapshots",
    "Table",
    "Trial",
    "TuningConfig",
    "animate",
    "compare",
    "explore_page",
    "get_optimizer",
    "inner_iterations",
    "make_landscapes",
    "make_table",
    "markdown",
    "newton",
    "optax_optimizers",
    "plot",
    "run",
    "surface",
]
