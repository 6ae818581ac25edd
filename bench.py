"""Measures realMemory: quality and cost in one table, with rivals in the same run.

    python bench.py                          quick smoke, < 60 s, needs no data
    python bench.py quick FILE...            the same, plus `retrieval` on the files that exist
    python bench.py retrieval FILE...        recall@k, MRR, sessions; beside FTS5 (--pooled, --set)
    python bench.py ablation FILE            `retrieval`'s headline, one mechanism off at a time
    python bench.py pairs FILE...            what the novelty gate does with pairs of facts
    python bench.py abstain FILE             what `recall` refuses: cues asked of the wrong store
    python bench.py calibrate FILE           cosines of strangers and of cues, by embedder (--model)
    python bench.py writes                   `remember` against three bare SQLite inserts
    python bench.py startup                  whole processes: brief, sleep, serve; a working sleep
    python bench.py contention               many writers, one sentence at once, kill -9
    python bench.py scale 100000             recall, bytes and memory as the store grows
    python bench.py synthetic                hits on made-up facts; a smoke test, no evidence

`python bench.py COMMAND --help` lists the options. Every command prints the machine, Python,
SQLite, commit, n and seed, one table per question, and as the last line of stdout the whole run
as one JSON object. Times are wall times after a warm-up: medians and 95th percentiles. Absent
rivals are named as skipped.

Data files, one JSON object a line (gzip allowed):
  retrieval, abstain, ablation   {"store", "docs": [{id, text, speaker, session, date, caption?}],
                                  "queries": [{id, text, gold: [doc ids], cat}]}
  pairs                          {"a", "b", "relation": same|different|update|contradiction, "lang"}
                                  or {"a", "b", "label": 1|0}
Needs nothing but Python; `bm25s` and `numpy` are measured beside it where they are installed.
"""

from __future__ import annotations

import argparse
import ast
import gzip
import importlib.util
import json
import multiprocessing
import os
import platform
import random
import re
import shutil
import sqlite3
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import count, islice
from operator import mul
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from realmemory import (
    EmbeddingProvider,
    FastEmbedProvider,
    HashingEmbedder,
    Hippocampus,
    MemoryConfig,
    WriteResult,
    embedded_text,
)

HERE = Path(__file__).resolve().parent
SEED = 11
DEPTH = 50  # hits asked for where ranks are measured; MRR is taken over these
FIXED_NOW = datetime(2026, 1, 1, tzinfo=UTC).timestamp()  # for sets without dates
SWITCHES = (
    "use_keyword",
    "use_cosine",
    "use_association",
    "use_context",
    "use_vetoes",
    "use_decay",
)
Row = dict[str, Any]


# === 1. Statistics ================================================================================
# Nearest-rank quantiles (a figure that was really measured), percentile bootstrap over queries,
# AUROC by counting. Times of rivals are taken in the same rounds, in a new order each round: on a
# shared machine a ratio of neighbours in time says more than two absolute numbers.


def quantile(values: Sequence[float], q: float) -> float:
    """The nearest-rank q-quantile (0 for no values).

    >>> quantile([1, 2, 3, 4], 0.5), quantile([1, 2, 3, 4], 0.95)
    (2, 4)
    """
    ordered = sorted(values)
    return ordered[max(0, -(-int(q * 1000) * len(ordered) // 1000) - 1)] if ordered else 0.0


def median(values: Sequence[float]) -> float:
    """The nearest-rank median, so always one of the values."""
    return quantile(values, 0.5)


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean (0 for no values)."""
    return sum(values) / len(values) if values else 0.0


def bootstrap(values: Sequence[float], *, seed: int, resamples: int = 1000) -> tuple[float, float]:
    """The 95 % percentile interval of the mean of `values`."""
    if not values:
        return 0.0, 0.0
    rng = random.Random(seed)
    means = [mean(rng.choices(values, k=len(values))) for _ in range(resamples)]
    return quantile(means, 0.025), quantile(means, 0.975)


def auroc(positive: Sequence[float], negative: Sequence[float]) -> float:
    """The chance that a positive scores above a negative; ties count half.

    >>> auroc([0.9, 0.8], [0.1, 0.8])
    0.875
    """
    below: Counter[float] = Counter(negative)
    levels = sorted(below)
    won, cursor, seen = 0.0, 0, 0
    for score in sorted(positive):
        while cursor < len(levels) and levels[cursor] < score:
            seen += below[levels[cursor]]
            cursor += 1
        won += seen + 0.5 * below.get(score, 0)
    return won / (len(positive) * len(negative)) if positive and negative else 0.0


def timed(action: Callable[[], object]) -> float:
    """Seconds that `action` took."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def interleaved(
    actions: Mapping[str, Callable[[], float]], rounds: int, *, seed: int
) -> dict[str, list[float]]:
    """What each action returned in each round; one unmeasured warm-up, a new order every round."""
    rng = random.Random(seed)
    names = list(actions)
    for name in names:
        actions[name]()
    seen: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in rng.sample(names, len(names)):
            seen[name].append(actions[name]())
    return seen


# === 2. Report ====================================================================================
# One Run per command: what it prints is what it records, and the record is the last line.


def machine() -> Row:
    """What the figures depend on: hardware, interpreter, SQLite and the commit measured."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        found = re.search(r"model name\s*:\s*(.+)", info.read_text(errors="replace"))
        cpu = found[1] if found else cpu
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": cpu,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "commit": commit(),
    }


def commit() -> str:
    """The short commit, with `+` when the work tree differs; `unknown` outside a repository."""
    git = ("git", "-C", str(HERE))
    try:
        head = subprocess.run(
            (*git, "rev-parse", "--short", "HEAD"), capture_output=True, text=True, check=True
        )
        dirty = subprocess.run((*git, "status", "--porcelain"), capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head.stdout.strip() + ("+" if dirty.stdout.strip() else "")


class Run:
    """One run: prints header and tables as they come, the JSON object at the end."""

    def __init__(self, command: str, seed: int) -> None:
        self.record: Row = {"bench": command, "seed": seed, **machine(), "skipped": []}
        self.record.update(figures={}, tables={})
        self.started = time.perf_counter()
        print(
            f"realMemory bench: {command}\n{self.record['system']}, {self.record['cpu']}, "
            f"{self.record['cores']} cores, Python {self.record['python']}, "
            f"SQLite {self.record['sqlite']}, commit {self.record['commit']}, seed {seed}"
        )

    def table(self, title: str, rows: Sequence[Row]) -> None:
        """Print rows under their keys; numbers are aligned right."""
        self.record["tables"][title] = rows
        print(f"\n{title}")
        heads = list(dict.fromkeys(key for row in rows for key in row))
        cells = [heads, *([shown(row.get(head, "")) for head in heads] for row in rows)]
        widths = [max(len(line[i]) for line in cells) for i in range(len(heads))]
        for line in cells:
            padded = [
                cell.ljust(width) if i == 0 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(line, widths, strict=True))
            ]
            print("  " + "  ".join(padded).rstrip(), flush=True)

    def figure(self, name: str, value: float | int, note: str = "") -> None:
        """Record one headline figure and print it on a line of its own."""
        self.record["figures"][name] = round(value, 4)
        print(f"  {name}: {shown(value)}{'  ' + note if note else ''}", flush=True)

    def skip(self, what: str, why: str) -> None:
        """Name what was not measured, and why; once a run."""
        entry = {"what": what, "why": why}
        if entry not in self.record["skipped"]:
            self.record["skipped"].append(entry)
            print(f"  skipped {what}: {why}", flush=True)

    def finish(self) -> int:
        """Print the whole run as one JSON object, the last line; the exit status."""
        self.record["seconds"] = round(time.perf_counter() - self.started, 1)
        print(f"\n{self.record['seconds']} s")
        print(json.dumps(self.record, ensure_ascii=False, default=str))
        return 0


def shown(value: object) -> str:
    """A number at the precision that its size deserves, anything else as text.

    >>> shown(0.71234), shown(1234.5), shown(3), shown("x")
    ('0.712', '1,234', '3', 'x')
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{round(value):,}"
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"


# === 3. Data ======================================================================================
# Data sets are read from files that are named on the command line and never copied. Where only
# text is needed, it is the English of Python's own documentation: real sentences, on any machine.


class Doc(NamedTuple):
    """One turn of a dialogue, or one sentence of a text."""

    id: str
    text: str
    speaker: str = ""
    session: str = ""
    date: str = ""
    caption: str = ""

    @property
    def body(self) -> str:
        """The text to remember: what was said, then what the shared picture shows."""
        return f"{self.text}\n[image: {self.caption}]" if self.caption else self.text


class Query(NamedTuple):
    """A question and the ids of the docs that answer it."""

    text: str
    gold: tuple[str, ...]
    cat: str


class Corpus(NamedTuple):
    """One store of a retrieval set."""

    name: str
    docs: list[Doc]
    queries: list[Query]


class Pair(NamedTuple):
    """Two facts; relation is same, different, update or contradiction."""

    a: str
    b: str
    relation: str
    lang: str


def records(path: Path) -> Iterator[dict[str, Any]]:
    """The JSON objects of a file, one a line, gzip or plain."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            if line.strip():
                yield json.loads(line)


def load_corpora(path: Path) -> list[Corpus]:
    """The stores of a retrieval set."""
    found = []
    for record in records(path):
        docs = [Doc(**{k: doc.get(k) or "" for k in Doc._fields}) for doc in record["docs"]]
        queries = [
            Query(q["text"], tuple(q["gold"]), str(q.get("cat", ""))) for q in record["queries"]
        ]
        found.append(Corpus(record["store"], docs, queries))
    return found


def load_pairs(path: Path) -> list[Pair]:
    """The pairs of a file; a label 1 counts as same, 0 as different."""
    return [
        Pair(
            record["a"],
            record["b"],
            record.get("relation") or ("same" if record["label"] else "different"),
            record.get("lang", "?"),
        )
        for record in records(path)
    ]


def pooled(corpora: Sequence[Corpus]) -> list[Corpus]:
    """All stores as one; ids and sessions get the store's name in front."""
    docs = [
        doc._replace(id=f"{corpus.name}/{doc.id}", session=f"{corpus.name}/{doc.session}")
        for corpus in corpora
        for doc in corpus.docs
    ]
    queries = [
        query._replace(gold=tuple(f"{corpus.name}/{gold}" for gold in query.gold))
        for corpus in corpora
        for query in corpus.queries
    ]
    return [Corpus("pooled", docs, queries)]


DATE_FORMATS = ("%I:%M %p on %d %B, %Y", "%B-%d-%Y", "%Y-%m-%d", "%Y/%m/%d (%a) %H:%M")


def parsed_date(text: str) -> datetime | None:
    """The moment a set's date means, in UTC; None where there is none.

    >>> parsed_date("1:56 pm on 8 May, 2023").isoformat()
    '2023-05-08T13:56:00+00:00'
    >>> parsed_date("March-15-2024").isoformat()
    '2024-03-15T00:00:00+00:00'
    """
    for form in DATE_FORMATS:
        try:
            return datetime.strptime(text, form).replace(tzinfo=UTC)
        except ValueError:
            continue
    return None


def after_last(docs: Iterable[Doc]) -> float:
    """Epoch seconds one day after the last date of `docs`: when the questions are asked."""
    dates = [date.timestamp() for doc in docs if (date := parsed_date(doc.date))]
    return max(dates) + 86_400 if dates else FIXED_NOW


def harvest() -> Iterator[str]:
    """English sentences of the standard library's documentation and docstrings.

    About 20,000 of 30 to 200 characters, no two with the same words, in a fixed order for one
    Python version.
    """
    seen: set[str] = set()
    for path in documentation_files():
        for text in strings_of(path):
            for sentence in sentences_of(text):
                key = " ".join(re.findall(r"\w+", sentence.casefold()))
                if key not in seen:
                    seen.add(key)
                    yield sentence


def documentation_files() -> list[Path]:
    """The modules of the standard library, the one that holds the language reference first."""
    root = Path(sysconfig.get_paths()["stdlib"])
    paths = [p for p in sorted(root.rglob("*.py")) if "site-packages" not in p.parts]
    return sorted(paths, key=lambda p: (p.name != "topics.py", "test" in p.parts))


def strings_of(path: Path) -> list[str]:
    """A module's docstrings; every string of the language reference; nothing if unreadable."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):
        return []
    if path.name == "topics.py":
        nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Constant))
        return [node.value for node in nodes if isinstance(node.value, str)]
    holders = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = (ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, holders))
    return [text for text in found if text]


def sentences_of(text: str) -> Iterator[str]:
    """The sentences of a docstring; code samples and headings are left out."""
    for paragraph in re.split(r"\n\s*\n", text):
        if ">>>" in paragraph:
            continue
        for sentence in re.split(r"(?<=[.!?])\s+(?=[A-Z])", " ".join(paragraph.split())):
            if 30 <= len(sentence) <= 200 and len(re.findall(r"[A-Za-z]{2,}", sentence)) >= 5:
                yield sentence


def corpus_of(n: int) -> list[str]:
    """n different sentences: harvested ones, then numbered variants of them."""
    real = list(islice(harvest(), n))
    return [
        real[i] if i < len(real) else f"Case {i // len(real)}: {real[i % len(real)]}"
        for i in range(n)
    ]


# === 4. Engines ===================================================================================
# All engines get the same texts (the caption appended), FTS5 and bm25s with the speaker in front,
# and are held in memory: the disk, the gate and the journal are paid by realMemory alone.


class Engine(Protocol):
    """What is compared: takes docs in, gives a ranking out. Keys are the engine's own ids."""

    name: str

    def write(self, docs: Sequence[Doc]) -> list[int]:
        """The key of each doc, in order; docs that were merged share one."""
        ...

    def search(self, text: str, k: int) -> list[int]:
        """The best k keys, best first."""
        ...

    def close(self) -> None: ...


class RealMemory:
    """The product, through its public API, in a folder of its own."""

    name = "realMemory"

    def __init__(
        self,
        folder: Path,
        config: MemoryConfig | None = None,
        *,
        now: float = FIXED_NOW,
        embedder: object = None,
    ) -> None:
        self.hippo = Hippocampus.open(folder, config=config, embedder=embedder, clock=lambda: now)
        self.results: list[WriteResult] = []

    def write(self, docs: Sequence[Doc]) -> list[int]:
        self.results = self.hippo.remember_many([remembered(doc) for doc in docs])
        return [result.memory_id for result in self.results]

    def search(self, text: str, k: int) -> list[int]:
        packet = self.hippo.recall(text, k=k, min_confidence=0.0)
        return [item.memory_id for item in packet.items]

    def close(self) -> None:
        self.hippo.close()


def remembered(doc: Doc) -> Row:
    """`remember`'s arguments for a doc."""
    return {
        "text": doc.body,
        "speaker": doc.speaker or None,
        "session_id": doc.session or None,
        "turn_id": doc.id,
        "when": parsed_date(doc.date),
    }


class Fts:
    """SQLite's FTS5: bm25 over an OR of the cue's words, each quoted."""

    def __init__(self, name: str, tokenize: str, stop: frozenset[str] = frozenset()) -> None:
        self.name = name
        self.stop = stop
        self.db = sqlite3.connect(":memory:", isolation_level=None)
        self.db.execute(f"CREATE VIRTUAL TABLE doc USING fts5(text, tokenize='{tokenize}')")

    def write(self, docs: Sequence[Doc]) -> list[int]:
        rows = [(i, f"{doc.speaker}: {doc.body}" if doc.speaker else doc.body)
                for i, doc in enumerate(docs)]  # fmt: skip
        self.db.execute("BEGIN")
        self.db.executemany("INSERT INTO doc(rowid, text) VALUES (?, ?)", rows)
        self.db.execute("COMMIT")
        return [i for i, _ in rows]

    def search(self, text: str, k: int) -> list[int]:
        words = re.findall(r"\w+", text.lower())
        kept = [word for word in words if word not in self.stop] or words
        if not kept:
            return []
        query = " OR ".join(f'"{word}"' for word in kept)
        sql = "SELECT rowid FROM doc WHERE doc MATCH ? ORDER BY bm25(doc) LIMIT ?"
        return [row[0] for row in self.db.execute(sql, (query, k))]

    def close(self) -> None:
        self.db.close()


class Bm25s:
    """The bm25s package with its own English tokenizer."""

    name = "bm25s"

    def __init__(self) -> None:
        self.lib: Any = importlib.import_module("bm25s")
        self.index: Any = self.lib.BM25()
        self.size = 0

    def write(self, docs: Sequence[Doc]) -> list[int]:
        texts = [f"{doc.speaker}: {doc.body}" for doc in docs]
        self.index.index(
            self.lib.tokenize(texts, stopwords="en", show_progress=False), show_progress=False
        )
        self.size = len(texts)
        return list(range(self.size))

    def search(self, text: str, k: int) -> list[int]:
        tokens = self.lib.tokenize([text], stopwords="en", show_progress=False)
        found, _ = self.index.retrieve(tokens, k=min(k, self.size), show_progress=False)
        return [int(key) for key in found[0]]

    def close(self) -> None: ...


STOP_WORDS = frozenset(
    """a about after again all also am an and any are as at be because been before being
    between both but by can could did do does doing done down during each few for from
    further had has have having he her here hers herself him himself his how i if in into
    is it its itself just me more most my myself no nor not now of off on once only or
    other our ours ourselves out over own same she should so some such than that the their
    theirs them themselves then there these they this those through to too under until up
    very was we were what when where which while who whom why will with would you your
    yours yourself yourselves d ll m re s t ve don didn doesn isn wasn weren aren hasn
    haven hadn won wouldn shouldn couldn ain let may might must shall upon us got get gets
    ever many much since still yet""".split()
)


def rivals(run: Run) -> list[Callable[[], Engine]]:
    """Makers of the rivals that are installed; the absent ones are named as skipped."""
    makers: list[Callable[[], Engine]] = [
        lambda: Fts("FTS5 unicode61", "unicode61"),
        lambda: Fts("FTS5 porter, no stop words", "porter unicode61", STOP_WORDS),
    ]
    if importlib.util.find_spec("bm25s"):
        makers.append(Bm25s)
    else:
        run.skip("bm25s", "not installed")
    return makers


# === 5. Retrieval =================================================================================
# recall@k = share of the gold docs in the first k; MRR over the first DEPTH; sessions in order of
# first appearance. Writes go through the gate: a doc merged into another counts as found where that
# one is. Category 5 of LoCoMo (questions that name the wrong speaker) is left out of the headline.


class Score(NamedTuple):
    """How one query went; `recall` maps k to the share of its gold docs in the first k."""

    cat: str
    recall: dict[int, float]
    reciprocal: float
    session: float


class Outcome(NamedTuple):
    """How one engine went over all stores."""

    name: str
    scores: list[Score]
    docs: int
    write_s: float
    latencies: list[float]
    merged: list[tuple[str, str]]

    def row(self, seed: int) -> Row:
        """Quality and cost in one line."""
        head = [score for score in self.scores if score.cat != "5"]
        low, high = bootstrap([score.recall[10] for score in head], seed=seed)
        return {
            "engine": self.name,
            **{f"R@{k}": at(head, k) for k in (5, 10, 20)},
            "R@10 95%": f"{low:.3f}-{high:.3f}",
            "MRR": mean([score.reciprocal for score in head]),
            "session R@5": mean([score.session for score in head]),
            "writes/s": round(self.docs / self.write_s),
            "p50 ms": median(self.latencies) * 1000,
            "p95 ms": quantile(self.latencies, 0.95) * 1000,
        }


def at(scores: Sequence[Score], k: int) -> float:
    """Mean recall@k."""
    return mean([score.recall[k] for score in scores])


def scored(query: Query, found: Sequence[int], keys: Mapping[str, int],
           sessions: Mapping[int, str]) -> Score:  # fmt: skip
    """A ranking judged. A doc that was merged into another is found where that one is."""
    rank = {key: i for i, key in reversed(list(enumerate(found)))}
    places = [rank.get(keys[gold], len(found) + DEPTH) for gold in query.gold]
    seen = list(dict.fromkeys(sessions[key] for key in found if key in sessions))[:5]
    wanted = {sessions[keys[gold]] for gold in query.gold}
    first = min(places)
    return Score(
        query.cat,
        {k: sum(place < k for place in places) / len(places) for k in (5, 10, 20)},
        1 / (first + 1) if first < len(found) else 0.0,
        len(wanted & set(seen)) / len(wanted),
    )


def measured(make: Callable[[Corpus], Engine], corpora: Sequence[Corpus]) -> Outcome:
    """One engine over all stores: every doc written, every query with gold asked."""
    name, scores, latencies = "", [], []
    docs, write_s, merged = 0, 0.0, []
    for corpus in corpora:
        engine = make(corpus)
        name = engine.name
        start = time.perf_counter()
        keys = engine.write(corpus.docs)
        write_s += time.perf_counter() - start
        docs += len(corpus.docs)
        merged += merges(corpus.docs, keys)
        key_of = {doc.id: key for doc, key in zip(corpus.docs, keys, strict=True)}
        sessions: dict[int, str] = {}
        for doc, key in zip(corpus.docs, keys, strict=True):
            sessions.setdefault(key, doc.session)
        asked = [query for query in corpus.queries if query.gold]
        for query in asked[:5]:
            engine.search(query.text, DEPTH)
        for query in asked:
            start = time.perf_counter()
            found = engine.search(query.text, DEPTH)
            latencies.append(time.perf_counter() - start)
            scores.append(scored(query, found, key_of, sessions))
        engine.close()
    return Outcome(name, scores, docs, write_s, latencies, merged)


def merges(docs: Sequence[Doc], keys: Sequence[int]) -> list[tuple[str, str]]:
    """The (first, later) texts that came to share one trace."""
    first: dict[int, Doc] = {}
    return [
        (first[key].body, doc.body)
        for doc, key in zip(docs, keys, strict=True)
        if first.setdefault(key, doc) is not doc
    ]


def differing(merged: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """The merges whose words are not the same words: the ones to look at."""
    return [
        (a, b)
        for a, b in merged
        if re.findall(r"\w+", a.casefold()) != re.findall(r"\w+", b.casefold())
    ]


def realmemory_outcome(
    corpora: Sequence[Corpus], config: MemoryConfig, embedder: object = None
) -> Outcome:
    """The product over all stores, each in a folder of its own that is removed at the end."""
    with scratch() as folder:
        outcome = measured(
            lambda corpus: RealMemory(
                folder / re.sub(r"\W", "_", corpus.name),
                config,
                now=after_last(corpus.docs),
                embedder=embedder,
            ),
            corpora,
        )
    return outcome._replace(name=f"{outcome.name} + model") if embedder else outcome


def model_in(folder: Path | None) -> FastEmbedProvider | None:
    """The default model from a folder of its files, loaded; None for None."""
    found = FastEmbedProvider(model_path=str(folder)) if folder else None
    if found:
        found.load()
    return found


@contextmanager
def scratch() -> Iterator[Path]:
    """A temporary folder."""
    with tempfile.TemporaryDirectory(
        prefix="realmemory-bench-", ignore_cleanup_errors=True
    ) as name:
        yield Path(name)


def retrieval(run: Run, args: argparse.Namespace) -> None:
    """recall@k, MRR and session recall, quality beside cost, for each file."""
    for path in args.files:
        corpora = load_corpora(path)
        n = sum(len(corpus.docs) for corpus in corpora)
        asked = sum(bool(query.gold) for corpus in corpora for query in corpus.queries)
        form = "pooled" if args.pooled else f"{len(corpora)} stores"
        corpora = pooled(corpora) if args.pooled else corpora
        outcomes = [realmemory_outcome(corpora, args.config)]
        if args.model:
            outcomes.append(realmemory_outcome(corpora, args.config, model_in(args.model)))
        if args.rivals:
            outcomes += [measured(lambda _, m=make: m(), corpora) for make in rivals(run)]  # type: ignore[misc]
        label = path.name.split(".")[0]
        run.table(
            f"{label}: {form}, n={n} docs, {asked} queries with gold, top {DEPTH}, "
            f"category 5 apart where there is one",
            [outcome.row(run.record["seed"]) for outcome in outcomes],
        )
        run.table(f"{label}: R@10 by category", [by_category(outcome) for outcome in outcomes])
        ours = outcomes[0]
        head = [score for score in ours.scores if score.cat != "5"]
        run.figure(f"{label} R@10", at(head, 10))
        if args.model:
            head = [score for score in outcomes[1].scores if score.cat != "5"]
            run.figure(f"{label} R@10 with the model", at(head, 10))
        report_merges(run, label, ours)


def by_category(outcome: Outcome) -> Row:
    """R@10 per category, and over all of them."""
    groups: dict[str, list[Score]] = defaultdict(list)
    for score in outcome.scores:
        groups[score.cat].append(score)
    row: Row = {"engine": outcome.name}
    row.update({f"{cat} (n={len(groups[cat])})": at(groups[cat], 10) for cat in sorted(groups)})
    return {**row, "all": at(outcome.scores, 10)}


def report_merges(run: Run, label: str, outcome: Outcome) -> None:
    """How many writes were merged, and samples of those whose words differ."""
    odd = differing(outcome.merged)
    run.figure(f"{label} writes merged", len(outcome.merged), f"of {outcome.docs}")
    run.figure(f"{label} writes merged with other words", len(odd))
    for a, b in odd[:5]:
        print(f"    {b[:90]!r} into {a[:90]!r}")


def ablation(run: Run, args: argparse.Namespace) -> None:
    """The headline with each switch off in turn; the gate on pairs with and without vetoes."""
    corpora = load_corpora(args.files[0])
    settings = {"all on": args.config}
    for switch in SWITCHES:
        settings[f"{switch} off"] = args.config._replace(**{switch: False})
    settings["cosine only"] = args.config._replace(
        use_keyword=False, use_association=False, use_context=False
    )
    rows = []
    for name, config in settings.items():
        outcome = realmemory_outcome(corpora, config)
        row = outcome.row(run.record["seed"])
        del row["engine"]
        merged, odd = len(outcome.merged), len(differing(outcome.merged))
        rows.append({"setting": name, **row, "with 5": at(outcome.scores, 10), "merged": merged,
                     "other words": odd})  # fmt: skip
        print(f"  {name}: R@10 {row['R@10']:.3f}", flush=True)
    n = sum(len(corpus.docs) for corpus in corpora)
    run.table(f"ablation: {args.files[0].name.split('.')[0]}, n={n} docs", rows)
    refusals_by_setting(run, corpora, args.config)
    rounds_by_setting(run, corpora, args.config)
    brief_by_setting(run, args.config)
    if args.pairs:
        both = {name: settings[name] for name in ("all on", "use_vetoes off")}
        pairs_by_setting(run, load_pairs(args.pairs), both)


def refusals_by_setting(run: Run, corpora: Sequence[Corpus], config: MemoryConfig) -> None:
    """What is refused with and without abstention."""
    without = config._replace(use_abstention=False)
    rows = [
        {"setting": name, **row}
        for name, setting in (("all on", config), ("use_abstention off", without))
        for row in refusal_rows(ask_around(corpora, setting))
    ]
    run.table("ablation: share refused", rows)


def rounds_by_setting(run: Run, corpora: Sequence[Corpus], config: MemoryConfig) -> None:
    """What links add: the share of gold turns in a packet of five and its context, asked before
    and after the gold turns of the *other* half of the questions were rewarded together."""
    rows = []
    for name, setting in (("all on", config),
                          ("use_association off", config._replace(use_association=False))):
        shares: dict[str, list[float]] = {"first round": [], "same questions rewarded": [],
                                          "others rewarded": []}  # fmt: skip
        for corpus in corpora:
            with scratch() as folder:
                engine = RealMemory(folder, setting)
                written = engine.write(corpus.docs)
                keys = dict(zip((doc.id for doc in corpus.docs), written, strict=True))
                asked = [(q.text, {keys[g] for g in q.gold if g in keys}) for q in corpus.queries]
                asked = [(text, gold) for text, gold in asked if len(gold) > 1]
                shares["first round"] += [in_packet(engine, *pair) for pair in asked]
                for _, gold in asked[::2]:
                    engine.hippo.reflect(sorted(gold), 1.0)
                engine.hippo.consolidate()
                shares["same questions rewarded"] += [in_packet(engine, *p) for p in asked[::2]]
                shares["others rewarded"] += [in_packet(engine, *pair) for pair in asked[1::2]]
                engine.close()
        rows.append({"setting": name, **{k: statistics.fmean(v) for k, v in shares.items() if v}})
    run.table("ablation: gold turns in a packet of 5 and its context, questions with several", rows)


def in_packet(engine: RealMemory, text: str, gold: set[int]) -> float:
    """Share of the gold turns among five items and what came along."""
    packet = engine.hippo.recall(text, k=5, min_confidence=0.0)
    return len(gold & {item.memory_id for item in (*packet.items, *packet.context)}) / len(gold)


def brief_by_setting(run: Run, config: MemoryConfig) -> None:
    """What decay adds: which share of a brief is of this month, after a year of other work."""
    rows = []
    for name, setting in (("all on", config), ("use_decay off", config._replace(use_decay=False))):
        now = [FIXED_NOW]
        with scratch() as folder, Hippocampus.open(
            folder, config=setting, clock=lambda now=now: now[0]  # type: ignore[misc]
        ) as hippo:
            for _ in range(2):  # said twice, so that they are the stronger ones
                for i in range(40):
                    hippo.remember(f"Depot {i} keeps {7 + 3 * i} barrels of oil")
                now[0] += 86_400
            for week in range(52):
                hippo.remember(f"Crew {week} repainted mast {3 * week}")
                now[0] += 7 * 86_400
            fresh = {hippo.remember(f"Quay {i} is let to tenant {90 + 7 * i}").memory_id
                     for i in range(40)}  # fmt: skip
            shown = [int(n) for n in re.findall(r"^- #(\d+)", hippo.brief(), re.M)]
        rows.append({"setting": name, "of this month": sum(n in fresh for n in shown) / len(shown)})
    run.table("ablation: lines of the brief, year-old facts being said twice", rows)


def pairs_by_setting(run: Run, pairs: Sequence[Pair], settings: Mapping[str, MemoryConfig]) -> None:
    """False merges of the gate under each setting."""
    rows = []
    for name, config in settings.items():
        verdicts = judged(pairs, config)
        wrong = sum(v.action == "reinforce" for v in verdicts if v.pair.relation != "same")
        right = sum(v.action == "reinforce" for v in verdicts if v.pair.relation == "same")
        rows.append({"setting": name, "false merges": wrong, "same merged": right})
    run.table(f"ablation: gate on n={len(pairs)} pairs", rows)


# === 6. Gate and abstention =======================================================================
# A false merge loses a fact for good, a missed one costs a line: so they are counted apart. For
# abstention the same cues are asked where the answer is and where it can't be; `swapped` also
# replaces the speakers' names, so that nothing but the content tells.

DISTRACTORS = (
    "The office plants are watered on Fridays",
    "Отчёт по расходам сдают в конце квартала",
    "La cafetera del tercer piso está rota",
)


class Verdict(NamedTuple):
    """What the gate did with the second text of a pair."""

    pair: Pair
    action: str
    linked: bool  # to the first text
    relation: str
    reason: str


def judged(pairs: Sequence[Pair], config: MemoryConfig | None = None) -> list[Verdict]:
    """The gate's verdict on each pair; each pair has a scope of its own with some distractors."""
    with scratch() as folder, Hippocampus.open(folder, config=config) as hippo:
        firsts = [
            {"text": text, "scope": f"pair-{i}"}
            for i, pair in enumerate(pairs)
            for text in (*DISTRACTORS, pair.a)
        ]
        keys = [r.memory_id for r in hippo.remember_many(firsts)][len(DISTRACTORS) :: 4]
        seconds = [{"text": pair.b, "scope": f"pair-{i}"} for i, pair in enumerate(pairs)]
        results = hippo.remember_many(seconds)
        return [
            verdict(pair, key, result)
            for pair, key, result in zip(pairs, keys, results, strict=True)
        ]


def verdict(pair: Pair, first: int, result: WriteResult) -> Verdict:
    """A write result read as the gate's verdict on a pair whose first text has the id `first`."""
    decision = result.decision
    near = {decision.target_id, *decision.related_ids}
    action = str(getattr(decision.action, "value", decision.action))
    if action == "reinforce" and result.memory_id != first:
        action = "reinforce other"
    relation = str(getattr(decision.relation, "value", decision.relation))
    return Verdict(pair, action, action == "link" and first in near, relation, decision.reason)


def pairs(run: Run, args: argparse.Namespace) -> None:
    """The gate on pairs of facts: relation by action, per language; false merges listed."""
    for path in args.files:
        given = load_pairs(path)
        start = time.perf_counter()
        verdicts = judged(given, args.config)
        spent = time.perf_counter() - start
        label = path.name.split(".")[0]
        run.table(
            f"{label}: n={len(given)} pairs, {len(given) * 5 / spent:,.0f} writes/s",
            list(gate_rows(verdicts)),
        )
        report_gate(run, label, verdicts)


def gate_rows(verdicts: Sequence[Verdict]) -> Iterator[Row]:
    """One row per language and relation."""
    groups: dict[tuple[str, str], list[Verdict]] = defaultdict(list)
    for v in verdicts:
        groups[v.pair.lang, v.pair.relation].append(v)
    for (lang, relation), group in sorted(groups.items()):
        actions = Counter(v.action for v in group)
        yield {
            "language": lang,
            "relation": relation,
            "n": len(group),
            "reinforce": actions["reinforce"],
            "linked to it": sum(v.linked for v in group),
            "linked elsewhere": sum(v.action == "link" and not v.linked for v in group),
            "create": actions["create"],
            "reinforce other": actions["reinforce other"],
            "said update": sum(v.relation == "update" for v in group),
            "said contradiction": sum(v.relation == "contradiction" for v in group),
        }


def report_gate(run: Run, label: str, verdicts: Sequence[Verdict]) -> None:
    """The figures that matter, and every false merge with the gate's own words."""
    wrong = [v for v in verdicts if v.pair.relation != "same" and v.action.startswith("reinforce")]
    others = sum(v.pair.relation != "same" for v in verdicts)
    run.figure(f"{label} false merges", len(wrong), f"of {others} pairs that are not the same")
    for v in wrong[:40]:
        print(f"    [{v.pair.lang}, {v.pair.relation}] {v.pair.a!r} <- {v.pair.b!r}: {v.reason}")
    same = [v for v in verdicts if v.pair.relation == "same"]
    first = [v for v in same if v.pair.lang in ("en", "ru", "es")]
    for name, group in (("same", same), ("same, en ru es", first)):
        merged = [v.action == "reinforce" for v in group]
        kept = [v.linked for v in group if v.action != "reinforce"]
        run.figure(f"{label} {name}: reinforced", mean(merged), f"of {len(group)}")
        run.figure(f"{label} {name}: the rest linked to each other", mean(kept), f"of {len(kept)}")
    changed = [v for v in verdicts if v.pair.relation in ("update", "contradiction")]
    if changed:
        exact = mean([v.relation == v.pair.relation for v in changed])
        either = mean([v.relation in ("update", "contradiction") for v in changed])
        run.figure(f"{label} updates and contradictions: named rightly", exact)
        run.figure(f"{label} updates and contradictions: flagged as either", either)


def abstain(run: Run, args: argparse.Namespace) -> None:
    """What is refused: cues asked in their own store, and in the next one of the file."""
    for path in args.files:
        corpora = load_corpora(path)
        if len(corpora) < 2:
            run.skip(path.name, "one store only: no other one to ask")
            continue
        asked = ask_around(corpora, args.config)
        label = path.name.split(".")[0]
        run.table(f"{label}: share refused at the default threshold", list(refusal_rows(asked)))
        own, swapped = (
            [a.confidence for a in asked if a.where == where and a.cat != "5" and a.gold]
            for where in ("own", "swapped")
        )
        run.figure(f"{label} AUROC of confidence, names swapped", auroc(own, swapped),
                   f"{len(own)} own, {len(swapped)} foreign cues")  # fmt: skip


def calibrate(run: Run, args: argparse.Namespace) -> None:
    """Cosines by embedder: of strangers, and the best one of a cue at home and elsewhere.

    `background` is what a provider recommends under this name; `elsewhere p95` is `related`: one
    cue in twenty has a text so near in a store that doesn't answer it.
    """
    for path in args.files:
        corpora = [corpus for corpus in load_corpora(path) if corpus.docs and corpus.queries]
        model = model_in(args.model)
        rows = [cosine_row(e, corpora) for e in (HashingEmbedder(), model) if e]
        run.table(f"{path.name.split('.')[0]}: cosines, {len(corpora)} stores", rows)


def cosine_row(embedder: EmbeddingProvider, corpora: Sequence[Corpus]) -> Row:
    """The first 120 docs and 20 cues of each store; elsewhere is the next store."""

    def cosine(a: Sequence[float], b: Sequence[float]) -> float:
        return float(sum(map(mul, a, b)))

    stores = [
        [embedder.embed(embedded_text(doc.body, doc.speaker)) for doc in corpus.docs[:120]]
        for corpus in corpora
    ]
    strangers = [
        cosine(a, b)
        for vectors in stores
        for a, b in zip(vectors, vectors[len(vectors) // 2 :], strict=False)
    ]
    home, elsewhere = [], []
    for i, corpus in enumerate(corpora):
        there = {doc.id for doc in corpus.docs[:120]}
        asked = [query for query in corpus.queries if there.intersection(query.gold)]
        for query in asked[:20]:
            cue = embedder.embed_query(query.text)
            home.append(max(cosine(cue, vector) for vector in stores[i]))
            if len(stores) > 1:
                elsewhere.append(max(cosine(cue, v) for v in stores[(i + 1) % len(stores)]))
    row = {"embedder": embedder.name, "background": mean(strangers), "home p50": median(home)}
    if elsewhere:
        p95 = quantile(elsewhere, 0.95)
        row |= {"elsewhere p95": p95, "AUROC": auroc(home, elsewhere)}
    return row


class Asked(NamedTuple):
    """One cue in one store: `own`, `other` (as it stands) or `swapped` (with the store's names)."""

    where: str
    cat: str
    gold: bool
    refused: bool
    confidence: float


def ask_around(corpora: Sequence[Corpus], config: MemoryConfig) -> list[Asked]:
    """Every cue asked in its own store and in the next, there also with that store's names."""
    asked = []
    for i, corpus in enumerate(corpora):
        guest = corpora[i - 1]
        names = dict(zip(speakers(guest), speakers(corpus), strict=False))
        with scratch() as folder:
            engine = RealMemory(folder, config, now=after_last(corpus.docs))
            engine.write(corpus.docs)
            for where, queries in (("own", corpus.queries), ("other", guest.queries)):
                asked += [ask(engine.hippo, where, query, query.text) for query in queries]
            for query in guest.queries:
                text = with_names(query.text, names)
                asked.append(ask(engine.hippo, "swapped", query, text))
            engine.close()
    return asked


def ask(hippo: Hippocampus, where: str, query: Query, text: str) -> Asked:
    """One cue: refused at the default threshold or not, and its first hit's confidence."""
    refused = hippo.recall(text).abstained
    items = hippo.recall(text, min_confidence=0.0).items
    confidence = items[0].confidence if items else 0.0
    return Asked(where, query.cat, bool(query.gold), refused, confidence)


def speakers(corpus: Corpus) -> list[str]:
    """Who speaks, in order of appearance."""
    return list(dict.fromkeys(doc.speaker for doc in corpus.docs if doc.speaker))


def with_names(text: str, names: Mapping[str, str]) -> str:
    """The text with each name replaced.

    >>> with_names("Where did Ann's dog and Bo go?", {"Ann": "Cy", "Bo": "Di"})
    "Where did Cy's dog and Di go?"
    """
    if not names:
        return text
    alternatives = "|".join(re.escape(name) for name in names)
    return re.sub(rf"\b(?:{alternatives})\b", lambda found: names[found[0]], text)


def refusal_rows(asked: Sequence[Asked]) -> Iterator[Row]:
    """One row per kind of asking; the columns are categories."""
    cats = sorted({a.cat for a in asked})
    for where in ("own", "other", "swapped"):
        group = [a for a in asked if a.where == where]
        answerable = [a for a in group if a.gold and a.cat != "5"]
        row: Row = {"asked in": where, "n": len(group)}
        row.update({f"cat {cat}": mean([a.refused for a in group if a.cat == cat]) for cat in cats})
        yield {**row, "all but 5, with gold": mean([a.refused for a in answerable])}


# === 7. Writes ====================================================================================
# The floor is what any durable store must do: a row, its FTS entry, its event, one commit. The
# share of that rate is what analysis, gate, links and index leave.


class BareSQLite:
    """The floor for any durable memory: trace row, FTS row and event row in one transaction."""

    def __init__(self, folder: Path) -> None:
        self.db = sqlite3.connect(folder / "bare.db", isolation_level=None)
        self.db.execute("PRAGMA journal_mode=WAL")
        self.db.execute("PRAGMA synchronous=NORMAL")
        self.db.execute("CREATE TABLE trace(id INTEGER PRIMARY KEY, text TEXT, at REAL) STRICT")
        self.db.execute("CREATE VIRTUAL TABLE term USING fts5(text)")
        self.db.execute(
            "CREATE TABLE event(id INTEGER PRIMARY KEY, at REAL, kind TEXT, trace INTEGER) STRICT"
        )

    def insert(self, text: str) -> None:
        now = time.time()
        cursor = self.db.execute("INSERT INTO trace(text, at) VALUES (?, ?)", (text, now))
        key = cursor.lastrowid
        self.db.execute("INSERT INTO term(rowid, text) VALUES (?, ?)", (key, text))
        self.db.execute("INSERT INTO event(at, kind, trace) VALUES (?, 'remember', ?)", (now, key))

    def remember(self, text: str) -> None:
        self.db.execute("BEGIN IMMEDIATE")
        self.insert(text)
        self.db.execute("COMMIT")

    def fill(self, texts: Iterable[str]) -> None:
        self.db.execute("BEGIN IMMEDIATE")
        for text in texts:
            self.insert(text)
        self.db.execute("COMMIT")


def writes(run: Run, args: argparse.Namespace) -> None:
    """`remember` one by one against the bare transaction, at each size; the rate in bulk."""
    rounds, each = args.rounds, args.each
    sizes = sorted(args.sizes)
    texts = iter(corpus_of(sizes[-1] + rounds * each * len(sizes)))
    rows, held = [], 0
    with scratch() as folder, Hippocampus.open(folder / "store") as hippo:
        bare = BareSQLite(folder)
        for size in sizes:
            bulk = list(islice(texts, size - held))
            bare.fill(bulk)
            spent = timed(lambda bulk=bulk: hippo.remember_many(bulk))  # type: ignore[misc]
            ours, theirs = alternating(hippo, bare, texts, rounds, each)
            held = size + rounds * each
            rows.append(write_row(size, len(bulk) / spent, ours, theirs))
    run.table(f"remember against a bare transaction, n={rounds} rounds of {each} writes", rows)
    run.figure(f"remember at {sizes[-1]:,}: share of the bare rate", rows[-1]["share of bare"])
    run.figure("remember_many writes/s", rows[-1]["remember_many/s"])
    if len(rows) > 1:
        kept = rows[-1]["remember/s"] / rows[0]["remember/s"]
        run.figure(f"remember at {sizes[-1]:,} against {sizes[0]:,}", kept)


def alternating(
    hippo: Hippocampus, bare: BareSQLite, texts: Iterator[str], rounds: int, each: int
) -> tuple[list[float], list[float]]:
    """Writes a second of both, per round; both take the same texts, in alternating order."""
    ours: list[float] = []
    theirs: list[float] = []
    for i in range(rounds):
        batch = list(islice(texts, each))
        turns: list[tuple[list[float], Callable[[str], object]]] = [
            (ours, hippo.remember),
            (theirs, bare.remember),
        ]
        for rates, write in turns if i % 2 else reversed(turns):
            start = time.perf_counter()
            for text in batch:
                write(text)
            rates.append(each / (time.perf_counter() - start))
    return ours, theirs


def write_row(size: int, bulk: float, ours: Sequence[float], theirs: Sequence[float]) -> Row:
    """Medians of the rates, and the share of the bare rate taken round by round."""
    shares = [a / b for a, b in zip(ours, theirs, strict=True)]
    return {
        "traces": size,
        "remember/s": median(ours),
        "bare/s": median(theirs),
        "share of bare": median(shares),
        "lowest": min(shares),
        "highest": max(shares),
        "remember_many/s": bulk,
    }


# === 8. Processes =================================================================================
# Hooks and servers are paid as whole processes: interpreter, import (compiled anew for a script,
# from the bytecode cache for a module), opening, answer.

INITIALIZE = json.dumps(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "bench", "version": "1"},
        },
    }
)
SCRIPT = ("realmemory.py",)
MODULE = ("-m", "realmemory")


def clean_env() -> dict[str, str]:
    """The environment without anything that would steer realMemory or stop bytecode caching."""
    drop = ("REALMEMORY_", "CLAUDE_", "ZCODE_", "PYTHONDONTWRITEBYTECODE")
    return {key: value for key, value in os.environ.items() if not key.startswith(drop)}


def whole(*arguments: str) -> float:
    """Seconds that a whole Python process took; it must succeed."""
    start = time.perf_counter()
    done = subprocess.run(
        (sys.executable, *arguments), cwd=HERE, env=clean_env(), stdin=subprocess.DEVNULL,
        capture_output=True, text=True,
    )  # fmt: skip
    spent = time.perf_counter() - start
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)} failed:\n{done.stderr[-2000:]}")
    return spent


def first_answer(*arguments: str) -> float:
    """Seconds from the start of a server process to its answer to `initialize`."""
    start = time.perf_counter()
    with subprocess.Popen(
        (sys.executable, *arguments), cwd=HERE, env=clean_env(), stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as server:  # fmt: skip
        assert server.stdin and server.stdout
        server.stdin.write(INITIALIZE + "\n")
        server.stdin.flush()
        answer = server.stdout.readline()
        spent = time.perf_counter() - start
        server.stdin.close()
    if '"result"' not in answer:
        raise SystemExit(f"serve answered {answer!r}")
    return spent


def filled(folder: Path, texts: Sequence[str]) -> Path:
    """A store with these texts as global traces, slept once so that nothing is left to do."""
    with Hippocampus.open(folder) as hippo:
        for i in range(0, len(texts), 5000):
            hippo.remember_many(texts[i : i + 5000])
        hippo.consolidate()
    return folder


def startup(run: Run, args: argparse.Namespace) -> None:
    """Whole processes against a bare interpreter, at two sizes; then a sleep that has work."""
    texts = corpus_of(args.traces)
    with scratch() as folder:
        stores = {n: filled(folder / str(n), texts[:n]) for n in sorted({200, args.traces})}
        seen = interleaved(process_actions(stores), args.rounds, seed=run.record["seed"])
        rows = [process_row(name, values, seen["bare"]) for name, values in seen.items()]
        run.table(
            f"whole processes against python -c 'import sqlite3, json', n={args.rounds} rounds",
            rows,
        )
        for form, limit in (("script", "limit 3"), ("module", "limit 1.7")):
            worst = max(row["of bare"] for row in rows if row["process"].endswith(form))
            run.figure(f"slowest {form} against bare", worst, limit)
        run.figure(f"largest growth from 200 to {args.traces:,} traces", growth(seen))
        working_sleep(run, folder, texts[:5000], min(args.rounds, 7))


def growth(seen: Mapping[str, Sequence[float]]) -> float:
    """The largest ratio of a process's median between the larger store and the smaller."""
    medians: dict[str, list[float]] = defaultdict(list)
    for name, values in seen.items():
        medians[re.sub(r"[\d,]+ traces", "", name)].append(median(values))
    return max(found[-1] / found[0] for found in medians.values())


def process_actions(stores: Mapping[int, Path]) -> dict[str, Callable[[], float]]:
    """Every process to time: the bare one, then command × store × way of starting."""
    actions: dict[str, Callable[[], float]] = {"bare": lambda: whole("-c", "import sqlite3, json")}
    for n, store in stores.items():
        for form, start in (("script", SCRIPT), ("module", MODULE)):
            path = ("--path", str(store))
            for command in ("brief", "sleep"):
                arguments = (*start, command, *path)
                actions[f"{command}, {n:,} traces, {form}"] = lambda a=arguments: whole(*a)  # type: ignore[misc]
            arguments = (*start, "serve", *path)
            actions[f"serve, {n:,} traces, {form}"] = lambda a=arguments: first_answer(*a)  # type: ignore[misc]
    return actions


def process_row(name: str, values: Sequence[float], bare: Sequence[float]) -> Row:
    """A process's wall time, and its median over the bare interpreter's."""
    return {
        "process": name,
        "p50 ms": median(values) * 1000,
        "p95 ms": quantile(values, 0.95) * 1000,
        "of bare": median(values) / median(bare),
    }


def working_sleep(run: Run, folder: Path, texts: Sequence[str], rounds: int) -> None:
    """The first sleep of a store that was written, asked and rewarded; its copy included."""
    model = folder / "unslept"
    with Hippocampus.open(model) as hippo:
        hippo.remember_many(texts)
        for _, cue in planted(texts, 50, seed=SEED):
            packet = hippo.recall(cue)
            if packet.items:
                hippo.reflect([item.memory_id for item in packet.items], 0.5)
    spent: dict[str, list[float]] = {"process": [], "in process": []}
    copies = 0
    for i in range(rounds):
        for name, sleep in (("process", process_sleep), ("in process", inner_sleep)):
            twin = folder / f"twin-{name}-{i}".replace(" ", "-")
            shutil.copytree(model, twin)
            spent[name].append(sleep(twin))
            copies += len(list((twin / "backups").glob("*")))
            shutil.rmtree(twin)
    rows = [
        {"sleep": name, "p50 ms": median(values) * 1000, "p95 ms": quantile(values, 0.95) * 1000}
        for name, values in spent.items()
    ]
    run.table(f"a working sleep at n={len(texts):,} traces, copy included, {rounds} rounds", rows)
    run.figure("working sleep, whole process, s", median(spent["process"]), "limit 0.3")
    run.figure("copies made by these sleeps", copies, f"of {2 * rounds}")


def process_sleep(store: Path) -> float:
    """Seconds of `sleep` as a process of its own."""
    return whole(*MODULE, "sleep", "--path", str(store))


def inner_sleep(store: Path) -> float:
    """Seconds of `consolidate()` in this process."""
    with Hippocampus.open(store) as hippo:
        return timed(hippo.consolidate)


# === 9. Contention ================================================================================
# Traces are counted by SQL in the file itself, not by the product's own report.


class Ack(NamedTuple):
    """What a writer was told: the id, for which text, and whether a trace was created."""

    id: int
    text: str
    created: bool


def write_share(path: str, texts: list[str], start_at: float) -> tuple[list[Ack], list[str]]:
    """One writer: what it was told, and its errors in words."""
    acks: list[Ack] = []
    errors: list[str] = []
    time.sleep(max(0.0, start_at - time.time()))
    with Hippocampus.open(path) as hippo:
        for text in texts:
            try:
                result = hippo.remember(text)
                acks.append(Ack(result.memory_id, text, result.created))
            except Exception as error:  # counted and shown: any error fails the benchmark
                errors.append(repr(error))
    return acks, errors


def write_until_killed(path: str, texts: list[str], acknowledged: str) -> None:
    """Writes and notes each id after `remember` has returned, until the process is killed."""
    with Hippocampus.open(path) as hippo, open(acknowledged, "ab", buffering=0) as notes:
        for i in count():
            text = texts[i % len(texts)] if i < len(texts) else f"Pass {i}: {texts[i % len(texts)]}"
            result = hippo.remember(text)
            notes.write(json.dumps([result.memory_id, text, result.created]).encode() + b"\n")


def contention(run: Run, args: argparse.Namespace) -> None:
    """Many processes on one store: nothing lost, nothing doubled, nothing refused."""
    texts = corpus_of(321 + args.kills * 400)
    with scratch() as folder:
        rows = [
            together("8 x 40 writes", folder / "many", [texts[i:320:8] for i in range(8)]),
            together("12 x one sentence", folder / "one", [[texts[320]]] * 12),
            killed_writers(folder / "killed", texts[321:], args.kills),
        ]
    run.table("contention", rows)
    run.figure("8 x 40 writes: traces", rows[0]["traces"], "320 expected")
    run.figure("12 x one sentence: traces", rows[1]["traces"], "1 expected")
    run.figure("kill -9: acknowledged ids lost", rows[2]["lost"], f"of {rows[2]['acknowledged']}")
    run.figure("errors", sum(row["errors"] for row in rows))


def together(case: str, path: Path, shares: Sequence[list[str]]) -> Row:
    """The row of a case in which one process a share starts writing at the same moment."""
    context = multiprocessing.get_context("spawn")
    start_at = time.time() + 2.0
    with context.Pool(len(shares)) as pool:
        jobs = [(str(path), share, start_at) for share in shares]
        results = pool.starmap(write_share, jobs, chunksize=1)
    spent = time.time() - start_at
    acks = [ack for found, _ in results for ack in found]
    errors = [error for _, found in results for error in found]
    for error in errors[:3]:
        print(f"    {case}: {error}")
    return {
        "case": case,
        "processes": len(shares),
        "acknowledged": len(acks),
        "created": sum(ack.created for ack in acks),
        "traces": traces_in(path),
        "lost": len(missing(path, acks)),
        "errors": len(errors),
        "writes/s": len(acks) / spent,
    }


def killed_writers(path: Path, texts: Sequence[str], kills: int) -> Row:
    """kill -9 in a write loop, again and again on one store; no acknowledged id may be lost."""
    context = multiprocessing.get_context("spawn")
    rng = random.Random(SEED)
    notes = path.parent / "acknowledged"
    each, caught = len(texts) // kills, 0
    for i in range(kills):
        notes.touch()
        before = notes.stat().st_size
        share = list(texts[i * each : (i + 1) * each])
        writer = context.Process(target=write_until_killed, args=(str(path), share, str(notes)))
        writer.start()
        while writer.is_alive() and notes.stat().st_size == before:
            time.sleep(0.005)
        time.sleep(rng.uniform(0.0, 0.15))
        caught += writer.is_alive()
        writer.kill()
        writer.join()
    acks = [Ack(*json.loads(line)) for line in notes.read_bytes().split(b"\n")[:-1]]
    return {
        "case": f"kill -9, {kills} times",
        "processes": kills,
        "acknowledged": len(acks),
        "created": sum(ack.created for ack in acks),
        "traces": traces_in(path),
        "lost": len(missing(path, acks)),
        "errors": kills - caught,
    }


def traces_in(path: Path) -> int:
    """The traces in the store's file, counted by SQL: no trust in the product's own report."""
    with sqlite3.connect(path / "memory.db") as db:
        return int(db.execute("SELECT count(*) FROM traces").fetchone()[0])


def missing(path: Path, acks: Iterable[Ack]) -> list[Ack]:
    """The acknowledged writes whose row is gone, or was created and holds another text."""
    with sqlite3.connect(path / "memory.db") as db:
        held = dict(db.execute("SELECT id, text FROM traces").fetchall())
    return [ack for ack in acks if ack.id not in held or (ack.created and held[ack.id] != ack.text)]


# === 10. Scale ====================================================================================
# Cues are 8 words in a row of a stored sentence; beyond the harvested sentences the corpus consists
# of numbered variants, the hardest neighbours for a ranking and for the gate.


def planted(texts: Sequence[str], n: int, *, seed: int) -> list[tuple[int, str]]:
    """n (index of a text, cue of up to 8 of its words in a row)."""
    rng = random.Random(seed)
    found = []
    for i in rng.sample(range(len(texts)), min(n, len(texts))):
        words = re.findall(r"\w+", texts[i])
        start = rng.randrange(max(1, len(words) - 7))
        found.append((i, " ".join(words[start : start + 8])))
    return found


FRESH = """
import json, sys, time
path, cue = sys.argv[1:]
start = time.perf_counter()
from realmemory import Hippocampus
with Hippocampus.open(path) as hippo:
    packet = hippo.recall(cue, min_confidence=0.0)
    spent = time.perf_counter() - start
try:
    import resource
    unit = 1 << 20 if sys.platform == "darwin" else 1 << 10
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
except ImportError:
    rss = 0.0
print(json.dumps([spent, rss]))
"""


def fresh_recall(store: Path, cue: str) -> tuple[float, float]:
    """Seconds from import to the first recall in a new process, and its peak memory in MB."""
    done = subprocess.run(
        (sys.executable, "-c", FRESH, str(store), cue), cwd=HERE, env=clean_env(),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    spent, rss = json.loads(done.stdout.splitlines()[-1])
    return float(spent), float(rss)


def scale(run: Run, args: argparse.Namespace) -> None:
    """Recall latency, size and memory at growing n, beside FTS5 and an exact vector scan."""
    sizes = [n for n in (1_000, 10_000, 30_000, 100_000, 300_000, 1_000_000) if n < args.n]
    sizes = [n for n in sizes if n >= 10_000 or args.n <= 10_000] + [args.n]
    texts = corpus_of(args.n)
    rows: list[Row] = []
    fts, held = Fts("FTS5", "unicode61"), 0
    with scratch() as folder, Hippocampus.open(folder / "store") as hippo:
        for n in sizes:
            grown = grow(hippo, fts, texts[held:n], held)
            held = n
            rows += scale_rows(run, folder / "store", hippo, fts, texts[:n], grown, args.cues)
    fts.close()
    run.table(f"scale to n={args.n:,}: {args.cues} cues of 8 words from stored sentences", rows)


def grow(hippo: Hippocampus, fts: Fts, texts: Sequence[str], held: int) -> float:
    """Write more texts to both; `remember_many`'s writes a second."""
    start = time.perf_counter()
    for i in range(0, len(texts), 5000):
        hippo.remember_many(texts[i : i + 5000])
    spent = time.perf_counter() - start
    rows = [(held + i, text) for i, text in enumerate(texts)]
    fts.db.execute("BEGIN")
    fts.db.executemany("INSERT INTO doc(rowid, text) VALUES (?, ?)", rows)
    fts.db.execute("COMMIT")
    return len(texts) / spent


def scale_rows(
    run: Run, store: Path, hippo: Hippocampus, fts: Fts, texts: Sequence[str], grown: float, n: int
) -> list[Row]:
    """One row per engine at this size; realMemory's has disk, memory and first recall."""
    cues = planted(texts, n, seed=run.record["seed"])
    size = len(texts)

    def ours(cue: str) -> list[str]:
        return [item.text for item in hippo.recall(cue, k=10, min_confidence=0.0).items]

    def theirs(cue: str) -> list[str]:
        return [texts[i] for i in fts.search(cue, 10)]

    first = probed("realMemory", ours, texts, cues)
    second = probed("FTS5 bm25, OR", theirs, texts, cues)
    disk = sum(p.stat().st_size for p in store.glob("memory.db*"))
    fresh = [fresh_recall(store, cue) for _, cue in cues[:5]]
    first.update(
        {
            "writes/s": round(grown),
            "bytes/trace": round(disk / size),
            "first recall ms": median([spent for spent, _ in fresh]) * 1000,
            "RSS MB": median([rss for _, rss in fresh]),
        }
    )
    run.figure(f"recall at {size:,}: p50 against FTS5", first["p50 ms"] / second["p50 ms"])
    scan = scan_latencies(size, n, run)
    return [first, second, *([latency_row("numpy scan, 384-d", size, scan)] if scan else [])]


def probed(
    engine: str,
    search: Callable[[str], list[str]],
    texts: Sequence[str],
    cues: Sequence[tuple[int, str]],
) -> Row:
    """Latency over the cues after a warm-up, and how often the cue's own sentence comes back."""
    for _, cue in cues[:5]:
        search(cue)
    spent, hits = [], 0
    for i, cue in cues:
        start = time.perf_counter()
        found = search(cue)
        spent.append(time.perf_counter() - start)
        hits += texts[i] in found
    return {**latency_row(engine, len(texts), spent), "hits@10": hits / len(cues)}


def latency_row(engine: str, n: int, values: Sequence[float]) -> Row:
    """The first columns of a scale row."""
    p50, p95 = median(values) * 1000, quantile(values, 0.95) * 1000
    return {"engine": engine, "traces": n, "p50 ms": p50, "p95 ms": p95}


def scan_latencies(n: int, cues: int, run: Run) -> list[float]:
    """Seconds per exact scan of n random 384-d float32 vectors, one thread; [] without numpy."""
    if not importlib.util.find_spec("numpy"):
        run.skip(f"numpy scan at {n:,}", "numpy is not installed")
        return []
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    np: Any = importlib.import_module("numpy")
    rng = np.random.default_rng(SEED)
    matrix = rng.standard_normal((n, 384), dtype=np.float32)
    probes = [rng.standard_normal(384, dtype=np.float32) for _ in range(min(cues, 50))]

    def scan(vector: Any) -> Any:
        scores = matrix @ vector
        return np.argpartition(scores, -min(10, n))[-10:]

    scan(probes[0])
    return [timed(lambda probe=probe: scan(probe)) for probe in probes]  # type: ignore[misc]


# === 11. Quick ====================================================================================
# What runs everywhere in under a minute, data or not.

OWN_PAIRS = (
    Pair("The API listens on port 8080", "The API listens on port 8081", "update", "en"),
    Pair("Backups run every night at 02:00", "Every night at 02:00 backups run", "same", "en"),
    Pair("Lena reviews the billing code", "Omar reviews the billing code", "different", "en"),
    Pair("The cache may be flushed by hand", "The cache may not be flushed by hand",
         "contradiction", "en"),
    Pair("Service A calls service B", "Service B calls service A", "different", "en"),
    Pair("The meeting is on Monday", "The meeting is on Thursday", "update", "en"),
    Pair("Staging uses Redis 7", "Production uses Redis 7", "different", "en"),
    Pair("Тесты запускаются перед каждым слиянием", "Перед каждым слиянием запускаются тесты",
         "same", "ru"),
    Pair("Релиз выходит 5 мая", "Релиз выходит 15 мая", "update", "ru"),
    Pair("Марина дежурит в пятницу", "Олег дежурит в пятницу", "different", "ru"),
    Pair("Логи хранятся в облаке", "Логи не хранятся в облаке", "contradiction", "ru"),
    Pair("Los informes se envían cada lunes", "Cada lunes se envían los informes", "same", "es"),
    Pair("El servidor tiene 16 GB de disco", "El servidor tiene 32 GB de disco", "update", "es"),
    Pair("Paga la cuenta Ana", "Paga la cuenta Luis", "different", "es"),
    Pair("El acceso es público", "El acceso no es público", "contradiction", "es"),
)  # fmt: skip

ATTRIBUTES = (
    ("{} listens on port {}", "which port does {} listen on?", range(2000, 9000)),
    ("{} keeps its data in region {}", "in which region is the data of {} kept?",
     ("Oslo", "Lima", "Pune", "Turin", "Quito", "Kyoto")),
    ("{} is looked after by {}", "who looks after {}?",
     ("Amara", "Bruno", "Chidi", "Dalia", "Emre", "Freya")),
    ("{} is written in {}", "what language is {} written in?",
     ("Rust", "Kotlin", "Elixir", "Haskell", "Swift", "Zig")),
)  # fmt: skip
NOISE_CUES = (
    "what did the zookeeper feed the penguins?",
    "how long should sourdough rise in winter?",
    "¿cuándo florecen los almendros?",
    "кто выиграл шахматный турнир?",
    "which violin concerto opened the evening?",
    "best trail to the glacier lake",
    "did grandmother plant the tulips?",
    "recipe for pumpkin soup with ginger",
)
SYLLABLES = ("ba", "ke", "ri", "mo", "tu", "za", "lo", "ne", "vi", "sha", "dor", "gul")


def made_up(n: int, *, seed: int) -> list[tuple[str, str]]:
    """n (fact, cue) pairs about made-up services."""
    rng = random.Random(seed)
    names: dict[str, None] = {}
    while len(names) < -(-n // len(ATTRIBUTES)):
        names["".join(rng.choices(SYLLABLES, k=3)).capitalize()] = None
    return [
        (fact.format(name, rng.choice(values)), cue.format(name))
        for name in names
        for fact, cue, values in ATTRIBUTES
    ][:n]


def synthetic(run: Run, args: argparse.Namespace) -> None:
    """A smoke test on made-up facts: whether anything is broken, no evidence of quality."""
    smoke(run, made_up(args.facts, seed=run.record["seed"]), args.queries)


def quick(run: Run, args: argparse.Namespace) -> None:
    """A minute's check of everything that needs no data; `retrieval` on the files that exist."""
    print("\nA smoke test on made-up facts: no evidence of quality on real text.")
    smoke(run, made_up(300, seed=run.record["seed"]), 100)
    report_gate(run, "own pairs", gate_table(run))
    writes(run, argparse.Namespace(rounds=5, each=60, sizes=[2000]))
    startup_smoke(run)
    present = [path for path in args.files if path.exists()]
    for path in args.files:
        if path not in present:
            run.skip(str(path), "no such file")
    if present:
        args.files = present
        retrieval(run, args)
    elif not args.files:
        run.skip("retrieval", "no data file given")


def smoke(run: Run, facts: Sequence[tuple[str, str]], asked: int) -> None:
    """Hits and refusals on made-up facts, beside FTS5."""
    docs = [Doc(str(i), fact) for i, (fact, _) in enumerate(facts)]
    chosen = random.Random(run.record["seed"]).sample(range(len(facts)), min(asked, len(facts)))
    queries = [Query(facts[i][1], (str(i),), "") for i in chosen]
    corpora = [Corpus("made up", docs, queries)]
    outcomes = [realmemory_outcome(corpora, MemoryConfig())]
    outcomes += [measured(lambda _, m=make: m(), corpora) for make in rivals(run)]  # type: ignore[misc]
    rows = [outcome.row(run.record["seed"]) for outcome in outcomes]
    kept = ("engine", "R@5", "MRR", "writes/s", "p50 ms", "p95 ms")
    run.table(
        f"made-up facts, n={len(docs)}, {len(corpora[0].queries)} cues",
        [{head: row[head] for head in kept} for row in rows],
    )
    with scratch() as folder, Hippocampus.open(folder) as hippo:
        hippo.remember_many([fact for fact, _ in facts])
        noise = [hippo.recall(cue).abstained for cue in NOISE_CUES]
        right = [hippo.recall(query.text).abstained for query in queries]
    run.figure("made-up facts: noise refused", mean(noise), f"of {len(noise)}")
    run.figure("made-up facts: answerable refused", mean(right), f"of {len(right)}")


def gate_table(run: Run) -> list[Verdict]:
    """The gate's verdicts on the built-in pairs, printed as a table."""
    verdicts = judged(OWN_PAIRS)
    run.table(f"own pairs, n={len(verdicts)}", list(gate_rows(verdicts)))
    return verdicts


def startup_smoke(run: Run) -> None:
    """The processes at 200 traces, a few rounds."""
    with scratch() as folder:
        stores = {200: filled(folder / "200", corpus_of(200))}
        seen = interleaved(process_actions(stores), 5, seed=run.record["seed"])
    rows = [process_row(name, values, seen["bare"]) for name, values in seen.items()]
    run.table("whole processes against python -c 'import sqlite3, json', n=5 rounds", rows)


# === 12. Command line =============================================================================

COMMANDS: dict[str, Callable[[Run, argparse.Namespace], None]] = {
    "quick": quick,
    "retrieval": retrieval,
    "ablation": ablation,
    "pairs": pairs,
    "abstain": abstain,
    "calibrate": calibrate,
    "writes": writes,
    "startup": startup,
    "contention": contention,
    "scale": scale,
    "synthetic": synthetic,
}


def parser() -> argparse.ArgumentParser:
    """The command line's grammar."""
    top = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0],
        epilog="Without a command: quick.",
    )
    commands = top.add_subparsers(dest="command", metavar="COMMAND")
    made = {
        name: commands.add_parser(name, help=(function.__doc__ or "").splitlines()[0])
        for name, function in COMMANDS.items()
    }
    for one in made.values():
        one.add_argument("--seed", type=int, default=SEED)
    for name in ("quick", "retrieval", "ablation", "pairs", "abstain"):
        nargs = "*" if name == "quick" else "+"
        made[name].add_argument("files", type=Path, nargs=nargs, metavar="FILE")
        made[name].add_argument("--set", action="append", default=[], metavar="NAME=VALUE",
                                help="override a field of MemoryConfig")  # fmt: skip
    for name in ("quick", "retrieval"):
        made[name].add_argument("--pooled", action="store_true", help="all stores in one")
        made[name].add_argument("--no-rivals", dest="rivals", action="store_false")
    made["calibrate"].add_argument("files", type=Path, nargs="+", metavar="FILE")
    for name in ("quick", "retrieval", "calibrate"):
        made[name].add_argument("--model", type=Path, metavar="DIR",
                                help="also measured with the model in DIR")  # fmt: skip
    made["ablation"].add_argument("--pairs", type=Path, help="pairs for the gate's own ablation")
    made["writes"].add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000])
    made["writes"].add_argument("--rounds", type=int, default=9)
    made["writes"].add_argument("--each", type=int, default=150, help="writes a round")
    made["startup"].add_argument("--traces", type=int, default=50_000)
    made["startup"].add_argument("--rounds", type=int, default=15)
    made["contention"].add_argument("--kills", type=int, default=20)
    made["scale"].add_argument("n", type=int, nargs="?", default=100_000)
    made["synthetic"].add_argument("--facts", type=int, default=1_500)
    made["synthetic"].add_argument("--queries", type=int, default=200)
    made["scale"].add_argument("--cues", type=int, default=200)
    return top


def configured(settings: Iterable[str]) -> MemoryConfig:
    """The default configuration with NAME=VALUE overrides, typed as the field is.

    A value that is no Python literal is taken as text. Raises ValueError for an unknown field.
    """
    config = MemoryConfig()
    for setting in settings:
        name, _, value = setting.partition("=")
        if name not in config._fields:
            raise ValueError(f"{name!r} is no field of MemoryConfig: {', '.join(config._fields)}")
        typed: Any = value
        with suppress(ValueError, SyntaxError):
            typed = ast.literal_eval(value)
        config = config._replace(**{name: typed})
    return config


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; 0, or 2 for a file that is not there or a setting that is not known."""
    given = list(sys.argv[1:] if argv is None else argv)
    args = parser().parse_args(given or ["quick"])
    try:
        args.config = configured(getattr(args, "set", []))
    except ValueError as error:
        print(f"bench.py: {error}", file=sys.stderr)
        return 2
    needed = [] if args.command == "quick" else [*getattr(args, "files", [])]
    needed += [path for name in ("pairs", "model") if (path := getattr(args, name, None))]
    absent = [str(path) for path in needed if not path.exists()]
    if absent:
        print(f"bench.py: no such file: {', '.join(absent)}", file=sys.stderr)
        return 2
    run = Run(args.command, args.seed)
    COMMANDS[args.command](run, args)
    return run.finish()


if __name__ == "__main__":
    sys.exit(main())
