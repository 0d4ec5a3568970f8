"""The streaming reader against json.load on traces in Kineto's layout and in others, whole and damaged."""

import gzip
import json
import random
import tracemalloc

import pytest
from adrbench.profile import trace as trace_module
from adrbench.profile.trace import TraceError, TraceReader, is_complete

NAMES = [
    "aten::mm",
    'he said "ph": "X", "cat"',
    "back\\slash",
    "naïve µ 中文",
    "tab\there",
    "aten::add_",
    "}]\n  },\n  {",
]


def kineto(events, tail=True):
    """Text in the layout that PyTorch writes: one field a line, events indented by two."""
    parts = []
    for event in events:
        fields = []
        for key in ("ph", "cat", "name", "pid", "tid", "ts", "dur"):
            if key in event:
                value = f"{event[key]:.3f}" if key in ("ts", "dur") else json.dumps(event[key])
                fields.append(f'"{key}": {value}')
        args = json.dumps(event.get("args", {}))
        parts.append("  {\n    " + ",\n    ".join(fields) + ',\n    "args": {\n      ' + args[1:-1] + "\n    }\n  }")
    head = '{\n    "schemaVersion": 1,\n    "distributedInfo": {"rank": 0},\n    "traceEvents": [\n    \n'
    return head + ",\n".join(parts) + ('\n  ],"traceName": "/tmp/a.json" }' if tail else "")


def random_events(count, seed=1):
    choose = random.Random(seed)
    now, events = (
        5_113_519_211_848.144,
        [{"ph": "M", "name": "process_name", "pid": 7, "tid": 0, "args": {"name": "w"}}],
    )
    for i in range(count):
        now += choose.random() * 50
        event = {"ph": "X", "cat": "cpu_op", "name": choose.choice(NAMES), "pid": 7, "tid": choose.choice([7, 8])}
        event |= {"ts": round(now, 3), "dur": round(choose.random() * 30, 3), "args": {"External id": i, "s": NAMES[1]}}
        events.append(event)
        if choose.random() < 0.01:
            events.append({"ph": "i", "name": "mark", "pid": "", "tid": "", "ts": now})
    return events


def expected(document):
    return [
        (e["cat"], e["name"], e["pid"], e["tid"], e["ts"], e["dur"])
        for e in document["traceEvents"]
        if e.get("ph") == "X"
    ]


def decoded(reader):
    return [
        (cat.decode(), json.loads(b'"' + name + b'"'), json.loads(pid), json.loads(tid), float(ts), float(dur))
        for batch in reader.batches()
        for cat, name, pid, tid, ts, dur in batch
    ]


@pytest.fixture(params=[500, 4096, 1 << 20], ids=lambda n: f"chunk{n}")
def chunk(request, monkeypatch):
    monkeypatch.setattr(trace_module, "CHUNK_BYTES", request.param)


def kineto_accelerator(events):
    """The layout of traces with device activity: several fields a line, and flow events between."""
    text = kineto(events)
    for key in ("cat", "name", "pid", "tid"):
        text = text.replace(f',\n    "{key}": ', f', "{key}": ')
    flow = '  {\n    "ph": "s", "id": 5, "pid": 7, "tid": 7, "ts": 1.000,\n    "cat": "ac2g", "name": "ac2g"\n  },\n'
    return text.replace('  {\n    "ph": "X"', flow + '  {\n    "ph": "X"', 30)


LAYOUTS = {
    "kineto": kineto,
    "kineto-accelerator": kineto_accelerator,
    "minified": lambda events: json.dumps({"traceEvents": events}, separators=(",", ":"), ensure_ascii=False),
    "indented": lambda events: json.dumps({"a": "[", "traceEvents": events, "z": [{"ph": "X"}]}, indent=1),
    "bare-array": lambda events: json.dumps(events),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("packed", [True, False], ids=["gzip", "plain"])
def test_same_spans_as_json_load(tmp_path, chunk, layout, packed):
    events = random_events(400)
    text = LAYOUTS[layout](events).encode()
    file = tmp_path / "t.pt.trace.json"
    file.write_bytes(gzip.compress(text) if packed else text)
    document = json.loads(text)
    document = document if isinstance(document, dict) else {"traceEvents": document}
    reader = TraceReader(file)
    assert decoded(reader) == expected(document)
    assert reader.events == len(document["traceEvents"])
    assert reader.raw_bytes == len(text)
    assert not reader.loss.any


def test_quick_path_is_taken_for_kinetos_layout(tmp_path, monkeypatch):
    """Without this the speed could be lost unseen: all but the last chunk must go by the expression."""
    monkeypatch.setattr(trace_module, "CHUNK_BYTES", 4096)
    file = tmp_path / "t.json"
    # A raw line end cannot stand in a name, so only the last of these names is out of the ordinary.
    file.write_text(kineto(random_events(400)))
    scanned = []
    original = TraceReader._scan
    monkeypatch.setattr(TraceReader, "_scan", lambda self, pending: scanned.append(1) or original(self, pending))
    assert sum(len(batch) for batch in TraceReader(file).batches()) == 400
    assert len(scanned) <= 4


def test_gzip_of_several_members(tmp_path):
    text = kineto(random_events(50)).encode()
    file = tmp_path / "t.json.gz"
    file.write_bytes(gzip.compress(text[:2000]) + gzip.compress(text[2000:]) + bytes(64))
    reader = TraceReader(file)
    assert decoded(reader) == expected(json.loads(text))
    assert not reader.loss.any
    assert is_complete(file)


def test_truncated_gzip_keeps_what_came_before_and_says_so(tmp_path):
    text = kineto(random_events(2000)).encode()
    file = tmp_path / "t.json.gz"
    packed = gzip.compress(text)
    file.write_bytes(packed[: len(packed) // 2])
    reader = TraceReader(file)
    spans = decoded(reader)
    assert spans == expected(json.loads(text))[: len(spans)]
    assert 100 < len(spans) < 2000
    assert reader.loss.truncated
    assert not is_complete(file)


def test_flipped_bytes_in_gzip_are_noticed(tmp_path):
    packed = bytearray(gzip.compress(kineto(random_events(8000)).encode()))
    packed[len(packed) * 3 // 4] ^= 0xFF
    file = tmp_path / "t.json.gz"
    file.write_bytes(packed)
    reader = TraceReader(file)
    assert 0 < sum(len(batch) for batch in reader.batches()) <= 8000
    assert reader.loss.any
    assert not is_complete(file)


def test_truncated_plain_trace_counts_the_cut_event(tmp_path):
    text = kineto(random_events(300))
    file = tmp_path / "t.json"
    file.write_text(text[: text.rfind('"dur"')])
    reader = TraceReader(file)
    assert len(decoded(reader)) == 299
    assert reader.loss.truncated
    assert reader.loss.undecodable_events == 1


def test_damaged_event_is_counted_and_the_rest_is_read(tmp_path):
    events = random_events(100)
    text = kineto(events)
    start = text.index('"External id": 50')
    file = tmp_path / "t.json"
    file.write_text(text[:start] + "\x01{{" + text[start + 3 :])
    reader = TraceReader(file)
    ids = len(decoded(reader))
    assert ids == 99
    assert reader.loss.undecodable_events == 1
    assert not reader.loss.truncated


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "nothing to read"),
        (gzip.compress(b""), "nothing to read"),
        (gzip.compress(b"{}")[:5], "nothing to read"),
        (b"{}", "no traceEvents"),
        (b'{"traceEvents": []}', "without events"),
        (b"PK\x03\x04 not a trace", "no traceEvents"),
    ],
    ids=["empty", "empty-gzip", "stub", "object", "no-events", "other-format"],
)
def test_unreadable_trace_is_refused(tmp_path, content, message):
    file = tmp_path / "t.json.gz"
    file.write_bytes(content)
    with pytest.raises(TraceError, match=rf"t\.json\.gz: .*{message}"):
        list(TraceReader(file).batches())


def test_event_without_an_end_is_refused_not_hoarded(tmp_path, monkeypatch):
    monkeypatch.setattr(trace_module, "CHUNK_BYTES", 4096)
    monkeypatch.setattr(trace_module, "LARGEST_EVENT_BYTES", 20_000)
    file = tmp_path / "t.json"
    file.write_text('{"traceEvents": [{"ph": "X", "name": "' + "a" * 200_000)
    with pytest.raises(TraceError, match="damaged JSON"):
        list(TraceReader(file).batches())


def test_memory_does_not_grow_with_the_trace(tmp_path):
    """Five times the events must not take more memory. Cannot prove the bound at gigabytes."""

    def peak(count):
        file = tmp_path / f"{count}.json.gz"
        file.write_bytes(gzip.compress(kineto(random_events(count)).encode(), 1))
        tracemalloc.start()
        for _ in TraceReader(file).batches():
            pass
        top = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return top

    small, large = peak(8_000), peak(40_000)
    assert large < 1.5 * small
