"""Whether higher or lower values of a metric are better: what its runs state, then what its name implies.

Nothing is guessed beyond that. Without a known goal no run is the best, because it might be the worst.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

MIN, MAX = "min", "max"
_OPPOSITE = {MIN: MAX, MAX: MIN}
_DIRECTIONS = {"minimize": MIN, "maximize": MAX, "min": MIN, "max": MAX}
# Names of an objective that only its study describes, such as Optuna's.
_OBJECTIVES = {"value", "objective", "objective_value"}
_WORD = re.compile(r"[A-Za-z0-9]+")
# The parts of a word in camel case. Digits stay with the letters before them.
_PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+[0-9]*|[A-Z]+[0-9]*|[0-9]+")
_LOWER = frozenset(
    "loss losses err error errors mae mse rmse rmsle msle mape smape wape mase logloss merror nll perplexity ppl"
    " crossentropy divergence wer cer ter eer fpr fnr ece fid kid lpips brier bouldin regret latency runtime duration"
    " deviance aic bic bpb bpc l1 l2".split()
)
_HIGHER = frozenset(
    "acc accuracy auc auroc auprc aucpr roc prauc ap ap50 ap75 f1 f2 fbeta fscore precision recall sensitivity"
    " specificity tpr tnr ppv npv r2 rsquared iou miou dice jaccard kappa mcc bleu sacrebleu rouge rouge1 rouge2 rouge3"
    " rougel bertscore meteor cider chrf ndcg mrr psnr ssim reward rewards"
    " rew return returns likelihood elbo spearman pearson correlation throughput fps qps explained".split()
)
_LOWER_ENDINGS = ("loss", "error", "crossentropy")  # as in mlogloss
_HIGHER_ENDINGS = ("accuracy",)
_LOWER_PAIRS = {
    ("cross", "entropy"),
    ("miss", "rate"),
    ("per", "byte"),
    ("per", "character"),
    ("per", "token"),
    ("per", "word"),
}
_HIGHER_PAIRS = {
    ("exact", "match"),
    *((what, "rate") for what in ("win", "success", "hit")),
    *(("per", unit) for unit in ("second", "sec", "s", "minute", "hour")),
}
# What is derived from a metric has another goal: accuracy_drop, loss_scale; std_test_score of scikit-learn.
_DERIVED = frozenset(
    "std stddev stdev var variance rank gap drop diff difference delta threshold scale weight code".split()
)
_DERIVED_FIRST = frozenset(("std", "stddev", "stdev", "rank"))
_MEAN_AVERAGE_PRECISION = re.compile(r"(^|[^A-Za-z])(mAP[0-9]*|map[@_-]?[0-9]+)([^A-Za-z]|$)")
_R_SQUARED = re.compile(r"(^|[^A-Za-z])[rR]\^2([^0-9]|$)")
_PER_SECOND = re.compile(r"/(s|sec|second)$")


class RunWithTags(Protocol):
    """The properties of a run that state a goal."""

    @property
    def metrics(self) -> Mapping[str, Any]: ...

    @property
    def tags(self) -> tuple[str, ...]: ...


def find_goal(metric: str, runs: Iterable[RunWithTags] = ()) -> str | None:
    """Return ``min``, ``max``, or None if neither the runs nor the name of the metric determine it."""
    stated = {goal for run in runs if metric in run.metrics and (goal := _stated_goal(metric, run))}
    if len(stated) == 1:
        return stated.pop()
    return None if stated else goal_from_name(metric)


def _stated_goal(metric: str, run: RunWithTags) -> str | None:
    """Return the goal in the tags of a run: ``goal.<metric>``, ``goal``, or Optuna's ``direction``.

    The latter two do not name a metric. They describe the run's only metric, or one with an uninformative name.
    """
    tags = dict(tag.partition("=")[::2] for tag in run.tags)
    names = [f"goal.{metric}"]
    if len(run.metrics) == 1 or metric.lower() in _OBJECTIVES or goal_from_name(metric) is None:
        names += ["goal", "direction"]
    goals = (_DIRECTIONS.get(tags.get(name, "").lower()) for name in names)
    return next((goal for goal in goals if goal), None)


def goal_from_name(metric: str) -> str | None:
    """Return the goal that the parts of the name imply. The last part with a meaning decides: ``f1_loss`` is a loss."""
    if _MEAN_AVERAGE_PRECISION.search(metric) or _R_SQUARED.search(metric) or _PER_SECOND.search(metric):
        return MAX
    parts = [part for word in _WORD.findall(metric) for part in _split(word)]
    if "brier" in parts or "bouldin" in parts:  # scores, but lower ones are better
        return MIN
    goals = [(index, goal) for index, part in enumerate(parts) if (goal := _goal_of_part(parts, index, part))]
    if not goals and "score" in parts:
        goals = [(parts.index("score"), MAX)]
    if not goals or _is_derived(parts, goals[-1][0]):
        return None
    index, goal = goals[-1]
    return _OPPOSITE[goal] if {"neg", "negative"} & {*parts[:index]} else goal


def _is_derived(parts: list[str], index: int) -> bool:
    """Return whether a name describes another value than the metric at ``index``: its deviation, rank, or change."""
    if parts[0] in _DERIVED_FIRST and parts[1] != "loss":
        return True
    return not _DERIVED.isdisjoint(parts[index + 1 :]) and parts[index] != "explained"


def _split(word: str) -> list[str]:
    whole = word.lower()
    return [whole] if whole in _LOWER | _HIGHER else [part.lower() for part in _PART.findall(word)]


def _goal_of_part(parts: list[str], index: int, part: str) -> str | None:
    pair = (part, parts[index + 1]) if index + 1 < len(parts) else None
    if part in _LOWER or part.endswith(_LOWER_ENDINGS) or pair in _LOWER_PAIRS:
        return MIN
    if part in _HIGHER or part.endswith(_HIGHER_ENDINGS) or pair in _HIGHER_PAIRS:
        return MAX
    return None
