"""The generated texts: right length, right answers, nothing given away to the control.

What this cannot prove: that a model's score on them says anything; the control in every baseline
run measures that.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from adrbench.eval import dataset
from adrbench.eval.spec import TaskSpec
from adrbench.eval.tasks import load_tasks
from adrbench.job import JobError
from adrbench.paths import PYTHONPATH

TASKS = load_tasks()
# The longest filler unit of each task, in tokens of the test tokenizer: how far below the target a text may end.
UNIT = {
    "multi_hop_qa": 70,
    "summary": 90,
    "retrieval_multi_point": 30,
    "aggregation_keyword_aggregation": 30,
}


def make(model_folder: Path, name: str, length: int, samples: int = 3, seed: int = 7) -> dataset.Dataset:
    settings = TaskSpec(name=name, length_tokens=length, samples=samples, seed=seed)
    return dataset.generate(TASKS[name], settings, dataset.token_counter(model_folder))


def test_a_task_is_a_file_of_its_name() -> None:
    import adrbench.eval.tasks as package

    files = {path.stem for path in Path(package.__path__[0]).glob("*.py")} - {"__init__", "base"}
    assert set(TASKS) == files
    assert len({task.title for task in TASKS.values()}) == 4


@pytest.mark.parametrize("length", [512, 2048, 8192])
@pytest.mark.parametrize("name", list(TASKS))
def test_length_is_just_below_the_target(model_folder: Path, name: str, length: int) -> None:
    data = make(model_folder, name, length)
    for sample in data.samples:
        assert length - UNIT[name] <= sample.prompt_tokens <= length
        assert sample.control_tokens < 60


@pytest.mark.parametrize("name", list(TASKS))
def test_control_asks_the_same_without_the_document(model_folder: Path, name: str) -> None:
    for sample in make(model_folder, name, 512, samples=6).samples:
        assert sample.document in sample.prompt
        assert sample.document not in sample.control
        assert sample.prompt.splitlines()[-1] == sample.control.splitlines()[-1], "the question must be the same"
        if name != "summary":  # the reference summary is in its own words
            assert all(answer in sample.document for answer in sample.answers)
        assert not any(answer in sample.control for answer in sample.answers)


@pytest.mark.parametrize("name", list(TASKS))
def test_samples_differ_and_repeat_only_with_the_seed(model_folder: Path, name: str) -> None:
    first, again, other = (make(model_folder, name, 512, seed=seed) for seed in (1, 1, 2))
    assert first.rows() == again.rows()
    assert first.rows() != other.rows()
    assert len({sample.prompt for sample in first.samples}) == len(first.samples)


def test_texts_do_not_depend_on_the_process(model_folder: Path) -> None:
    """Python salts ``hash`` per process; a text that depended on it would differ between arms."""
    code = (
        "import sys; from pathlib import Path\n"
        "from adrbench.eval import dataset; from adrbench.eval.spec import TaskSpec\n"
        "names = sys.argv[2:]; count = dataset.token_counter(Path(sys.argv[1]))\n"
        "sets = dataset.build([TaskSpec(name=n, length_tokens=400, samples=3, seed=3) for n in names], {}, count)\n"
        "print(dataset.digest(sets, True))"
    )
    digests = set()
    for salt in ("1", "2"):
        argv = [sys.executable, "-c", code, str(model_folder), *TASKS]
        environment = {"PYTHONPATH": str(PYTHONPATH), "PYTHONHASHSEED": salt, "PATH": "/usr/bin:/bin"}
        digests.add(subprocess.run(argv, env=environment, capture_output=True, text=True, check=True).stdout.strip())
    assert len(digests) == 1


def test_longer_text_keeps_question_and_answers(model_folder: Path) -> None:
    for name in TASKS:
        if name == "aggregation_keyword_aggregation":
            continue  # its answers are properties of the whole text
        short, long = make(model_folder, name, 512).samples, make(model_folder, name, 4096).samples
        assert [s.answers for s in short] == [s.answers for s in long]
        assert [s.control for s in short] == [s.control for s in long]


def test_too_short_a_target_is_refused_with_the_needed_length(model_folder: Path) -> None:
    with pytest.raises(JobError, match=r"summary.*128 tokens are too few.*needs \d+"):
        make(model_folder, "summary", 128)


def test_retrieval_answers_are_exactly_the_values_of_the_asked_keys(model_folder: Path) -> None:
    data = make(model_folder, "retrieval_multi_point", 1024, samples=6)
    assert {sample.form for sample in data.samples} == {"multikey", "multivalue", "multiquery"}
    for sample in data.samples:
        hidden = re.findall(r"One of the code numbers for (\S+) is: (\d+)\.", sample.document)
        assert len(hidden) == 4
        asked = sample.control.splitlines()[0]
        assert sorted(value for key, value in hidden if key in asked) == sorted(sample.answers)


def test_aggregation_answers_can_be_counted(model_folder: Path) -> None:
    for sample in make(model_folder, "aggregation_keyword_aggregation", 1500, samples=6).samples:
        if sample.form == "variables":
            value = re.findall(r"value (\d+)", sample.control)[0]
            holders, links = re.findall(rf"VAR (\w+) = {value}\.", sample.document), sample.document
            while new := [
                b for b, a in re.findall(r"VAR (\w+) = VAR (\w+)\.", links) if a in holders and b not in holders
            ]:
                holders += new
            assert sorted(holders) == sorted(sample.answers)
        else:
            ranked = Counter(sample.document.split()).most_common(4)
            assert {word for word, _ in ranked[:3]} == set(sample.answers)
            assert ranked[2][1] > 2 * ranked[3][1], "the answer must be clear"


def test_qa_needs_the_second_passage(model_folder: Path) -> None:
    """River questions: no passage holds both the person that is asked about and the river."""
    rivers = [s for s in make(model_folder, "multi_hop_qa", 1024, samples=10).samples if s.form == "birthplace-river"]
    assert rivers
    for sample in rivers:
        person = re.findall(r"where (.+) was born", sample.control)[0]
        passages = sample.document.split("\n\n")
        assert not any(person in passage and f"river {sample.answers[0]}" in passage for passage in passages)
        town = next(re.findall(r"born in (\w+) in", p)[0] for p in passages if p.startswith(person))
        assert any(p.startswith(town) and f"river {sample.answers[0]}." in p for p in passages)


def test_summary_reference_has_the_findings_of_the_report(model_folder: Path) -> None:
    for sample in make(model_folder, "summary", 1024).samples:
        reference = sample.answers[0]
        assert 60 < len(reference.split()) < 200
        for finding in re.findall(r"We found that (?:the \w+ \w+) (.+?)\.", sample.document):
            assert finding in reference
        assert reference not in sample.document


def test_rows_survive_the_file(tmp_path: Path, model_folder: Path) -> None:
    data = make(model_folder, "multi_hop_qa", 512)
    assert dataset.write([data], tmp_path, control=True) == ["multi_hop_qa.jsonl", "multi_hop_qa-control.jsonl"]
    with open(tmp_path / "multi_hop_qa.jsonl", encoding="utf-8") as stream:
        assert [json.loads(line) for line in stream] == data.rows()


def test_digest_sees_every_part(model_folder: Path) -> None:
    base = make(model_folder, "multi_hop_qa", 512)
    digests = {dataset.digest([base], False), dataset.digest([base], True)}
    digests.add(dataset.digest([make(model_folder, "multi_hop_qa", 600)], False))
    longer = dataset.Dataset(
        base.task, base.settings.model_copy(update={"max_new_tokens": 5}), base.samples, base.source
    )
    digests.add(dataset.digest([longer], False))
    assert len(digests) == 4


def test_unknown_task_and_damaged_tokenizer_are_named(tmp_path: Path, model_folder: Path) -> None:
    count = dataset.token_counter(model_folder)
    with pytest.raises(JobError, match="'nope' is not a task; known: aggregation_keyword_aggregation"):
        dataset.build([TaskSpec(name="nope", length_tokens=512, samples=2)], {}, count)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(JobError, match=r"tokenizer\.json"):
        dataset.token_counter(tmp_path)


def test_two_lengths_of_one_class_are_two_tasks_of_different_texts() -> None:
    """Names tell them apart; each has questions of its own, so their pairs are independent."""
    settings = [
        TaskSpec(name=f"{length}", task="retrieval_multi_point", length_tokens=length, samples=3, seed=1)
        for length in (300, 600)
    ]
    short, long = dataset.build(settings, {}, lambda text: len(text.split()))
    assert (short.name, long.name) == ("300", "600")
    assert short.task is long.task
    assert not {s.answers[0] for s in short.samples} & {s.answers[0] for s in long.samples}


def test_an_unknown_class_is_named() -> None:
    setting = TaskSpec(name="long", task="retrieval", length_tokens=300, samples=3)
    with pytest.raises(JobError, match="'retrieval' is not a task"):
        dataset.build([setting], {}, len)
