"""Whether higher or lower values of a metric are better, by its name and by the tags of its runs."""

from __future__ import annotations

import pytest

from mlworkbench.metric_goal import find_goal, goal_from_name

HIGHER = """
accuracy Accuracy acc val_acc top5_acc acc@1 eval/accuracy val_sparse_categorical_accuracy f1 f1_score val_f1 macro-F1
fbeta auc roc_auc auroc validation-auc aucpr average_precision precision recall recall@10 sensitivity specificity r2
r2_score R^2 mIoU iou dice jaccard kappa mcc bleu rougeL rouge1 meteor chrf ndcg@5 map@3 mAP mAP50 mrr psnr ssim
reward mean_reward episode_return win_rate success_rate hit_rate score test.score explained_variance log_likelihood
elbo spearman pearson AP AP50 box_ap tpr exact_match
ep_rew_mean samples_per_second tokens/s throughput fps neg_mean_squared_error neg_log_loss training_score
validation_1-auc top-5-accuracy acc5 bleu4 split0_test_score mean_test_score best_cv_score neg_brier_score acc_norm,none
AP-small metrics/mAP50-95(B) rougeLsum rouge1_fmeasure accuracy_score_X_test
recall_class_1 test_auc_ovr_weighted map_at_10 accuracy/val train_steps_per_second best_val_acc
""".split()
LOWER = """
loss Loss val_loss valLoss train/loss loss_epoch validation_0-logloss binary_logloss mlogloss logloss log_loss
hamming_loss error test/error error_rate merror err mae val_mae MSE rmse rmsle mape smape mean_squared_error
mean_absolute_error perplexity ppl eval_perplexity nll neg_log_likelihood negative_log_likelihood cross_entropy
crossentropy categorical_crossentropy kl_divergence WER cer fid lpips brier brier_score davies_bouldin_score regret
latency latency_ms p99_latency inference_latency runtime train_runtime duration valid_0-l2 l1 bits_per_byte bpb
fpr miss_rate rank_loss aic valid_1-l2 f1_loss dice/loss loss_per_token latency_p99 word_error_rate best_val_loss
val_loss/dataloader_idx_0 loss_min inaccuracy
""".split()
UNKNOWN = """
value objective x width lossless epoch step lr thing entropy time accommodation errands map_size scores_file k
std_test_score rank_test_score std_test_neg_mean_squared_error accuracy_std accuracy_drop loss_scale reward_threshold
score_rank return_code
score_time mean_score_time one_minus_auc 1-auc 1_minus_accuracy 1/accuracy val/1-auc inverse_accuracy -loss acc*lr
time_to_accuracy accuracy_time accuracy_penalty ap_cost accuracy_threshold loss_something accuracy_of_time
loss_improvement error_reduction loss_reduction perplexity_reduction brier_skill_score mAP_improvement map_50_std
anomaly_score outlier_score risk_score toxicity_score best_score latency_speedup attack_success_rate profit_loss
best_acc_epoch best_loss_epoch acc_steps gradient_acc_steps grad_acc precision_bits mixed_precision num_recall_samples
l1_norm l2_norm l2_reg reg_l2 episode_duration negative_recall neg_loss fpr@95tpr tpr_at_1_fpr loss_per_second
""".split()


@pytest.mark.parametrize("name", HIGHER)
def test_names_where_higher_is_better(name):
    assert goal_from_name(name) == "max"


@pytest.mark.parametrize("name", LOWER)
def test_names_where_lower_is_better(name):
    assert goal_from_name(name) == "min"


@pytest.mark.parametrize("name", UNKNOWN)
def test_names_that_say_nothing(name):
    assert goal_from_name(name) is None


class Run:
    def __init__(self, metrics, tags=None):
        self.metrics = metrics
        self.tags = tuple(f"{name}={value}" for name, value in (tags or {}).items()) + ("team",)


def test_direction_of_an_optuna_study():
    trials = [
        Run({"value": 1.0, "time": 3.0}, {"direction": "MINIMIZE"}),
        Run({"value": 2.0}, {"direction": "MINIMIZE"}),
    ]
    assert find_goal("value", trials) == "min"
    assert find_goal("time", trials) is None, "the direction is that of the objective"
    assert find_goal("value", [Run({"value": 1.0}, {"direction": "MAXIMIZE"})]) == "max"
    assert find_goal("accuracy", [Run({"accuracy": 1.0}, {"direction": "MINIMIZE"})]) == "min", "its only metric"
    assert find_goal("accuracy", [Run({"accuracy": 1, "value": 2}, {"direction": "MINIMIZE"})]) == "max", "of another"
    assert find_goal("width", [Run({"width": 1, "value": 2}, {"direction": "MINIMIZE"})]) is None, "of another"


def test_tags_as_optuna_writes_them():
    """The tags of a trial, recorded with optuna-integration 5.0. The name of the metric implies nothing."""
    tags = {
        "number": "2",
        "datetime_start": "2026-11-19 13:42:20.499305",
        "state": "COMPLETE",
        "direction": "MINIMIZE",
        "x_distribution": "FloatDistribution(high=1.0, log=False, low=-1.0, step=None)",
    }
    assert find_goal("objective_x", [Run({"objective_x": 0.012}, tags)]) == "min"


@pytest.mark.parametrize("direction", ["['MINIMIZE', 'MAXIMIZE']", "north", "", 7, None])
def test_directions_that_are_none(direction):
    assert find_goal("value", [Run({"value": 1.0}, {"direction": direction})]) is None


def test_runs_that_disagree_leave_the_goal_open():
    runs = [Run({"value": 1.0}, {"direction": "MINIMIZE"}), Run({"value": 2.0}, {"direction": "MAXIMIZE"})]
    assert find_goal("value", runs) is None


def test_tags_of_users_name_the_goal():
    assert find_goal("thing", [Run({"thing": 1.0}, {"goal": "min"})]) == "min"
    assert find_goal("thing", [Run({"thing": 1.0}, {"goal.thing": "max", "goal": "min"})]) == "max", (
        "the more exact one"
    )
    assert find_goal("loss", [Run({"loss": 1.0}, {"goal.loss": "max"})]) == "max"


@pytest.mark.parametrize("statement", [{"goal": "max"}, {"direction": "MAXIMIZE"}])
def test_a_statement_that_contradicts_the_name_of_one_of_several_metrics(statement):
    runs = [Run({"loss": 1.0, "acc": 2.0}, statement)]
    assert find_goal("loss", runs) is None, "either may be wrong"
    assert find_goal("acc", runs) == "max", "they agree"
    slowest = [Run({"acc": 2.0, "epoch_time": 9.0}, statement)]
    assert find_goal("epoch_time", slowest) is None, "the statement is about acc"
    assert find_goal("loss", runs, {"loss": "min"}) == "min", "the project decides"


def test_goals_of_the_project():
    goals = {"width": "min", "loss": "max"}
    assert find_goal("width", [Run({"width": 1.0})], goals) == "min"
    assert find_goal("loss", [Run({"loss": 1.0})], goals) == "max", "takes precedence over the name"
    assert find_goal("width", [Run({"width": 1.0}, {"goal.width": "max"})], goals) == "max", "not over the run"
    assert find_goal("height", [Run({"height": 1.0})], goals) is None
