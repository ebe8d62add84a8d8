"""Whether higher or lower values of a metric are better: what its runs, its project, or its name state.

Nothing is guessed beyond that. Without a known goal no run is the best, because it might be the worst.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Protocol

MIN, MAX = "min", "max"
_UNCLEAR = "unclear"
_OPPOSITE = {MIN: MAX, MAX: MIN}
_DIRECTIONS = {"minimize": MIN, "maximize": MAX, "min": MIN, "max": MAX}
# Names of an objective that only its study describes, such as Optuna's.
_OBJECTIVES = {"value", "objective", "objective_value"}
_WORD = re.compile(r"[A-Za-z0-9]+")
# The parts of a word in camel case. Digits stay with the letters before them.
_PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+[0-9]*|[A-Z]+[0-9]*|[0-9]+")
_LOWER = (
    "loss losses err error errors mae mse rmse rmsle msle mape smape wape mase logloss merror nll perplexity ppl"
    " crossentropy divergence wer cer ter eer fpr fnr ece fid kid lpips brier bouldin regret latency runtime duration"
    " deviance aic bic bpb bpc l1 l2 inaccuracy"
).split()
_HIGHER = (
    "acc accuracy auc auroc auprc aucpr roc prauc ap f1 f2 fbeta fscore precision recall sensitivity specificity tpr"
    " tnr ppv npv r2 rsquared iou miou dice jaccard kappa mcc bleu sacrebleu rouge rougel rougelsum bertscore meteor"
    " cider chrf ndcg mrr psnr ssim reward rewards rew return returns likelihood loglikelihood elbo spearman pearson"
    " correlation throughput fps qps score"
).split()
_LOWER_ENDINGS = ("loss", "error", "crossentropy")  # as in mlogloss
_COUNTED = (
    "samples tokens images examples frames steps iterations iters iter it batches requests queries episodes words"
    " sequences sentences items rows records documents operations ops flops tflops bytes"
).split()
_PHRASES: dict[tuple[str, ...], str] = {
    **{(word,): MIN for word in _LOWER},
    **{(word,): MAX for word in _HIGHER},
    ("cross", "entropy"): MIN,
    ("miss", "rate"): MIN,
    ("error", "rate"): MIN,
    ("err", "rate"): MIN,
    **{("bits", "per", unit): MIN for unit in ("byte", "character", "char", "token", "word", "dim", "pixel")},
    ("exact", "match"): MAX,
    ("explained", "variance"): MAX,
    ("f", "score"): MAX,
    ("cv", "score"): MAX,
    ("acc", "norm"): MAX,  # accuracy with normalized lengths, of lm-evaluation-harness
    **{(what, "rate"): MAX for what in ("win", "success", "hit")},
    **{(what, "per", unit): MAX for what in _COUNTED for unit in ("second", "sec", "s", "minute", "hour")},
}
_LONGEST_PHRASE = 3
# Where a value is measured, or how it is aggregated. An empty word is a number.
_CONTEXT = frozenset(
    " mean avg average median total overall global final last macro micro weighted unweighted val valid validation dev"
    " test testing train training eval evaluation holdout oof cv fold split top none".split(" ")
)
_SUFFIXES = frozenset(  # B and M are the boxes and masks of Ultralytics
    "score fmeasure measure binary ovr ovo mu roc pr best min max sum running smoothed ema epoch step iter"
    " iteration round batch at k p percent pct percentile ms us ns s sec secs seconds minutes small medium large"
    " dataloader idx class label per b m".split()
)
_UNITS = frozenset("token word byte character char sample example pixel image sequence step batch epoch".split())
# Names with other meanings, unless the rest of the name is context: anomaly_score, weight_l2, clip_duration.
_ONLY_WITH_CONTEXT = frozenset((name,) for name in ("score", "l1", "l2", "duration"))
# Words that make another value of a metric: its change, inverse, or deviation, or what it takes to reach it.
_OTHER_VALUES = frozenset(
    "minus one inverse inverted inv reciprocal complement non not to of until improvement improved reduction reduced"
    " increase decrease decline degradation speedup saving savings saved change attack skill gap drop dropped diff"
    " difference delta gain profit threshold thresh std stddev stdev standard var variance stderr rank grad grads"
    " gradient gradients n num number count target baseline desired stop time times steps cost costs penalty norm norms"
    " reg regularization weight weights scale budget limit patience mixed code".split()
)
_LOSS_TERMS = frozenset("rank var variance count norm reg regularization penalty".split())  # as in rank_loss
_EXTREMES = frozenset("best min max lowest highest".split())  # best_loss_epoch is the epoch of the best loss
_TIMES = frozenset("epoch step iter iteration round idx".split())
_DERIVED_LOSSES = ("loss", "error")  # as in f1_loss
_NEGATIONS = frozenset(("neg", "negative"))
_BETWEEN = frozenset("mean root squared absolute percentage median max log average poisson gamma".split())
_LIKELIHOODS = ("likelihood", "loglikelihood", "elbo")
# Notations that have no words.
_NOTATIONS = (
    (re.compile(r"(^|[^A-Za-z])(?:mAP|map(?=(?:[@_-]|_at_)?[0-9]))(?=[^A-Za-z]|$)"), r"\1ap"),
    (re.compile(r"(^|[^A-Za-z])[rR]\^2(?![0-9])"), r"\1r2"),
    (re.compile(r"/(s|sec|second)$"), r"_per_\1"),
    (re.compile(r"_X_(train|val|valid|test)$"), r"_\1"),  # variables of scripts, in names of scikit-learn's autologging
)
# Calculations with a metric: 1-auc, -loss, 1/accuracy.
_ARITHMETIC = re.compile(r"[*^!~−Δ∆¬]|(^|[/ (])-|(^|[/.: (])1(\.0)? ?[-–_/ ]")


class RunWithTags(Protocol):
    """The properties of a run that state a goal."""

    @property
    def metrics(self) -> Mapping[str, Any]: ...

    @property
    def tags(self) -> tuple[str, ...]: ...


def find_goal(metric: str, runs: Iterable[RunWithTags] = (), defaults: Mapping[str, str] | None = None) -> str | None:
    """Return ``min``, ``max``, or None if nothing determines it: neither the runs, nor the defaults, nor the name.

    ``defaults``: the goals of the project's metrics.
    """
    stated = {goal for run in runs if metric in run.metrics and (goal := _stated_goal(metric, run))}
    if len(stated) == 1 and stated != {_UNCLEAR}:
        return stated.pop()
    return (defaults or {}).get(metric) or (None if stated else goal_from_name(metric))


def _stated_goal(metric: str, run: RunWithTags) -> str | None:
    """Return the goal in the tags of a run: ``goal.<metric>``, ``goal``, or Optuna's ``direction``.

    The latter two do not name a metric. They describe the run's only metric, or the one with the name of an objective.
    Among several metrics they imply nothing. If they contradict a known name there, either may be wrong.
    """
    tags = dict(tag.partition("=")[::2] for tag in run.tags)
    goals = [_DIRECTIONS.get(tags.get(name, "").lower()) for name in (f"goal.{metric}", "goal", "direction")]
    goal = next(filter(None, goals), None)
    if goal is None or goal == goals[0] or len(run.metrics) == 1 or metric.lower() in _OBJECTIVES:
        return goal
    if any(name.lower() in _OBJECTIVES for name in run.metrics):
        return None
    return _UNCLEAR if goal_from_name(metric) == _OPPOSITE[goal] else None


@lru_cache(4096)
def goal_from_name(metric: str) -> str | None:
    """Return the goal that a name implies, or None unless each of its parts has a known meaning.

    A known metric may be followed by words that keep its direction only: ``loss_epoch`` is a loss, but ``loss_scale``
    may be anything. The last metric decides: ``f1_loss`` is a loss.
    """
    for pattern, words in _NOTATIONS:
        metric = pattern.sub(words, metric)
    if _ARITHMETIC.search(metric):
        return None
    parts = [part for word in _WORD.findall(metric) for part in _split(word)]
    matches = list(_find_metrics(parts))
    if not matches:
        return None
    start, end, goal = matches[-1]
    before, after = parts[:start], parts[end:]
    if _is_other_value(before, parts[start:end], after) or not _keeps_direction(after):
        return None
    if any(other != goal for *_, other in matches) and parts[end - 1] not in _DERIVED_LOSSES:
        return None  # such as accuracy_per_loss
    negated = _NEGATIONS & {*before}
    return _goal_of_negated(before, parts[start:end], goal) if negated else goal


def _split(word: str) -> list[str]:
    whole = word.lower()
    return [whole] if (whole,) in _PHRASES else [part.lower() for part in _PART.findall(word)]


def _find_metrics(parts: list[str]) -> Iterator[tuple[int, int, str]]:
    """Yield the start, the end, and the goal of each metric in the parts of a name. Longer phrases take precedence."""
    start = 0
    while start < len(parts):
        for end in range(min(len(parts), start + _LONGEST_PHRASE), start, -1):
            goal = _goal_of_phrase(tuple(parts[start:end]), parts[:start] + parts[end:])
            if goal:
                yield start, end, goal
                start = end
                break
        else:
            start += 1


def _goal_of_phrase(phrase: tuple[str, ...], others: list[str]) -> str | None:
    goal = _PHRASES.get(phrase)
    if goal is None and len(phrase) == 1:
        goal = _PHRASES.get((_without_number(phrase[0]),))
        if phrase[0].endswith(_LOWER_ENDINGS):
            goal = MIN
    if phrase in _ONLY_WITH_CONTEXT and not all(_without_number(part) in _CONTEXT for part in others):
        return None
    return goal


def _is_other_value(before: list[str], phrase: list[str], after: list[str]) -> bool:
    """Return whether other parts of the name make it a value that is only related to the metric: its change or cost."""
    if before and before[-1] in _LOSS_TERMS and phrase == ["loss"]:
        before = before[:-1]
    others = {*before, *after}
    return not _OTHER_VALUES.isdisjoint(others) or (not _EXTREMES.isdisjoint(others) and not _TIMES.isdisjoint(others))


def _keeps_direction(after: list[str]) -> bool:
    """Return whether the parts after a metric do not change its meaning: ``per_token``, ``p99``, ``class_3``."""
    return all(
        (_without_number(part) in _CONTEXT | _SUFFIXES and previous != "per") or (previous == "per" and part in _UNITS)
        for previous, part in zip(["", *after], after, strict=False)
    )


def _goal_of_negated(before: list[str], phrase: list[str], goal: str) -> str | None:
    """Return the goal of ``neg_mean_squared_error``. A negative class has metrics, too: ``negative_recall``."""
    last = max(index for index, part in enumerate(before) if part in _NEGATIONS)
    between = before[last + 1 :]
    is_loss_of_class = not between and phrase[-1] in _DERIVED_LOSSES
    if is_loss_of_class or not _BETWEEN.issuperset(between) or (goal == MAX and phrase[-1] not in _LIKELIHOODS):
        return None
    return _OPPOSITE[goal]


def _without_number(part: str) -> str:
    return part.rstrip("0123456789")
