"""OpenCompass as a client of the served endpoint: its configuration, its command, its environment.

What each setting is for (OpenCompass 0.5.4):

* ``OpenAISDK``: the older ``OpenAI`` class repeats a request that got HTTP 500 for ever.
* ``mode='none'``: no truncation; the other modes cut prompts without a word.
* ``max_seq_len`` with slack: the output limit shrinks silently when prompt, output and 100 more
  tokens do not fit.
* ``NaivePartitioner``: others split a data set, and RULER evaluators then score a part as if it
  were the whole.
* ``--debug``: one process, and a failure has an exit code; without it every failure exits 0.
* ``-r NAME``: a fixed folder. Predictions in it are reused by name alone, so NAME carries the
  digest of the data.
"""

from __future__ import annotations

import json
import pprint
import subprocess
from pathlib import Path
from typing import Any

from adrbench.eval.dataset import CONTROL, Dataset
from adrbench.job import JobError

MODEL = "served"  # OpenCompass's name of the model: the folder of the predictions
SLACK_TOKENS = 512  # chat template, and the 100 tokens that OpenCompass keeps free
ATTEMPTS = 2
# A served name that contains one of these is taken for a reasoning model: no temperature is sent.
REASONING_NAMES = ("o1", "o3", "o4", "gpt-5")


def chat_template(model: Path) -> str:
    """The chat template of a Hugging Face folder, empty where there is none."""
    separate = model / "chat_template.jinja"
    if separate.is_file():
        return separate.read_text(encoding="utf-8")
    try:
        value = json.loads((model / "tokenizer_config.json").read_text(encoding="utf-8")).get("chat_template", "")
    except (OSError, ValueError):
        return ""
    return value if isinstance(value, str) else json.dumps(value)


def thinking(model: Path, asked: str) -> tuple[str, dict[str, Any]]:
    """(what the evidence states, extra request body) for the asked thinking mode.

    Raises:
        JobError: ``thinking`` when a mode is asked for that the chat template does not have.
    """
    if "enable_thinking" not in chat_template(model):
        if asked == "on":
            raise JobError("thinking", f"model.thinking: on, but the chat template of {model} has no enable_thinking")
        return "model has none", {}
    on = asked == "on"
    return ("on" if on else "off"), {"chat_template_kwargs": {"enable_thinking": on}}


def _dataset(dataset: Dataset, folder: Path, control: bool) -> dict[str, Any]:
    name = dataset.name + (CONTROL if control else "")
    return {
        "abbr": name,
        "type": "opencompass.datasets.CustomDataset",
        "path": str(folder / f"{name}.jsonl"),
        "local_mode": True,
        "reader_cfg": {"input_columns": ["prompt"], "output_column": "answers"},
        "infer_cfg": {
            "prompt_template": {
                "type": "opencompass.openicl.icl_prompt_template.PromptTemplate",
                "template": {"round": [{"role": "HUMAN", "prompt": "{prompt}"}]},
            },
            "retriever": {"type": "opencompass.openicl.icl_retriever.ZeroRetriever"},
            "inferencer": {
                "type": "opencompass.openicl.icl_inferencer.GenInferencer",
                "max_out_len": dataset.max_new_tokens,
                "dump_timer": True,
            },
        },
        "eval_cfg": {"evaluator": {"type": dataset.task.evaluator}},
    }


def config(
    datasets: list[Dataset],
    folder: Path,
    *,
    base_url: str,
    served_name: str,
    tokenizer: Path,
    concurrency: int,
    request_timeout_s: int,
    control: bool,
    extra_body: dict[str, Any],
) -> str:
    """The configuration as Python text: plain data, no imports, no key.

    Raises:
        JobError: ``served-name`` when OpenCompass would take the model for a reasoning model.
    """
    taken = [name for name in REASONING_NAMES if name in served_name]
    if taken:
        raise JobError("served-name", f"served model name {served_name!r} contains {taken[0]!r}; choose another name")
    longest = max(sample.prompt_tokens + dataset.max_new_tokens for dataset in datasets for sample in dataset.samples)
    samples = max(len(dataset.samples) for dataset in datasets)
    model = {
        "abbr": MODEL,
        "type": "opencompass.models.OpenAISDK",
        "path": served_name,
        "openai_api_base": f"{base_url}/v1",
        "key": "ENV",
        "tokenizer_path": str(tokenizer),
        "meta_template": {
            "round": [
                {"role": "HUMAN", "api_role": "HUMAN"},
                {"role": "BOT", "api_role": "BOT", "generate": True},
            ]
        },
        "temperature": 0.0,
        "query_per_second": 1000,
        # All prompts of a data set in one batch, so that a slow answer does not hold up a batch of few.
        "batch_size": samples,
        "max_workers": concurrency,
        "max_seq_len": longest + SLACK_TOKENS,
        "mode": "none",
        "retry": ATTEMPTS,
        "timeout": request_timeout_s,
    }
    if extra_body:
        model["extra_body"] = extra_body
    runner = {"type": "opencompass.runners.LocalRunner", "max_num_workers": 1}
    parts = {
        "models": [model],
        "datasets": [
            _dataset(d, folder, without) for d in datasets for without in ((False, True) if control else (False,))
        ],
        "infer": {
            "partitioner": {"type": "opencompass.partitioners.NaivePartitioner"},
            "runner": {**runner, "task": {"type": "opencompass.tasks.OpenICLInferTask"}},
        },
        "eval": {
            "partitioner": {"type": "opencompass.partitioners.NaivePartitioner"},
            "runner": {**runner, "task": {"type": "opencompass.tasks.OpenICLEvalTask"}},
        },
    }
    return "".join(f"{key} = {pprint.pformat(value, width=110, sort_dicts=False)}\n" for key, value in parts.items())


def argv(python: str, config_path: Path, work: Path, name: str, samples: Path, trusted: bool = False) -> list[str]:
    """The client command: OpenCompass's own command line and the per-sample scores, in one process."""
    options = {"--work": str(work), "--name": name, "--samples": str(samples)}
    return [
        python,
        "-m",
        "adrbench.eval.samples",
        str(config_path),
        *(part for item in options.items() for part in item),
        *(["--trust-remote-code"] if trusted else []),
    ]


def environment(cache: Path) -> dict[str, str]:
    """A cache of its own for each run, no hub, one thread, no GPU for a client that only sends requests."""
    return {
        "HF_HOME": str(cache),
        "HF_DATASETS_OFFLINE": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "TRANSFORMERS_VERBOSITY": "error",
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "CUDA_VISIBLE_DEVICES": "",
    }


def check_installed(python: str, version: str) -> str:
    """The version of OpenCompass in the eval interpreter; asked before a server is started.

    Raises:
        JobError: ``no-opencompass`` when the interpreter or the package is missing or of another version.
    """
    code = "import importlib.metadata as m; print(m.version('opencompass'))"
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JobError("no-opencompass", f"eval.python: {python} cannot be run ({error}); run `make setup`") from None
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise JobError("no-opencompass", f"eval.python: {python} has no opencompass ({last}); run `make setup`")
    found = done.stdout.strip()
    if found != version:
        raise JobError("no-opencompass", f"eval.python: {python} has opencompass {found}, asked for {version}")
    return found
