"""Import names of packages that differ from the package names."""

from __future__ import annotations

import re

# Packages that install the shared google modules.
_GOOGLE = ("google-cloud-storage", "google-cloud-bigquery", "google-cloud-aiplatform", "google-api-python-client")
# Import name → packages that provide it, the suggested one first. Names are normalized.
PROVIDERS: dict[str, tuple[str, ...]] = {
    "absl": ("absl-py",),
    "attr": ("attrs",),
    "Bio": ("biopython",),
    "bs4": ("beautifulsoup4",),
    "Crypto": ("pycryptodome", "pycrypto"),
    "Cryptodome": ("pycryptodomex",),
    "cv2": ("opencv-python-headless", "opencv-python", "opencv-contrib-python", "opencv", "py-opencv", "libopencv"),
    "dateutil": ("python-dateutil",),
    "discord": ("discord-py",),
    "docx": ("python-docx",),
    "dotenv": ("python-dotenv",),
    "faiss": ("faiss-cpu", "faiss-gpu", "faiss"),
    "fitz": ("pymupdf",),
    "git": ("gitpython",),
    "github": ("pygithub",),
    "google.api_core": ("google-api-core", *_GOOGLE),
    "google.auth": ("google-auth", "google-api-core", "google-genai", "tensorboard", *_GOOGLE),
    "google.oauth2": ("google-auth", "google-api-core", "google-genai", "tensorboard", *_GOOGLE),
    "google.protobuf": ("protobuf", "google-api-core", "grpcio-tools", *_GOOGLE),
    "grpc": ("grpcio",),
    "hydra": ("hydra-core",),
    "igraph": ("python-igraph", "igraph"),
    "ignite": ("pytorch-ignite",),
    "IPython": ("ipython",),
    "jose": ("python-jose",),
    "jwt": ("pyjwt",),
    "Levenshtein": ("levenshtein", "python-levenshtein"),
    "lightning": ("lightning", "pytorch-lightning"),
    "magic": ("python-magic",),
    "markdown": ("markdown",),
    "mpl_toolkits": ("matplotlib",),
    "msgpack": ("msgpack", "msgpack-python"),
    "MySQLdb": ("mysqlclient",),
    "nacl": ("pynacl",),
    "OpenSSL": ("pyopenssl",),
    "osgeo": ("gdal",),
    "ot": ("pot",),
    "PIL": ("pillow", "pillow-simd"),
    "pkg_resources": ("setuptools",),
    "pptx": ("python-pptx",),
    "psycopg2": ("psycopg2-binary", "psycopg2"),
    "pylab": ("matplotlib",),
    "pythoncom": ("pywin32",),
    "pytorch_lightning": ("pytorch-lightning", "lightning"),
    "ruamel.yaml": ("ruamel.yaml",),
    "s3fs": ("s3fs",),
    "sentence_transformers": ("sentence-transformers",),
    "serial": ("pyserial",),
    "setuptools": ("setuptools",),
    "SimpleITK": ("simpleitk",),
    "skimage": ("scikit-image",),
    "sklearn": ("scikit-learn", "scikit-learn-intelex"),
    "slugify": ("python-slugify",),
    "snappy": ("python-snappy",),
    "skopt": ("scikit-optimize",),
    "sksurv": ("scikit-survival",),
    "socks": ("pysocks",),
    "tables": ("tables", "pytables"),
    "talib": ("ta-lib",),
    "tensorboardX": ("tensorboardx",),
    "tensorflow": ("tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tf-nightly", "tensorflow-base"),
    "tensorflow_probability": ("tensorflow-probability",),
    "tlz": ("toolz",),
    "torch": ("torch", "pytorch", "pytorch-cpu", "pytorch-gpu"),
    "tree": ("dm-tree",),
    "umap": ("umap-learn",),
    "usb": ("pyusb",),
    "websocket": ("websocket-client",),
    "win32api": ("pywin32",),
    "wx": ("wxpython",),
    "xgboost": ("xgboost", "py-xgboost", "xgboost-cpu"),
    "yaml": ("pyyaml",),
    "zmq": ("pyzmq",),
}

_NUMPY = ("numpy",)
_PANDAS = ("numpy", "dateutil", "pytz", "six")
_PLOTS = ("numpy", "PIL", "dateutil", "cycler", "pyparsing", "packaging", "six")
_LEARN = ("numpy", "scipy", "joblib", "threadpoolctl")
_TORCH = ("numpy", "typing_extensions", "filelock", "sympy", "networkx", "jinja2", "fsspec")
_FLOW = (
    *(
        "numpy",
        "keras",
        "h5py",
        "google.protobuf",
        "google.auth",
        "google.oauth2",
        "six",
        "tensorboard",
        "absl",
        "requests",
        "packaging",
        "grpc",
    ),
    *("setuptools", "pkg_resources", "wrapt", "termcolor", "typing_extensions", "PIL", "scipy"),
)
_HUB = ("requests", "yaml", "tqdm", "packaging", "filelock", "fsspec", "huggingface_hub", "typing_extensions")
# Package → imports that its dependencies provide, for unresolved environments. Used only to suppress warnings.
DEPENDENCY_IMPORTS: dict[str, tuple[str, ...]] = {
    "catboost": (*_PANDAS, *_PLOTS, "pandas", "matplotlib", "scipy", "plotly"),
    "datasets": (*_HUB, *_PANDAS, "pandas", "pyarrow", "dill", "multiprocess", "aiohttp", "xxhash"),
    "h5py": _NUMPY,
    "jax": (*_NUMPY, "scipy", "jaxlib", "ml_dtypes", "opt_einsum"),
    "keras": _FLOW,
    "lightgbm": (*_LEARN, "sklearn"),
    "lightning": (*_TORCH, "torch", "torchmetrics", "yaml", "tqdm", "packaging", "pytorch_lightning"),
    "matplotlib": _PLOTS,
    "mlflow": (*_PANDAS, *_PLOTS, *_LEARN, *_HUB, "pandas", "matplotlib", "sklearn", "sqlalchemy", "flask", "pyarrow"),
    "opencv-python": _NUMPY,
    "opencv-python-headless": _NUMPY,
    "pandas": _PANDAS,
    "pyspark": ("py4j",),
    "pytorch": _TORCH,
    "pytorch-lightning": (*_TORCH, "torch", "torchmetrics", "yaml", "tqdm", "packaging"),
    "requests": ("urllib3", "certifi", "idna", "charset_normalizer", "chardet"),
    "scikit-image": (*_NUMPY, "scipy", "PIL", "networkx", "imageio", "tifffile"),
    "scikit-learn": _LEARN,
    "scipy": _NUMPY,
    "seaborn": (*_PANDAS, *_PLOTS, "pandas", "matplotlib"),
    "sentence-transformers": (*_HUB, *_TORCH, *_LEARN, "transformers", "torch", "sklearn", "PIL"),
    "statsmodels": (*_PANDAS, "pandas", "scipy", "patsy"),
    "tensorflow": _FLOW,
    "tensorflow-cpu": _FLOW,
    "tensorflow-gpu": _FLOW,
    "torch": _TORCH,
    "torchaudio": (*_TORCH, "torch"),
    "torchvision": (*_TORCH, "torch", "PIL"),
    "transformers": (*_HUB, *_NUMPY, "regex", "tokenizers", "safetensors"),
    "xgboost": (*_NUMPY, "scipy"),
}


# Namespace packages that several distributions share: the next part of the name identifies the distribution.
_NAMESPACES = ("google.cloud", "google", "ruamel")


def import_name(module: str) -> str | None:
    """Return the part of a module name that identifies its package, or None if that is unknown.

    This is the first part, or more parts for namespace packages, such as ``google.cloud.storage``.
    Modules that start with an underscore belong to Python or to the module that imports them.
    """
    if module.startswith("_"):
        return None
    parts = module.split(".")
    for namespace in _NAMESPACES:
        length = namespace.count(".") + 1
        if parts[:length] == namespace.split("."):
            name = ".".join(parts[: length + 1])
            return None if name in _NAMESPACES or name.endswith(".*") else re.sub(r"_v\d\w*\Z", "", name)
    return parts[0]


def is_provider(package: str, name: str) -> bool:
    """Return whether a package may provide an import. Neither name needs to be normalized."""
    package = re.sub(r"[-_.]+", "-", package).lower()
    if package in PROVIDERS.get(name, ()):
        return True
    # For unlisted packages, the package name contains the import name, as in acme-tools and acme.
    parts = package.split("-")
    import_part = re.sub(r"[-_.]+", "-", name).lower()
    aliases = {package, package.removeprefix("py"), package.removeprefix("python-"), package.removesuffix("-python")}
    return import_part in aliases or set(import_part.split("-")) <= set(parts)


def suggest_package(name: str) -> str:
    """Return the package to install for an import."""
    return PROVIDERS[name][0] if name in PROVIDERS else re.sub(r"[_.]", "-", name).lower()
