"""Examine the plan of a pipeline's function."""

import base64
import json
from collections.abc import Sequence

from pyspark.sql import DataFrame

from tailrace.engine.gateway import tailrace_of
from tailrace.plan.delivery import FunctionPlan, Obstacle, PickledFunction


def function_plan(result: DataFrame, given: Sequence[DataFrame], topic_column: str | None) -> FunctionPlan:
    """Return what the plan of a pipeline's function says about its outputs after a crash.

    Args:
        result: The rows that the function returned.
        given: The rows of each source, which it was given.
        topic_column: The column that names each row's topic.
    """
    plans = tailrace_of(result.sparkSession).FunctionPlan
    examined = json.loads(str(plans.examine(result._jdf, [each._jdf for each in given], topic_column)))
    return FunctionPlan(
        tuple(Obstacle(**each) for each in examined["obstacles"]),
        examined["text"],
        examined["unstable"],
        tuple(PickledFunction(each["name"], base64.b64decode(each["command"])) for each in examined["functions"]),
    )
