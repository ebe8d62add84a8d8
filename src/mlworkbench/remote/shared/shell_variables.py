"""Variables that scripts take from the submitting user's shell by default, and the failures that they prevent.

The client passes them, and the target adds a hint if a script probably failed without one. A name belongs
in ``PORTABLE`` if its value selects a backend, a mode, or a label: such values are short, have the same
meaning on every machine, and are not secrets.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Collection, Optional

# Passed to every target.
PORTABLE = tuple(
    # backends of Keras, JAX, TensorFlow, PyTorch, and others
    "KERAS_BACKEND TF_USE_LEGACY_KERAS JAX_PLATFORMS JAX_PLATFORM_NAME JAX_ENABLE_X64 JAX_DISABLE_JIT JAX_DEBUG_NANS"
    " XLA_FLAGS XLA_PYTHON_CLIENT_PREALLOCATE XLA_PYTHON_CLIENT_MEM_FRACTION XLA_PYTHON_CLIENT_ALLOCATOR TF_XLA_FLAGS"
    " TF_CPP_MIN_LOG_LEVEL TF_DETERMINISTIC_OPS TF_ENABLE_ONEDNN_OPTS TF_FORCE_GPU_ALLOW_GROWTH"
    " PYTORCH_ALLOC_CONF PYTORCH_CUDA_ALLOC_CONF PYTORCH_ENABLE_MPS_FALLBACK TORCH_LOGS TORCH_DISTRIBUTED_DEBUG"
    " CUBLAS_WORKSPACE_CONFIG CUDA_LAUNCH_BLOCKING NCCL_DEBUG DGLBACKEND DDE_BACKEND GEOMSTATS_BACKEND MPLBACKEND"
    " PYTHONHASHSEED HYDRA_FULL_ERROR"
    # Hugging Face
    " HF_HUB_OFFLINE HF_DATASETS_OFFLINE TRANSFORMERS_OFFLINE HF_ENDPOINT HF_HUB_DISABLE_TELEMETRY"
    " HF_HUB_DISABLE_PROGRESS_BARS TRANSFORMERS_VERBOSITY DATASETS_VERBOSITY TOKENIZERS_PARALLELISM"
    " ACCELERATE_MIXED_PRECISION"
    # tracking
    " WANDB_MODE WANDB_DISABLED WANDB_SILENT WANDB_PROJECT WANDB_ENTITY WANDB_RUN_GROUP WANDB_JOB_TYPE WANDB_TAGS"
    " WANDB_BASE_URL COMET_MODE COMET_PROJECT_NAME COMET_WORKSPACE NEPTUNE_MODE NEPTUNE_PROJECT CLEARML_OFFLINE_MODE"
    " MLFLOW_TRACKING_URI MLFLOW_REGISTRY_URI MLFLOW_EXPERIMENT_NAME MLFLOW_TRACKING_USERNAME"
    " MLFLOW_TRACKING_INSECURE_TLS".split()
)
# Paths, thread counts, and instruction sets: valid only for processes on the user's own machine. With another
# instruction set, the last digits of results differ.
THIS_MACHINE = tuple(
    "HF_HOME HF_HUB_CACHE HF_DATASETS_CACHE TRANSFORMERS_CACHE SENTENCE_TRANSFORMERS_HOME TORCH_HOME KERAS_HOME"
    " TFHUB_CACHE_DIR TFDS_DATA_DIR NLTK_DATA SCIKIT_LEARN_DATA WANDB_DIR WANDB_CACHE_DIR XDG_CACHE_HOME MPLCONFIGDIR"
    " MLFLOW_TRACKING_SERVER_CERT_PATH"
    " OMP_NUM_THREADS MKL_NUM_THREADS OPENBLAS_NUM_THREADS BLIS_NUM_THREADS VECLIB_MAXIMUM_THREADS NUMEXPR_NUM_THREADS"
    " NUMEXPR_MAX_THREADS NUMBA_NUM_THREADS POLARS_MAX_THREADS RAYON_NUM_THREADS LOKY_MAX_CPU_COUNT"
    " TF_NUM_INTRAOP_THREADS TF_NUM_INTEROP_THREADS"
    " OPENBLAS_CORETYPE MKL_CBWR MKL_ENABLE_INSTRUCTIONS ONEDNN_MAX_CPU_ISA ATEN_CPU_CAPABILITY"
    " NPY_DISABLE_CPU_FEATURES NPY_ENABLE_CPU_FEATURES".split()
)
DEFAULT = PORTABLE + THIS_MACHINE

SECRET_PARTS = ("KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL")
_HARMLESS_WORDS = ("TOKENIZER",)  # they contain one of the parts

# Prefix of a variable's name, and a pattern for errors that are typical if the variable is not set. The patterns are
# compiled only after a failure, because every submit imports this module.
_SYMPTOMS = (
    ("KERAS_BACKEND", r"no module named '(tensorflow|torch|jax|theano|openvino)\b|\bkeras\b|invalid backend"),
    ("TF_USE_LEGACY_KERAS", r"\b(tf_)?keras\b"),
    ("JAX_PLATFORM", r"\bbackend\b|\bplatform\b|no module named 'jax"),
    ("DGLBACKEND", r"\bdgl\b|no module named '(tensorflow|torch|mxnet)\b"),
    ("DDE_BACKEND", r"\bdeepxde\b|no module named '(tensorflow|torch|jax|paddle)\b"),
    ("GEOMSTATS_BACKEND", r"no module named '(autograd|torch)\b"),
    ("MPLBACKEND", r"\bmatplotlib\b|\btkinter\b|\bdisplay\b|\bheadless\b|interactive framework"),
    ("PYTORCH_ENABLE_MPS_FALLBACK", r"\bMPS\b"),
    ("PYTORCH_", r"out of memory"),
    ("XLA_", r"out of memory|RESOURCE_EXHAUSTED"),
    ("HF_", r"hugging ?face|\bhf\.co\b|OfflineModeIsEnabled|LocalEntryNotFound"),
    ("TRANSFORMERS_", r"hugging ?face|\bhf\.co\b|OfflineModeIsEnabled|LocalEntryNotFound"),
    ("WANDB_", r"\bwandb\b|api_key not configured"),
    ("COMET_", r"\bcomet"),
    ("NEPTUNE_", r"\bneptune"),
    ("MLFLOW_", r"\bmlflow"),
    ("NLTK_DATA", r"\bnltk\b"),
)


def is_secret_name(name: str) -> bool:
    """Return whether a variable may contain a secret, judged by its name."""
    text = name.upper()
    for word in _HARMLESS_WORDS:
        text = text.replace(word, "")
    return any(part in text for part in SECRET_PARTS)


def unpassed_hint(error: str, unpassed: Collection[str]) -> Optional[str]:
    """Return the hint for an error that a variable would probably have prevented, or None.

    ``unpassed``: variables that were set when the run was submitted, but not passed to the script.
    """
    for prefix, pattern in _SYMPTOMS:
        for name in DEFAULT:
            if name.startswith(prefix) and name in unpassed and re.search(pattern, error, re.IGNORECASE):
                return (
                    "%s is set in your shell but was not passed to the script; use --env %s,"
                    " or add it to PassEnvironment in the run configuration" % (name, name)
                )
    return None
